"""Side-band records of control groups and namespaces into a capture's tables."""

import itertools
import json
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import CGROUPS, NAMESPACES
from tdprof.decode.perf.columns import SideBand, Table
from tdprof.decode.side_band import NONSENSE, plain_text, whole_number
from tdprof.decode.spooled_files import SpoolDamage, spooled_lines
from tdprof.linux.perf_abi import RecordType

# The order of the kernel's NET_NS_INDEX and so on in linux/perf_event.h, in the words of /proc/PID/ns.
# What a recording keeps of an id (struct sample_key of bpf/sample.h): no two that exist have these bits alike.
CGROUP_ID_BITS = 0x7FFFFFFF
_NAMESPACES = ("net", "uts", "ipc", "pid", "user", "mnt", "cgroup")


def cgroup_table(batches: Sequence[SideBand]) -> pa.Table:
    """The path of each control group, the last one where it was renamed."""
    return _cgroups(_recorded(batches))


def named_cgroups(path: Path, batches: Sequence[SideBand], damage: SpoolDamage) -> pa.Table:
    """The path of each control group of a recording of ours.

    Args:
        path: ``spool/cgroups.jsonl``, which names them as this machine's user does.
        batches: side-band records, which name those that were made while recording by the kernel's own root.
        damage: counts what cannot be read.
    """
    paths = {identity & CGROUP_ID_BITS: name for identity, name in _recorded(batches).items()}
    for line in spooled_lines(path, damage):
        try:
            row = json.loads(line)
            paths[whole_number(row["cgroup"]) & 0xFFFFFFFF] = plain_text(row["path"])
        except NONSENSE:
            damage.bytes += len(line)
    return _cgroups(paths)


def _recorded(batches: Sequence[SideBand]) -> dict[int, str]:
    return {int(row["value"]): _text(batch.name(row)) for batch, row in _records(batches, RecordType.CGROUP)}


def _cgroups(paths: dict[int, str]) -> pa.Table:
    return pa.table([list(paths), list(paths.values())], names=CGROUPS.names).cast(CGROUPS)


def namespace_table(batches: Sequence[SideBand], recorders: Collection[int]) -> pa.Table:
    """The namespaces of each thread, in order of time.

    Args:
        batches: side-band records.
        recorders: processes that were the recording program's before the recording began.
    """
    rows: list[_Row] = []
    for batch, row in _records(batches, RecordType.NAMESPACES):
        links = np.frombuffer(batch.name(row), np.uint64).reshape(-1, 2).tolist()
        thread = (int(row["time_ns"]), int(row["pid"]), int(row["tid"]))
        # Kinds of namespaces that are newer than this list have no name.
        rows += [_Row(*thread, kind, *link) for kind, link in zip(_NAMESPACES, links, strict=False)]
    rows.sort(key=lambda row: row.time_ns)
    own = {row[3:] for row in rows if row.time_ns == 0 and row.pid in recorders}
    # Of two recorders with different namespaces either may have made the file.
    kinds = Counter(kind for kind, *_ in own)
    is_own = [row[3:] in own if kinds[row.namespace] == 1 else None for row in rows]
    columns = [*([getattr(row, name) for row in rows] for name in _Row._fields), is_own]
    arrays = [pa.array(column, _plain(item)) for column, item in zip(columns, NAMESPACES, strict=True)]
    return pa.table(arrays, names=NAMESPACES.names).cast(NAMESPACES)


class _Row(NamedTuple):
    time_ns: int
    pid: int
    tid: int
    namespace: str
    device: int
    inode: int


def _plain(item: pa.Field) -> pa.DataType:
    return item.type.value_type if pa.types.is_dictionary(item.type) else item.type


def _records(batches: Sequence[SideBand], kind: RecordType) -> Iterator[tuple[SideBand, Table]]:
    return itertools.chain.from_iterable(
        ((batch, row) for row in batch.rows[batch.rows["type"] == kind]) for batch in batches
    )


def _text(name: bytes) -> str:
    return name.split(b"\0", 1)[0].decode(errors="replace")
