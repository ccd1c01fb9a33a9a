"""What is missing of SPE data, in the words in which every report says it."""

from arm_spe import DecodeCounts
from tdprof.values import dataclass


@dataclass(slots=True)
class AuxLosses:
    """What the kernel said about the AUX data, in numbers of PERF_RECORD_AUX.

    Attributes:
        truncated: samples were lost: no room, or a buffer fault.
        partial: the span ends within a record.
        collided: samples collided with one in flight; how many is not told.
        cut_buffers: AUX buffers that the file's end cuts.
        too_short: spans that are left out, where very many have only a few bytes.
    """

    truncated: int = 0
    partial: int = 0
    collided: int = 0
    cut_buffers: int = 0
    too_short: int = 0


_CUT_OFF = "spans of AUX bytes are cut off by the end of their file, or it is missing"
_DAMAGED = "bytes are damaged and left out"


def aux_losses(losses: AuxLosses) -> dict[str, int]:
    """How often what was lost before the data reached its file, by the words that follow the number; none is 0."""
    return _seen(
        {
            "times the kernel reports lost samples (AUX TRUNCATED)": losses.truncated,
            "spans end within a record (AUX PARTIAL)": losses.partial,
            "spans had samples that collided: operations behind slow ones are sampled less": losses.collided,
            _CUT_OFF: losses.cut_buffers,
            "spans of a few AUX bytes are left out: so many were never recorded": losses.too_short,
        }
    )


def decode_losses(counts: DecodeCounts) -> dict[str, int]:
    """How much of the data could not be decoded, by the words that follow the number; none is 0."""
    return _seen(
        {
            _DAMAGED: counts.damaged_bytes,
            "records were cut off by the end of their span and are left out": counts.open_records,
        }
    )


def losses_since(counts: DecodeCounts, losses: AuxLosses) -> dict[str, int]:
    """Of both, what was there when the data was recorded, and is damage."""
    return _seen({_DAMAGED: counts.damaged_bytes, _CUT_OFF: losses.cut_buffers})


def _seen(told: dict[str, int]) -> dict[str, int]:
    return {words: count for words, count in told.items() if count}
