"""How large the maps are in which the BPF programs leave what they have taken."""

from dataclasses import field

from tdprof.recorder.bpf.array_sizes import ArraySizes
from tdprof.values import dataclass

QUESTIONS_BYTES = 64 << 10
_LEAST_RING_BYTES = 1 << 20  # five hundred of the deepest stacks
_LEAST_COPIES_BYTES, _MOST_COPIES_BYTES = 2 << 20, 4 << 20
_MOST_LEAVES_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class TableSizes:
    """Capacities, from what one drain interval may bring.

    Attributes:
        rows: of each table of samples.
        ring_bytes: for stacks.
        copies_bytes: for copies of stacks.
        leaves_bytes: for those without memory.
        arrays: for unwinding.
        named_threads: that a filter of tasks begins with; 0: there is none.
    """

    rows: int
    ring_bytes: int
    copies_bytes: int
    leaves_bytes: int
    arrays: ArraySizes = field(default_factory=ArraySizes)
    named_threads: int = 0

    @classmethod
    def for_rate(cls, samples_per_second: int, *, waits_s: int = 2) -> "TableSizes":
        """Room for so many seconds of samples of which no two are alike, in rings for two seconds.

        Between 4 Ki rows and 256 Ki (56 MB of kernel memory).
        """
        rows = _power_of_two(waits_s * samples_per_second, 1 << 12, 1 << 18)
        sent = _power_of_two(2 * samples_per_second, 1 << 12, 1 << 18)
        copies_bytes = min(max(sent * 512, _LEAST_COPIES_BYTES), _MOST_COPIES_BYTES)
        return cls(rows, max(sent * 256, _LEAST_RING_BYTES), copies_bytes, min(sent * 64, _MOST_LEAVES_BYTES))


def _power_of_two(wanted: int, least: int, most: int) -> int:
    return min(max(1 << (wanted - 1).bit_length(), least), most)
