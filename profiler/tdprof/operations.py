"""Operations that SPE sampled, as samples of a profile with labels of their own: what an exporter writes of them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tdprof.model import I64
from tdprof.profile import Profile

RECORDS = "spe_records"


@dataclass(frozen=True, slots=True)
class SampledOperations:
    """Distinct sampled operations; rows are those of ``profile.samples``, whose stacks are one instruction each.

    Attributes:
        profile: of one event, ``RECORDS``: a sample's weight and count are SPE records.
        latency_cycles: int64[n], exact sum of the records' total latencies.
        latencies: int64[n] by name, cycles; -1 where a record has none.
        words: by name; None where it does not apply.
        detail: what was given up so that these are not too many; empty if nothing.
    """

    profile: Profile
    latency_cycles: I64
    latencies: Mapping[str, I64]
    words: Mapping[str, Sequence[str | None]]
    detail: str
