"""What a metric's number is a share of, told apart where the source does not."""

from tdprof.catalog.entries import CPU_CYCLES
from tdprof.catalog.expression import Expression, denominators, event_names

PERCENT_OF_SLOTS = "percent of slots"
PERCENT_OF_CYCLES = "percent of cycles"

# What each stall counter, or sum of them, is the whole of.
_STALL_CYCLES = {
    frozenset({"STALL_FRONTEND"}): "frontend stall cycles",
    frozenset({"STALL_FRONTEND_CPUBOUND"}): "frontend core-bound stall cycles",
    frozenset({"STALL_FRONTEND_MEMBOUND"}): "frontend memory-bound stall cycles",
    frozenset({"STALL_FRONTEND_L1I", "STALL_FRONTEND_MEM"}): "frontend cache stall cycles",
    frozenset({"STALL_BACKEND"}): "backend stall cycles",
    frozenset({"STALL_BACKEND_CPUBOUND"}): "backend core-bound stall cycles",
    frozenset({"STALL_BACKEND_MEMBOUND"}): "backend memory-bound stall cycles",
    frozenset({"STALL_BACKEND_L1D", "STALL_BACKEND_MEM"}): "backend cache stall cycles",
}


def units_of(stated: str, expression: Expression) -> str:
    """The units a metric's file states, corrected where they hide the denominator.

    Arm's files call the Topdown metrics below level 1 "percent of cycles", although they divide by their parent's
    stall cycles; two such numbers must not be added or compared.
    """
    if stated != PERCENT_OF_CYCLES:
        return stated
    names = frozenset(name for part in denominators(expression) for name in event_names(part))
    if CPU_CYCLES in names:
        return stated
    whole = _STALL_CYCLES.get(names, " + ".join(sorted(names)))
    return f"percent of {whole}"
