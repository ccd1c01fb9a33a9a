"""What was found for a capture's addresses, as a table inside the capture, so that it needs no binaries any more."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import SYMBOLS
from tdprof.model.addresses import FileKind, Locations, MappedFile, Unknown
from tdprof.model.arrays import I64, U64
from tdprof.symbolize.locations import combine_locations, unknown_locations

_FRAME = SYMBOLS.field("frames").type.value_type


def make_symbol_table(found: Sequence[tuple[MappedFile, U64, Locations]]) -> pa.Table:
    """The capture's ``symbols`` table: a row for each looked-up address.

    Args:
        found: for each file the file offsets that were looked up, and what was found there.
    """
    return pa.concat_tables([SYMBOLS.empty_table(), *(_rows_of(*one) for one in found)])


def _rows_of(file: MappedFile, offsets: U64, locations: Locations) -> pa.Table:
    strings = pa.array(locations.strings, pa.string())
    frames = pa.StructArray.from_arrays(
        [
            strings.take(pa.array(locations.function)),
            strings.take(pa.array(locations.file, mask=locations.file < 0)),
            pa.array(locations.line),
        ],
        fields=[_FRAME.field(i) for i in range(_FRAME.num_fields)],
    )
    count = len(offsets)
    columns = [
        pa.array([file.path] * count, pa.string()),
        pa.array([file.build_id] * count, pa.string()),
        pa.array([file.kind.value] * count, pa.string()),
        pa.array([file.pid] * count, pa.uint32()),
        pa.array(offsets, pa.uint64()),
        pa.array(locations.reason, pa.uint8()),
        pa.ListArray.from_arrays(pa.array(locations.frame_start.astype(np.int32)), frames),
    ]
    return pa.table(columns, names=SYMBOLS.names).cast(SYMBOLS)


class SavedSymbols:
    """Looks addresses up in a capture's ``symbols`` table (with the schema's columns, in any order of rows)."""

    def __init__(self, table: pa.Table) -> None:
        group = _groups(table, ("path", "build_id", "kind", "pid"))
        order = np.lexsort((table["file_offset"].to_numpy(), group))
        self._table = table.take(pa.array(order))
        starts = np.flatnonzero(np.diff(group[order], prepend=-1))
        ends = np.append(starts, len(order))[1:]
        files = self._table.select(["path", "build_id", "kind", "pid"]).take(pa.array(starts)).to_pylist()
        kinds = set(FileKind)
        self._rows = {
            MappedFile(file["path"], file["build_id"], FileKind(file["kind"]), file["pid"]): slice(start, end)
            for file, start, end in zip(files, starts.tolist(), ends.tolist(), strict=True)
            if file["kind"] in kinds
        }

    def locate(self, file: MappedFile, file_offsets: U64) -> Locations:
        """What was saved; ``NO_FILE`` for places that were not."""
        nothing = unknown_locations(len(file_offsets), Unknown.NO_FILE)
        if file not in self._rows:
            return nothing
        rows = self._rows[file]
        part = self._table.slice(rows.start, rows.stop - rows.start)
        saved_offsets, saved = part["file_offset"].to_numpy(), _to_locations(part)
        at = np.minimum(np.searchsorted(saved_offsets, file_offsets), len(saved_offsets) - 1)
        found = np.flatnonzero(saved_offsets[at] == file_offsets)
        return combine_locations(nothing, found, saved, at[found])


def _groups(table: pa.Table, names: Sequence[str]) -> I64:
    """int64[n]: a number for each row, the same for rows that are equal in these columns."""
    group = np.zeros(len(table), np.int64)
    for name in names:
        values = table[name].combine_chunks().dictionary_encode()
        _, group = np.unique(group * len(values.dictionary) + values.indices.to_numpy(), return_inverse=True)
    return group


def _to_locations(part: pa.Table) -> Locations:
    lists = part["frames"].combine_chunks()
    frames = lists.flatten()
    functions = frames.field("function").dictionary_encode()
    files = frames.field("file").dictionary_encode()
    names = functions.dictionary.to_pylist()
    lengths = pa.compute.list_value_length(lists).to_numpy()
    reason = part["reason"].to_numpy()
    return Locations(
        frame_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32),
        function=functions.indices.to_numpy().astype(np.int32),
        file=np.where(
            files.indices.is_null(), -1, files.indices.fill_null(0).to_numpy(zero_copy_only=False) + len(names)
        ).astype(np.int32),
        line=frames.field("line").to_numpy(),
        # A table of a later version may know reasons that we do not.
        reason=np.where(reason <= max(Unknown), reason, Unknown.NO_SYMBOL).astype(np.uint8),
        strings=[*names, *files.dictionary.to_pylist()],
    )
