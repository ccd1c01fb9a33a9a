"""What was found for a capture's addresses, as a table inside the capture, so that it needs no binaries any more."""

from bisect import bisect_left
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute

from tdprof.capture.schema import SYMBOL_EXTENT, SYMBOL_OWN_FILES, SYMBOLS
from tdprof.model.addresses import NO_BEGIN, Locations, MappedFile, Unknown
from tdprof.model.arrays import I32, I64, U64
from tdprof.symbolize.locations import combine_locations, unknown_locations

_SCHEMA = pa.schema([*SYMBOLS, *SYMBOL_EXTENT, SYMBOL_OWN_FILES])
_FRAME = SYMBOLS.field("frames").type.value_type
_FILES_AT_ONCE = 256  # a table of a single row takes 10 kB


def make_symbol_table(found: Sequence[tuple[MappedFile, U64, Locations]]) -> pa.Table:
    """The capture's ``symbols`` table: a row for each looked-up address.

    Args:
        found: for each file the file offsets that were looked up, and what was found there.
    """
    parts = (found[first : first + _FILES_AT_ONCE] for first in range(0, len(found), _FILES_AT_ONCE))
    tables = (pa.concat_tables([_rows_of(*one) for one in part]).combine_chunks() for part in parts)
    return pa.concat_tables([_SCHEMA.empty_table(), *tables])


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
        *(
            pa.nulls(count) if places is None else pa.array(places, mask=places == NO_BEGIN)
            for places in (locations.begin, locations.end)
        ),
        pa.nulls(count, SYMBOL_OWN_FILES.type)
        if locations.own_file is None
        else pa.ListArray.from_arrays(
            pa.array(locations.frame_start.astype(np.int32)),
            strings.take(pa.array(locations.own_file, mask=locations.own_file < 0)).fill_null(""),
        ),
    ]
    return pa.table(columns, names=_SCHEMA.names).cast(_SCHEMA)


class SavedSymbols:
    """Looks addresses up in a capture's ``symbols`` table (with the schema's columns, in any order of rows)."""

    def __init__(self, table: pa.Table) -> None:
        coded = [_sorted_codes(table[name]) for name in ("path", "build_id", "kind")]
        self._texts = [texts for _, texts in coded]
        keys = [*(codes for codes, _ in coded), table["pid"].to_numpy()]
        self._order = np.lexsort((table["file_offset"].to_numpy(), *reversed(keys)))
        self._keys = [key[self._order] for key in keys]
        columns = [
            name for name in _SCHEMA.names[_SCHEMA.get_field_index("file_offset") :] if name in table.column_names
        ]
        self._table = table.select(columns)

    def locate(self, file: MappedFile, file_offsets: U64) -> Locations:
        """What was saved; ``NO_FILE`` for places that were not."""
        nothing = unknown_locations(len(file_offsets), Unknown.NO_FILE)
        rows = self._rows_of(file)
        if not len(rows):
            return nothing
        part = self._part(rows)
        saved_offsets, saved = part["file_offset"].to_numpy(), _to_locations(part)
        at = np.minimum(np.searchsorted(saved_offsets, file_offsets), len(saved_offsets) - 1)
        found = np.flatnonzero(saved_offsets[at] == file_offsets)
        return combine_locations(nothing, found, saved, at[found])

    def _part(self, rows: I64) -> pa.Table:
        """Some rows of the table, which are not copied where they stand in that order one behind the other."""
        if (np.diff(rows) == 1).all():
            return self._table.slice(int(rows[0]), len(rows))
        return self._table.take(pa.array(rows))

    def _rows_of(self, file: MappedFile) -> I64:
        """The rows of a file, by offset."""
        texts = zip(self._texts, (file.path, file.build_id, file.kind), strict=True)
        codes = [_code_of(known, text) for known, text in texts]
        first, end = 0, len(self._order)
        for key, code in zip(self._keys, [*codes, file.pid], strict=True):
            first, end = (first + int(at) for at in np.searchsorted(key[first:end], [code, code + 1]))
        return self._order[first:end]


def _sorted_codes(column: pa.ChunkedArray) -> tuple[I32, pa.Array]:
    """int32[n]: the rank of each row's text among the distinct ones; and these, as bytes, sorted."""
    encoded = column.combine_chunks().dictionary_encode()
    texts = encoded.dictionary.cast(pa.binary())
    order = pa.compute.sort_indices(texts)
    rank = np.empty(len(texts), np.int32)
    rank[order.to_numpy()] = np.arange(len(texts))
    return rank[encoded.indices.to_numpy()], texts.take(order)


def _code_of(texts: pa.Array, text: str) -> int:
    """The place of a text among sorted ones, -1 if it is not there."""
    wanted = text.encode()
    at = bisect_left(range(len(texts)), wanted, key=lambda i: texts[i].as_py())
    return at if at < len(texts) and texts[at].as_py() == wanted else -1


def _to_locations(part: pa.Table) -> Locations:
    lists = part["frames"].combine_chunks()
    frames = lists.flatten()
    functions = frames.field("function").dictionary_encode()
    names = functions.dictionary.to_pylist()
    file, files = _file_ids(frames.field("file"), len(names))
    lengths = pa.compute.list_value_length(lists).to_numpy()
    own_file, own_files = _own_file_ids(part, lengths, file, len(names) + len(files))
    reason = part["reason"].to_numpy()
    begin, end = (
        part[field.name].fill_null(int(NO_BEGIN)).to_numpy() if field.name in part.column_names else None
        for field in SYMBOL_EXTENT
    )
    return Locations(
        frame_start=np.concatenate([[0], np.cumsum(lengths)]).astype(np.uint32),
        function=functions.indices.to_numpy().astype(np.int32),
        file=file,
        line=frames.field("line").to_numpy(),
        # A table of a later version may know reasons that we do not.
        reason=np.where(reason <= max(Unknown), reason, Unknown.NO_SYMBOL).astype(np.uint8),
        strings=[*names, *files, *own_files],
        begin=begin,
        end=end,
        own_file=own_file,
    )


def _file_ids(files: pa.Array, first: int) -> tuple[I32, list[str]]:
    """The number of each file, from ``first`` on, -1 of none; and the files."""
    encoded = files.dictionary_encode()
    number = (encoded.indices.fill_null(-1) if encoded.null_count else encoded.indices).to_numpy()
    return np.where(number < 0, -1, number + first).astype(np.int32), encoded.dictionary.to_pylist()


def _own_file_ids(part: pa.Table, lengths: I64, file: I32, first: int) -> tuple[I32 | None, list[str]]:
    """`_file_ids` of the files that functions stand in: those of the lines where a row says nothing of them."""
    if SYMBOL_OWN_FILES.name not in part.column_names or part[SYMBOL_OWN_FILES.name].null_count == len(part):
        return None, []
    lists = part[SYMBOL_OWN_FILES.name].combine_chunks()
    told = pa.compute.list_value_length(lists).fill_null(-1).to_numpy() == lengths  # others are damaged
    texts = lists.filter(pa.array(told)).flatten()
    number, files = _file_ids(pa.compute.if_else(pa.compute.equal(texts, ""), None, texts), first)
    own_file = file.copy()
    own_file[np.repeat(told, lengths)] = number
    return own_file, files
