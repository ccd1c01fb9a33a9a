"""Writing and reading a capture's Parquet tables."""

import contextlib
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tdprof.capture.schema import OPTIONAL_COLUMNS, OPTIONAL_TABLES, TABLES, table_file
from tdprof.capture.table_checks import FOOTER_LIMITS, check_values, checked_columns, stated_bytes, text_bytes
from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import open_own
from tdprof.linux.memory_limit import memory_limit
from tdprof.linux.own_folder import OwnFolder
from tdprof.text import first_words

COPY_AGAIN = "copy the capture again, whole"
# How large a table may be in memory: its file times this, and something for small ones. What shrinks furthest are
# samples that differ in nothing but the number of their stack, as of a process with very many: to an eighteenth.
_TABLE_TO_FILE, _SPARE_TABLE_BYTES = 24, 32 << 20
_SPARE_READING_BYTES = 128 << 20
_SCHEMAS = TABLES | OPTIONAL_TABLES
# What is not known of a capture that has lost one of these tables; without another there is nothing to show.
_UNKNOWN_WITHOUT = {
    "stacks": "no sample has a function or callers",
    "mappings": "functions in user space have no names and no callers",
    "processes": "names of processes and threads may be missing, and what forked processes had mapped",
    "kernel_symbols": "the kernel's functions have no names",
    "symbols": "its own symbols are not used, only those of this machine's files",
    "interpreted": "functions of interpreted languages have no names",
    "thread_times": "where threads' time went is not known but from samples",
    "wakers": "who ended sleeps is not known",
    "namespaces": "files of containers are not told from this machine's",
    "cgroups": "control groups have no names",
    "branches": "branches are not known",
    "switches": "which thread SPE sampled is known less often",
}
# Each page has a CRC-32, so that a bit that changed on a disk or a way is no other number.
_WRITING: dict[str, Any] = {"compression": "zstd", "write_page_checksum": True}
_READING: dict[str, Any] = {"page_checksum_verification": True, **FOOTER_LIMITS}


class TableWriter:
    """Streams batches into a capture's tables; a table appears under its name only when it is whole.

    Use as a context manager: leaving it normally publishes the tables, an exception removes what was written.
    """

    def __init__(self, folder: OwnFolder) -> None:
        self._folder = folder
        self._writers: dict[str, pq.ParquetWriter] = {}
        self._files = contextlib.ExitStack()

    def write(self, name: str, table: pa.Table) -> None:
        """Append rows to a table; its columns are cast to the schema. The first rows decide on optional columns."""
        if name not in self._writers:
            schema = _with_columns(name, table.column_names)
            file = self._files.enter_context(self._folder.replacing(table_file(name)))
            self._writers[name] = pq.ParquetWriter(file, schema, **_WRITING)
        self._writers[name].write_table(_in_schema(table, self._writers[name].schema))

    def names(self) -> list[str]:
        """Of the tables: what a manifest says of them."""
        return sorted(TABLES.keys() | self._writers)

    def __enter__(self) -> "TableWriter":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: Any) -> None:
        if kind is not None:
            for writer in self._writers.values():
                with contextlib.suppress(OSError):
                    writer.close()
            self._files.__exit__(kind, error, traceback)
            return
        with self._files:  # whatever fails from here on removes them all
            for name, schema in TABLES.items():
                if name not in self._writers:
                    self.write(name, schema.empty_table())
            for writer in self._writers.values():
                writer.close()


def replace_table(folder: OwnFolder, name: str, table: pa.Table) -> None:
    """Write one table of a finished capture, in place of an older one of that name."""
    with folder.replacing(table_file(name)) as file:
        pq.write_table(_in_schema(table, _with_columns(name, table.column_names)), file, **_WRITING)


