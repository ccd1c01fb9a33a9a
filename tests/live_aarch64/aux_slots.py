"""Reads the 64-byte slots that the simulated SPE writes, by their layout in tools/neoverse_sim/spe.c."""

from pathlib import Path

import numpy as np
import polars

SLOT = np.dtype(
    {
        "names": ["pc", "context_header", "context", "op_header", "op", "events", "issue", "total", "address_header",
                  "address", "physical_header", "physical", "source_header", "source", "timestamp"],
        "formats": ["<u8", "u1", "<u4", "u1", "u1", "<u4", "<u2", "<u2", "u1", "<u8", "u1", "<u8", "u1", "u1", "<u8"],
        "offsets": [1, 9, 10, 19, 20, 22, 27, 30, 32, 33, 44, 45, 53, 54, 56],
        "itemsize": 64,
    }
)  # fmt: skip
OTHER, LOAD_STORE, BRANCH = 0x48, 0x49, 0x4A
# Extended load or store, of an atomic operation: two bits of the operation packet's payload.
ATOMIC = 0x06
ADDRESS = (1 << 56) - 1


def read_spans(capture: Path) -> polars.DataFrame:
    """The capture's table of AUX spans."""
    return polars.read_parquet(capture / "spe_spans.parquet")


def read_slots(capture: Path, *, buffer: int | None = None) -> np.ndarray:
    """Every whole record of a capture's SPE, or of its CPUs' buffers of one number; each span begins with one."""
    slots = []
    spans = read_spans(capture)
    for span in spans.filter(spans["buffer"] == buffer if buffer is not None else True).iter_rows(named=True):
        data = (capture / "spe" / f"cpu{span['cpu']}.{span['buffer']}.aux").read_bytes()
        raw = np.frombuffer(data[span["offset"] : span["offset"] + span["size"]], dtype=np.uint8)
        raw = raw[: len(raw) // 64 * 64].reshape(-1, 64)
        # A record starts with a PC packet and has its packets where they belong.
        slots.append(raw[(raw[:, 0] == 0xB0) & (raw[:, 21] == 0x62)].reshape(-1).view(SLOT))
    return np.concatenate(slots)


def is_load(slots: np.ndarray) -> np.ndarray:
    """Loads, by the low bit of the operation packet."""
    return (slots["op_header"] == LOAD_STORE) & (slots["op"] & 1 == 0)


def is_store(slots: np.ndarray) -> np.ndarray:
    """Stores, among them what the filter of stores takes: every atomic, be it marked as a load for what it returns."""
    return (slots["op_header"] == LOAD_STORE) & ((slots["op"] & 1 == 1) | (slots["op"] & ATOMIC == ATOMIC))


def in_function(slots: np.ndarray, start: int, end: int) -> np.ndarray:
    """Records whose PC lies there."""
    pc = slots["pc"] & ADDRESS
    return (pc >= start) & (pc < end)
