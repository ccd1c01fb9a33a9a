"""The seam to what runs the work: five calls, behind which captures are read here or on a cluster."""

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from tdprof.values import dataclass

Work = Callable[[Sequence[str], str], bytes]  # sources, options as JSON: what `roll_up_captures` does


@dataclass(frozen=True, slots=True)
class Done:
    """What became of some sources.

    Attributes:
        result: what the work returned; None if whoever worked on them was lost each time.
        reason: then, in words.
    """

    sources: Sequence[str]
    result: bytes | None
    reason: str = ""


class Engine(Protocol):
    """Runs work on sources. An error that the work raises ends `as_completed`."""

    def open(self) -> None:
        """Get ready.

        Raises:
            TdprofError: what is to do the work cannot be reached.
        """

    def submit(self, work: Work, sources: Sequence[str], options: str) -> None:
        """Ask for work to be done on some sources, some time."""

    def as_completed(self) -> Iterator[Done]:
        """What has been asked for, as it is done; more may be asked for in between."""

    def cancel(self) -> None:
        """Forget what has been asked for and is not done."""

    def close(self) -> None:
        """Give back what `open` took."""


class InProcessEngine:
    """Does the work here, one piece after the other."""

    def __init__(self) -> None:
        self._waiting: list[tuple[Work, Sequence[str], str]] = []

    def open(self) -> None:
        pass

    def submit(self, work: Work, sources: Sequence[str], options: str) -> None:
        self._waiting.append((work, sources, options))

    def as_completed(self) -> Iterator[Done]:
        while self._waiting:
            work, sources, options = self._waiting.pop(0)
            yield Done(sources, work(sources, options))

    def cancel(self) -> None:
        self._waiting.clear()

    def close(self) -> None:
        pass
