"""``perf_records.h``: the decoder of perf records, and the tables that add samples and branches up."""

import ctypes
from enum import IntEnum

_pointer, _u64, _u32, _i32 = ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int32

NO_WORD = -(2**31)
MOST_WALK_REGISTERS = 17
DAMAGE_KEPT = 64
_RECORD_TYPES = 64


class Stop(IntEnum):
    """``enum perf_stop``: why the decoder returned."""

    END = 0
    TOOL_RECORD = 1
    SAMPLES = 2
    READS = 3
    BRANCHES = 4
    SIDE_BAND = 5
    NAMES = 6
    CHAINS = 7
    FRAMES = 8
    COPIES = 9
    STACK_BYTES = 10


class PerfLayout(ctypes.Structure):
    """``struct perf_layout``."""

    _fields_ = [
        ("sample_type", _u64),
        ("read_format", _u64),
        ("branch_sample_type", _u64),
        ("fixed_period", _u64),
        ("regs_user_count", _u32),
        ("regs_intr_count", _u32),
        ("user_pc", _i32),
        ("sample_id_all", _u32),
        ("walk_registers", _i32 * MOST_WALK_REGISTERS),
        ("has_copies", _u32),
        ("embeds_sample", _u32),
    ]


class PerfSamples(ctypes.Structure):
    """``struct perf_samples``."""

    _fields_ = [
        ("time_ns", _pointer),
        ("ip", _pointer),
        ("period", _pointer),
        ("cgroup", _pointer),
        ("pid", _pointer),
        ("tid", _pointer),
        ("cpu", _pointer),
        ("event", _pointer),
        ("user_chain", _pointer),
        ("kernel_chain", _pointer),
        ("misc", _pointer),
        ("rows", _u64),
        ("capacity", _u64),
    ]


class PerfCopies(ctypes.Structure):
    """``struct perf_copies``."""

    _fields_ = [
        ("sample", _pointer),
        ("registers", _pointer),
        ("stack_start", _pointer),
        ("stack_bytes", _pointer),
        ("stack", _pointer),
        ("rows", _u64),
        ("capacity", _u64),
        ("stack_used", _u64),
        ("stack_capacity", _u64),
        ("words", _u32),
        ("pad", _u32),
    ]


class PerfChains(ctypes.Structure):
    """``struct perf_chains``."""

    _fields_ = [
        ("slots", _pointer),
        ("offsets", _pointer),
        ("frames", _pointer),
        ("slot_mask", _u64),
        ("rows", _u64),
        ("capacity", _u64),
        ("frame_capacity", _u64),
        ("seed", _u64),
    ]


class PerfDamage(ctypes.Structure):
    """``struct perf_damage``."""

    _fields_ = [("offset", _u64), ("bytes", _u64)]


class PerfLosses(ctypes.Structure):
    """``struct perf_losses``."""

    _fields_ = [
        ("by_type", _u64 * _RECORD_TYPES),
        ("unknown_types", _u64),
        ("malformed", _u64),
        ("malformed_bytes", _u64),
        ("unknown_ids", _u64),
        ("guest_frames", _u64),
        ("unknown_contexts", _u64),
        ("deferred_chains", _u64),
        ("damage", PerfDamage * DAMAGE_KEPT),
    ]


class PerfDecoder(ctypes.Structure):
    """``struct perf_decoder``."""

    _fields_ = [
        ("layouts", _pointer),
        ("ids", _pointer),
        ("id_mask", _u64),
        ("layout_count", _u32),
        ("swap", _u32),
        ("sample_id_word", _i32),
        ("trailer_id_word", _i32),
        ("mixed_layouts", _u32),
        ("keep_branches", _u32),
        ("searching", _u32),
        ("skip_samples", _u32),
        ("asks_build_ids", _u32),
        ("pad", _u32),
        ("spare_bytes", _u64),
        ("samples", PerfSamples),
        ("copies", PerfCopies),
        ("reads", _pointer),
        ("read_rows", _u64),
        ("read_capacity", _u64),
        ("branches", _pointer),
        ("branch_rows", _u64),
        ("branch_capacity", _u64),
        ("side_band", _pointer),
        ("side_band_rows", _u64),
        ("side_band_capacity", _u64),
        ("names", _pointer),
        ("name_bytes", _u64),
        ("name_capacity", _u64),
        ("chains", PerfChains),
        ("losses", PerfLosses),
    ]


class PerfIntervals(ctypes.Structure):
    """``struct perf_intervals``."""

    _fields_ = [
        ("event_number", _pointer),
        ("events", _u64),
        ("interval_ns", _u64),
        ("change_pid", _pointer),
        ("change_ns", _pointer),
        ("changes", _u64),
    ]


class PerfGroups(ctypes.Structure):
    """``struct perf_groups``, and the beginning of ``struct perf_branch_sums``."""

    _fields_ = [
        ("rows", _pointer),
        ("slots", _pointer),
        ("slot_mask", _u64),
        ("count", _u64),
        ("capacity", _u64),
        ("seed", _u64),
        ("intervals", PerfIntervals),
    ]


class PerfBranchSums(PerfGroups):
    """``struct perf_branch_sums``."""

    _fields_ = [("samples", _u64), ("unknown_events", _u64)]


def declare(library: ctypes.CDLL) -> None:
    """Types of the functions."""
    for name, result, arguments in (
        (
            "decode",
            ctypes.c_int,
            [ctypes.POINTER(PerfDecoder), _pointer, _u64, _u64, ctypes.c_int, ctypes.POINTER(_u64)],
        ),
        ("rehash", None, [ctypes.POINTER(PerfChains), _pointer, _u64]),
        ("intern", _u64, [ctypes.POINTER(PerfChains), _pointer, _pointer, _u64, _u64, _pointer, ctypes.POINTER(_i32)]),
        ("group", _u64, [ctypes.POINTER(PerfGroups), ctypes.POINTER(PerfSamples), _u64]),
        ("rehash_groups", None, [ctypes.POINTER(PerfGroups), _pointer, _u64]),
        ("sum_branches", _u64, [_pointer, _pointer, _pointer, _u64, _u64]),
    ):
        function = getattr(library, f"tdprof_perf_{name}")
        function.restype, function.argtypes = result, arguments
