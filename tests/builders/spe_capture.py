"""A capture on disk that has samples of a clock and SPE records of the same three functions, with known shares."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from builders import spe
from builders.capture_tables import mappings, processes, samples, stacks, table
from builders.captures import replace_table, table_writer, write_manifest
from builders.hosts import HOST
from tdprof.capture.manifest import Manifest, Rung, SpeEventInfo, SpeInfo, State
from tdprof.capture.schema import KERNEL_SYMBOLS, SPE_SPANS
from tdprof.model.addresses import Locations, MappedFile
from tdprof.model.events import EventInfo, SampledGroup, TopdownInfo, Unit
from tdprof.model.losses import Losses
from tdprof.symbolize.saved import make_symbol_table

PID = 42
BASE, OFFSET = 0x400000, 0
APP = MappedFile("/bin/app", "ab12")
# Address, function, line. Nothing samples ``unseen`` but SPE.
CODE = ((0x401000, "work", 10), (0x401004, "work", 11), (0x401100, "parse", 30), (0x401200, "unseen", 50))
RETIRED, ACCESS, REFILL, TLB, WALK, NOT_TAKEN, MISPREDICTED = (1 << bit for bit in range(1, 8))


def load(pc: int, *, misses: bool = False, **more: int | None) -> spe.Truth:
    events = RETIRED | ACCESS | TLB | (REFILL if misses else 0)
    fields: dict[str, Any] = {
        "total": 20,
        "issue": 3,
        "va": 0xFFFF_0000_1000,
        "translation": 1,
        "context_el2": PID,
        "timestamp": 1000,
    }
    return spe.Truth(pc=0x80 << 56 | pc, op_class=1, op=0, events=events, **{**fields, **more})


def branch(pc: int, *, is_mispredicted: bool = False) -> spe.Truth:
    events = RETIRED | (MISPREDICTED if is_mispredicted else 0)
    return spe.Truth(0x80 << 56 | pc, 2, 1, events, 9, issue=2, target=0x401000, context_el2=PID, timestamp=1000)


def records() -> list[spe.Truth]:
    """A thousand of ``work`` (of 800 loads 80 miss), a hundred of ``parse``, four hundred of ``unseen``."""
    dram, l2 = 0xE, 8
    return [
        *[load(0x401000, misses=True, source=dram, total=200)] * 60,
        *[load(0x401000, source=0, total=8)] * 540,
        *[load(0x401004, misses=True, source=l2)] * 20,
        *[load(0x401004, source=0)] * 180,
        *[branch(0x401004, is_mispredicted=True)] * 50,
        *[branch(0x401004)] * 150,
        *[load(0x401100)] * 90,
        *[branch(0x401100)] * 10,
        *[load(0x401200, misses=True, source=dram)] * 400,
    ]


# Events of Stage 1 and of the miss ratio in ``work`` and in ``parse``; Neoverse V1 has eight slots a cycle.
TOPDOWN = {
    "CPU_CYCLES": (300_000, 100_000),
    "STALL_SLOT": (2_000_000, 320_000),
    "STALL_SLOT_FRONTEND": (200_000, 280_000),
    "STALL_SLOT_BACKEND": (1_800_000, 40_000),
    "OP_RETIRED": (380_000, 450_000),
    "OP_SPEC": (400_000, 480_000),
    "BR_MIS_PRED": (300, 300),
    "L1D_CACHE": (100_000, 50_000),
    "L1D_CACHE_REFILL": (30_000, 500),
}
TOPDOWN_METRICS = ["frontend_bound", "backend_bound", "retiring", "bad_speculation", "l1d_cache_miss_ratio"]
SAMPLES_PER_EVENT = 1000


def write_spe_capture(
    folder: Path,
    *,
    has_samples: bool = True,
    is_topdown: bool = False,
    more: Sequence[spe.Truth] = (),
    more_code: Sequence[tuple[int, str, int]] = (),
) -> Path:
    """Writes a capture.

    Args:
        folder: to be made.
        has_samples: 300 of ``work`` line 10, 100 of ``parse`` called by ``work`` line 11.
        is_topdown: not of a clock but of the events of ``TOPDOWN``, in their shares.
        more: SPE records besides ``records``.
        more_code: code besides ``CODE``: address, linkage name and line.
    """
    stream, _ = spe.write_stream([*records(), *more], spe.packed_record)
    (folder / "spe").mkdir(parents=True)
    (folder / "spe/cpu0.0.aux").write_bytes(stream)
    code = [*CODE, *more_code]
    addresses = np.array([address - BASE + OFFSET for address, _, _ in code], np.uint64)
    names = sorted({name for _, name, _ in code})
    found = Locations(
        frame_start=np.arange(len(code) + 1, dtype=np.uint32),
        function=np.array([names.index(name) for _, name, _ in code], np.int32),
        file=np.full(len(code), len(names), np.int32),
        line=np.array([line for _, _, line in code], np.uint32),
        reason=np.zeros(len(code), np.uint8),
        strings=[*names, "app.c"],
    )
    events = [EventInfo("cpu-clock", Unit.NANOSECONDS, frequency_hz=999)]
    weights = [(300_000_000, 100_000_000)]
    periods = [1_000_000]
    if is_topdown:
        weights = list(TOPDOWN.values())
        periods = [max(sum(each) // SAMPLES_PER_EVENT, 1) for each in weights]
        events = [
            EventInfo(name, Unit.COUNT, period, 0, sum(each), 2 * 10**9, 2 * 10**9)
            for name, period, each in zip(TOPDOWN, periods, weights, strict=True)
        ]
    rows = [
        (2_000_000_000, event, PID, PID, "app", stack, None, max(weight // period, 1), weight)
        for event, (period, each) in enumerate(zip(periods, weights, strict=True))
        for stack, weight in enumerate(each, 1)
    ]
    with table_writer(folder) as writer:
        writer.write("samples", samples(*(rows if has_samples else ())))
        writer.write("stacks", stacks((1, False, [0x401000]), (2, False, [0x401100, 0x401005])))
        writer.write("mappings", mappings((0, PID, BASE, 0x10000, OFFSET, APP.path, APP.build_id)))
        writer.write("processes", processes((0, "name", PID, PID, None, None, "app")))
        writer.write("kernel_symbols", KERNEL_SYMBOLS.empty_table())
        writer.write("spe_spans", table(SPE_SPANS, [(2_000_000_000, 0, 0, PID, PID, 0, len(stream), 0)]))
    replace_table(folder, "symbols", make_symbol_table([(APP, addresses, found)]))
    manifest = Manifest(
        host=HOST,
        command=["./app"],
        pids=[],
        is_system_wide=False,
        events=events,
        rung=Rung.RING_BUFFER,
        rung_reason="",
        start_realtime_ns=1_767_225_600_000_000_000,
        start_monotonic_ns=1_000_000_000,
        end_monotonic_ns=3_000_000_000,
        losses=Losses(),
        state=State.COMPLETE,
        topdown=TopdownInfo("neoverse-v1", [SampledGroup([*range(len(TOPDOWN))], list(TOPDOWN), TOPDOWN_METRICS)])
        if is_topdown
        else None,
        spe=SpeInfo(1024, [SpeEventInfo("arm_spe_0", "arm_spe_0/ts_enable=0x1/", [0], {})]),
    )
    write_manifest(folder, manifest)
    return folder
