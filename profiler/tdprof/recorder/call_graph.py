"""``--call-graph``: how user stacks are taken, in perf's words."""

from enum import StrEnum

from tdprof.errors import TdprofError


class CallGraph(StrEnum):
    """The ways; perf's names."""

    AUTO = "auto"
    FRAME_POINTERS = "fp"
    DWARF = "dwarf"
    NONE = "no"

    @property
    def is_by_tables(self) -> bool:
        """Whether stacks are walked by unwind tables, if anything can."""
        return self in (CallGraph.AUTO, CallGraph.DWARF)


# The walk's result must fit into what it came from. A perf record has 16 bits for its size, a multiple of 8: of
# the most that it takes the kernel copies as much as the rest of the record leaves room for.
LEAST_STACK_BYTES, MOST_STACK_BYTES = 1024, 65528


def parse_call_graph(text: str) -> tuple[CallGraph, int]:
    """What ``--call-graph`` was given: how user stacks are taken; bytes to be copied of each, 0: as many as suit.

    Raises:
        TdprofError: no such way, or a number of bytes that is none.
    """
    name, comma, size = text.partition(",")
    is_sized = comma and name == CallGraph.DWARF and size.isascii() and size.isdigit()
    if name not in list(CallGraph) or (comma and not is_sized):
        raise TdprofError(
            f"--call-graph takes auto, fp, dwarf[,BYTES] or no, not '{text}'", hint="--call-graph auto", status=2
        )
    if size and not LEAST_STACK_BYTES <= int(size) <= MOST_STACK_BYTES:
        raise TdprofError(
            f"--call-graph dwarf copies {LEAST_STACK_BYTES} to {MOST_STACK_BYTES} bytes of a stack, not {size}",
            hint="--call-graph dwarf,16384",
            status=2,
        )
    return CallGraph(name), -(-int(size or 0) // 8) * 8