def read_table(folder: Path, name: str, optional: Sequence[str] = (), columns: Sequence[str] | None = None) -> pa.Table:
    """All rows of a table.

    Args:
        folder: the capture.
        name: of the table.
        optional: which of its optional columns are wanted, too; null where the capture has none.
        columns: those of its other columns that are wanted, one at least; None: all.

    Raises:
        TdprofError: missing, truncated or not what the schema says.
    """
    path = folder / table_file(name)
    wanted = None if columns is None else [*columns, *optional]
    try:
        # Not pq.read_table(): it loads pyarrow.dataset and, where it is installed, pandas: 0.35 s of imports.
        with open_own(path) as opened:
            most = _SPARE_TABLE_BYTES + _TABLE_TO_FILE * os.fstat(opened.fileno()).st_size
            # What the file says of its sizes is checked first; where it lies, the limit ends it.
            with memory_limit(_SPARE_READING_BYTES + 3 * most):
                table = _read_up_to(f"/proc/self/fd/{opened.fileno()}", most, wanted)
                check_values(table)
            # Not within the limit: Arrow loads pandas for it, where that is installed.
            if text_bytes(table) > most:
                raise MemoryError
    except MemoryError as error:
        raise TdprofError(f"{path} is not read: it would become more than {most >> 20} MiB", hint=COPY_AGAIN) from error
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        words = first_words(error).split(". ")[0].rstrip(".")
        cause = f"it is damaged ({words})" if path.exists() else "it is missing"
        raise TdprofError(f"cannot read {path}: {cause}", hint=COPY_AGAIN) from error
    schema = _with_columns(name, optional)
    if wanted is not None:
        schema = pa.schema([item for item in schema if item.name in wanted])
    for column in set(optional).difference(table.column_names):
        table = table.append_column(schema.field(column), pa.nulls(len(table), schema.field(column).type))
    try:
        return checked_columns(table, schema)
    except ValueError as error:
        raise TdprofError(f"{path} is not a capture's table, or damaged: {error}") from error


def _read_up_to(path: str, most: int, columns: list[str] | None) -> pa.Table:
    """Raises MemoryError for a table that takes more bytes."""
    with _open(path) as file:
        if stated_bytes(file.metadata) > most:
            raise MemoryError
        # One row group after the other: reading all at once takes three times the table's size.
        parts = [file.read_row_group(group, columns, use_threads=False) for group in range(file.num_row_groups)]
        # What stands behind the pages has no checksum; Arrow believes each group's number of rows.
        if sum(map(len, parts)) != file.metadata.num_rows:
            raise pa.ArrowInvalid("it has other numbers of rows than it says")
        return pa.concat_tables(parts).combine_chunks() if parts else file.read(columns, use_threads=False)


def _open(path: str) -> pq.ParquetFile:
    """The file, with text columns as they are stored: each text once; but not within lists, which Arrow cannot join."""
    source = pa.OSFile(path)  # of a path Arrow would load its file systems, clouds' among them
    file = pq.ParquetFile(source, **_READING)
    columns = [file.schema.column(i) for i in range(len(file.schema))]
    text = [each.path for each in columns if each.physical_type == "BYTE_ARRAY" and not each.max_repetition_level]
    return pq.ParquetFile(source, metadata=file.metadata, read_dictionary=text, **_READING) if text else file


def read_side_table(folder: Path, name: str, optional: Sequence[str] = ()) -> tuple[pa.Table, str]:
    """A table that a profile can be made without; arguments as of ``read_table``.

    Returns:
        The table and ""; or an empty one, and a sentence: why it cannot be read, and what therefore is not known.
    """
    try:
        return read_table(folder, name, optional), ""
    except TdprofError as error:
        return _with_columns(name, optional).empty_table(), f"{error.message}; {_UNKNOWN_WITHOUT[name]}"


def has_table(folder: Path, name: str) -> bool:
    """Whether a capture has one of the tables that not every capture has."""
    return (folder / table_file(name)).exists()


def gone_tables(folder: Path, names: Iterable[str]) -> list[str]:
    """Sentences on the tables that not every capture has, and this one had when it was made."""
    gone = [name for name in names if name in OPTIONAL_TABLES and not has_table(folder, name)]
    return [f"cannot read {folder / table_file(name)}: it is missing; {_UNKNOWN_WITHOUT[name]}" for name in gone]


def table_bytes(folder: Path) -> int:
    """What all tables of a capture take on disk."""
    files = (folder / table_file(name) for name in _SCHEMAS)
    return sum(os.lstat(file).st_size for file in files if file.exists())


def _in_schema(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The same columns in the schema's order and types; one that it does not know is an error."""
    return table.select(sorted(table.column_names, key=schema.names.index)).cast(schema)


def _with_columns(name: str, columns: Sequence[str]) -> pa.Schema:
    """A table's schema, with those of its optional columns that are named."""
    optional = [item for item in OPTIONAL_COLUMNS.get(name, ()) if item.name in columns]
    return pa.schema([*_SCHEMAS[name], *optional])
