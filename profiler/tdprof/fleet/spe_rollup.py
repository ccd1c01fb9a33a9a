"""The latencies of one capture's SPE records, as histograms of functions that add up exactly."""

import posixpath
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from tdprof.fleet.function_names import fleet_name
from tdprof.fleet.identity import bounded
from tdprof.fleet.schema import OTHERS, SPE_LATENCY
from tdprof.model.addresses import FileKind
from tdprof.model.arrays import I64, U64
from tdprof.model.duty import SPE, recorded_ns_of
from tdprof.model.spe import LATENCIES
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_lines import within_memory
from tdprof.pipeline.spe_rows import SampledFunction

# Rows of one recording; functions with the fewest records share what is left.
MOST_ROWS = 500_000
_KEYS = ("module", "build_id", "function", "linkage_name", "file")
_Key = tuple[str, str, str, str, str]
_KERNEL = (FileKind.KERNEL, FileKind.KERNEL_MODULE)
_OTHERS: _Key = ("", "", OTHERS, OTHERS, "")


@within_memory()
def spe_latencies(capture: OpenCapture) -> pa.Table:
    """A capture's histograms, as `SPE_LATENCY` has them, in an order of their own; the recording is filled in later.

    Raises:
        TdprofError: its SPE data cannot be read, or the compiled code that adds up was not built.
    """
    lines, manifest = capture.spe_lines, capture.manifest
    keys = [_OTHERS, *(_key(function) for function in lines.functions)]
    kernel = [False, *(f.mapped_file is not None and f.mapped_file.kind in _KERNEL for f in lines.functions)]
    order = sorted(range(len(keys)), key=lambda number: (keys[number], kernel[number]))
    row_of = np.empty(len(keys), np.int64)
    distinct: list[tuple[_Key, bool]] = []
    for number in order:
        if not distinct or distinct[-1] != (keys[number], kernel[number]):
            distinct.append((keys[number], kernel[number]))
        row_of[number] = len(distinct) - 1
    row = row_of[lines.function + 1]
    tallied = lines.counted.grouped(row, len(distinct))
    kept = _worth_a_row(tallied.latency_key, tallied.latency_count, len(distinct))
    if not kept.all():
        others = next(row for row, (key, _) in enumerate(distinct) if key == _OTHERS)
        tallied = lines.counted.grouped(np.where(kept, np.arange(len(distinct)), others)[row], len(distinct))
    row, kind = np.divmod((tallied.latency_key >> np.uint64(16)).astype(np.int64), len(LATENCIES))
    columns: dict[str, pa.Array] = {
        name: _texts([key[at] for key, _ in distinct], row) for at, name in enumerate(_KEYS)
    }
    columns["latency"] = _texts(list(LATENCIES), kind)
    columns["is_kernel"] = pa.array(np.array([is_kernel for _, is_kernel in distinct], bool)[row])
    columns["is_ambiguous"] = pa.array(_ambiguous(distinct)[row])
    columns["cycles"] = pa.array((tallied.latency_key & np.uint64(0xFFFF)).astype(np.int32))
    columns["records"] = pa.array(tallied.latency_count.astype(np.int64))
    spe = manifest.spe
    of_all = {
        "recording": pa.scalar("", pa.string()),
        "period": pa.scalar(max(spe.period if spe else 1, 1), pa.int64()),
        "duration_ns": pa.scalar(max(recorded_ns_of(SPE, manifest.duty, manifest.duration_ns), 1), pa.int64()),
    }
    columns |= {name: pa.repeat(value, len(row)) for name, value in of_all.items()}
    return pa.table([columns[field.name].cast(field.type) for field in SPE_LATENCY], schema=SPE_LATENCY)


def _key(function: SampledFunction) -> _Key:
    file = function.mapped_file
    path, build_id = (file.path, file.build_id or "") if file else ("", "")
    names = (fleet_name(name, file) for name in (function.name, function.linkage_name))
    texts = (path, build_id, *names, function.source_file)
    module, build, name, linkage, source = (bounded(text) for text in texts)
    return module, build, name, linkage, source


def _texts(values: Sequence[str], row: I64) -> pa.Array:
    return pa.array(values, pa.string()).take(pa.array(row))


def _ambiguous(functions: Sequence[tuple[_Key, bool]]) -> NDArray[np.bool_]:
    """bool[n]: whether the module has more functions of that name."""
    names = [(posixpath.basename(key[0]), key[2]) for key, _ in functions]
    count = Counter(names)
    return np.array([count[name] > 1 for name in names], bool)


def _worth_a_row(key: U64, count: NDArray[np.unsignedinteger], functions: int) -> NDArray[np.bool_]:
    """bool[functions]: those with the most records whose histograms have room, and what stands for the others."""
    row = (key >> np.uint64(16)).astype(np.int64) // len(LATENCIES)
    rows, records = np.bincount(row, minlength=functions), np.bincount(row, count, functions)
    order = np.argsort(-records, kind="stable")
    kept = np.zeros(functions, bool)
    kept[order[np.cumsum(rows[order]) <= MOST_ROWS]] = True
    return kept
