"""What is done about mappings, while what was mapped is still there: programs are held, replaced libraries noticed."""

from collections.abc import Iterable, Sequence

from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.replaced_mappings import ReplacedMappings


class MappingWatch:
    """Is shown every record before it leaves its ring.

    Args:
        followed: as of `HeldPrograms`.
        needs_replaced: whether samples are added up over intervals, which then end where a library is replaced.

    Attributes:
        held: programs that were mapped.
        replaced: processes in which a library took another's place, until `take_replaced`.
    """

    def __init__(self, followed: Iterable[int], *, needs_replaced: bool) -> None:
        self.held = HeldPrograms(followed)
        self.replaced: set[int] = set()
        self._mapped = ReplacedMappings() if needs_replaced else None

    def see(self, rings: Sequence[bytes]) -> None:
        """Of each ring, the records since the last time."""
        self.held.look(rings)
        if self._mapped:
            self.replaced |= self._mapped.look(b"".join(rings))

    def take_replaced(self) -> set[int]:
        """The processes that were found since the last call."""
        found, self.replaced = self.replaced, set()
        return found
