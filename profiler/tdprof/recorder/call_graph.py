"""``--call-graph``: how user stacks are taken, in perf's words."""

from enum import StrEnum

from tdprof.errors import TdprofError


class CallGraph(StrEnum):
    """The ways; perf's names."""

    AUTO = "auto"
    FRAME_POINTERS = "fp"
    DWARF = "dwarf"
    NONE = "no"


def parse_call_graph(text: str) -> CallGraph:
    """What ``--call-graph`` was given.

    Raises:
        TdprofError: no such way, or a number of bytes that is none.
    """
    name, comma, size = text.partition(",")
    is_sized = comma and name == CallGraph.DWARF and size.isascii() and size.isdigit()
    if name not in list(CallGraph) or (comma and not is_sized):
        raise TdprofError(
            f"--call-graph takes auto, fp, dwarf[,BYTES] or no, not '{text}'", hint="--call-graph auto", status=2
        )
    return CallGraph(name)
