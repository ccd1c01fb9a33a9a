"""What was found for a capture's addresses, as a table inside the capture, so that it needs no binaries any more."""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from tdprof.capture.schema import SYMBOLS
from tdprof.model import U64, FileKind, Locations, MappedFile, Unknown
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
        self._parts: dict[MappedFile, tuple[U64, Locations]] = {}
        keys = table.select(["path", "build_id", "kind", "pid"]).group_by(["path", "build_id", "kind", "pid"])
        for key in keys.aggregate([]).to_pylist():
            rows = pa.compute.and_(
                pa.compute.and_(
                    pa.compute.equal(table["path"], key["path"]), pa.compute.equal(table["build_id"], key["build_id"])
                ),
                pa.compute.and_(
                    pa.compute.equal(table["kind"], key["kind"]), pa.compute.equal(table["pid"], key["pid"])
                ),
            )
            part = table.filter(rows).sort_by("file_offset").combine_chunks()
            if key["kind"] in list(FileKind):
                file = MappedFile(key["path"], key["build_id"], FileKind(key["kind"]), key["pid"])
                self._parts[file] = part["file_offset"].to_numpy(), _to_locations(part)

    def locate(self, file: MappedFile, file_offsets: U64) -> Locations:
        """What was saved; ``NO_FILE`` for places that were not."""
        nothing = unknown_locations(len(file_offsets), Unknown.NO_FILE)
        if file not in self._parts:
            return nothing
        saved_offsets, saved = self._parts[file]
        at = np.minimum(np.searchsorted(saved_offsets, file_offsets), len(saved_offsets) - 1)
        rows = np.flatnonzero(saved_offsets[at] == file_offsets)
        return combine_locations(nothing, rows, saved, at[rows])


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
