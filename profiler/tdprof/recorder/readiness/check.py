"""One finding about the machine."""

from enum import StrEnum

from tdprof.values import dataclass


class CheckStatus(StrEnum):
    """How a check went."""

    OK = "ok"
    WARN = "warn"  # recording works, with less
    FAIL = "fail"  # nothing can be recorded until this is fixed
    UNKNOWN = "unknown"  # it could not be found out


@dataclass(frozen=True, slots=True)
class Check:
    """One link of the chain.

    Attributes:
        name: stable, for scripts.
        status: how it went.
        detail: what was found.
        cost: what the user misses because of it; empty when nothing.
        fix: the command, or the setting, that changes it; empty when there is none to give.
    """

    name: str
    status: CheckStatus
    detail: str
    cost: str = ""
    fix: str = ""
