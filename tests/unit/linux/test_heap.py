"""What is free goes back, also what only refers to itself."""

import gc
import weakref

from tdprof.linux.heap import give_back_free_pages


class Ring:
    """Refers to itself, as each of json's encoders does."""

    def __init__(self) -> None:
        self.itself = self


def test_what_only_refers_to_itself_goes_without_waiting_for_much_of_it() -> None:
    gc.disable()
    try:
        told = weakref.ref(Ring())
        assert told() is not None
        give_back_free_pages()
        assert told() is None
    finally:
        gc.enable()
