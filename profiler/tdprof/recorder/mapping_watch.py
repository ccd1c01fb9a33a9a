"""What is done about mappings, while what was mapped is still there: programs are held, replaced libraries,
dumps of run-time code and JVMs noticed."""

from collections.abc import Callable, Iterable, Sequence, Set

from tdprof.recorder.code_dumps import dumps_mapped
from tdprof.recorder.code_watch import CodeWatch
from tdprof.recorder.held_programs import HeldPrograms
from tdprof.recorder.java_mappings import java_mapped
from tdprof.recorder.replaced_mappings import Place, ReplacedMappings


class MappingWatch:
    """Is shown every record before it leaves its ring.

    Args:
        followed: as of `HeldPrograms`.
        needs_replaced: whether samples are added up over intervals, which then end where a library or code is replaced.
        found_java: told of processes of the recording that have mapped a JVM.

    Attributes:
        held: programs that were mapped.
        code: what programs tell of the code that they make.
    """

    def __init__(
        self, followed: Iterable[int], *, needs_replaced: bool, found_java: Callable[[int], None] | None = None
    ) -> None:
        self.held = HeldPrograms(followed)
        self._found_java = found_java
        self._mapped = ReplacedMappings() if needs_replaced else None
        self.code = CodeWatch(ends_intervals=needs_replaced)

    def see(self, rings: Sequence[bytes]) -> None:
        """Of each ring, the records since the last time."""
        self.held.look(rings)
        records = b"".join(rings)
        if self._mapped:
            self._mapped.look(records)
        if self.code.ends_intervals:
            for pid, path in dumps_mapped(records):
                if self.held.follows(pid):
                    self.code.found_dump(pid, path)
        if self._found_java:
            for pid in filter(self.held.follows, java_mapped(records)):
                self._found_java(pid)

    def forget_all_but(self, running: Set[int]) -> None:
        """Let go of what is known of other processes than these, once the segment in which they ended is over."""
        if self._mapped:
            self._mapped.forget_all_but(running)
        self.code.forget_all_but(running)

    @property
    def has_replaced(self) -> bool:
        """Whether a library took another's place since `take_replaced`."""
        return self._mapped is not None and self._mapped.has_found

    def take_replaced(self) -> dict[Place, int]:
        """Where one did since the last call, and how often."""
        return self._mapped.take() if self._mapped else {}
