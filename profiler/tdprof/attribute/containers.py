"""Files of processes that saw another file system than the recording program did."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute


def foreign_paths(paths: Collection[str], mappings: pa.Table, namespaces: pa.Table) -> list[str]:
    """Those of some mapped files that only processes in another mount namespace than the recorder's mapped.

    Args:
        paths: of mapped files.
        mappings, namespaces: the capture's tables.
    """
    is_mount = pa.compute.equal(namespaces["namespace"].cast(pa.string()), "mnt")
    is_foreign: dict[int, list[tuple[int, bool]]] = defaultdict(list)
    for row in namespaces.filter(is_mount).select(["time_ns", "pid", "is_recorders"]).to_pylist():
        is_foreign[row["pid"]].append((row["time_ns"], row["is_recorders"] is False))
    seen: dict[str, list[bool]] = {path: [] for path in paths}
    is_wanted = pa.compute.is_in(mappings["path"].cast(pa.string()), pa.array(seen, pa.string()))
    for row in mappings.filter(is_wanted).select(["time_ns", "pid", "path"]).to_pylist():
        history = is_foreign[row["pid"]]
        at = bisect_right(history, (row["time_ns"], True))
        seen[row["path"]].append(at > 0 and history[at - 1][1])
    return [path for path, answers in seen.items() if answers and all(answers)]
