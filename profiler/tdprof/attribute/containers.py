"""Files of processes that saw another file system than the recording program did."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute

_ROWS_AT_ONCE = 1 << 16


def foreign_paths(paths: Collection[str], mappings: pa.Table, namespaces: pa.Table) -> list[str]:
    """Those of some mapped files that only processes in another mount namespace than the recorder's mapped.

    Args:
        paths: of mapped files.
        mappings, namespaces: the capture's tables.
    """
    is_mount = pa.compute.equal(namespaces["namespace"].cast(pa.string()), "mnt")
    is_foreign: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for time_ns, pid, is_recorders in _rows(namespaces.filter(is_mount), ["time_ns", "pid", "is_recorders"]):
        history = is_foreign[pid]
        if not history or history[-1][1] is not (is_recorders is False):
            history.append((time_ns, is_recorders is False))
    seen: dict[str, list[bool]] = {path: [] for path in paths}
    is_wanted = pa.compute.is_in(mappings["path"].cast(pa.string()), pa.array(seen, pa.string()))
    for time_ns, pid, path in _rows(mappings.filter(is_wanted), ["time_ns", "pid", "path"]):
        history = is_foreign[pid]
        at = bisect_right(history, (time_ns, True))
        seen[path].append(at > 0 and history[at - 1][1])
    return [path for path, answers in seen.items() if answers and all(answers)]


def _rows(table: pa.Table, columns: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for batch in table.select(columns).to_batches(_ROWS_AT_ONCE):
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)
