"""A Parquet file of a store, which may have come from anywhere: read within bounds, and only as it was agreed."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tdprof.capture.table_checks import FOOTER_LIMITS, check_values, checked_columns, stated_bytes
from tdprof.errors import TdprofError
from tdprof.linux.memory_limit import memory_limit
from tdprof.text import first_words

# What a table may take in memory: its file times this, and something for small ones.
_TABLE_TO_FILE, _SPARE_BYTES = 24, 16 << 20


class StoredTable:
    """The file, opened.

    Args:
        file: pyarrow's, which stays open.
        path, hint: for what is raised.
        schema: of the columns that are wanted; texts as dictionaries are each held once.

    Raises:
        TdprofError: it cannot be read or is damaged.
    """

    def __init__(self, file: Any, path: str, hint: str, schema: pa.Schema) -> None:
        self._path, self._hint, self._schema = path, hint, schema
        with self._reading():
            self._most = _SPARE_BYTES + _TABLE_TO_FILE * file.size()
            metadata = pq.ParquetFile(file, **FOOTER_LIMITS).metadata
            if stated_bytes(metadata) > self._most:
                raise MemoryError
            once = {column.name for column in schema if pa.types.is_dictionary(column.type)}
            self._file = pq.ParquetFile(
                file,
                metadata=metadata,
                read_dictionary=once.intersection(metadata.schema.names),
                page_checksum_verification=True,
                **FOOTER_LIMITS,
            )

    def group_rows(self) -> list[int]:
        """The number of rows of each row group."""
        return [self._file.metadata.row_group(number).num_rows for number in range(self._file.num_row_groups)]

    def read(self) -> pa.Table:
        """All of it; raises as the class does."""
        return self._read(range(self._file.num_row_groups))

    def read_group(self, number: int) -> pa.Table:
        """One row group; raises as the class does."""
        return self._read([number])

    def _read(self, groups: range | list[int]) -> pa.Table:
        with self._reading():
            # What the file says of its sizes has been looked at; where it lies, the limit ends it.
            with memory_limit(2 * self._most):
                table = self._file.read_row_groups(groups, self._schema.names, use_threads=False)
                check_values(table)
            return checked_columns(table, self._schema).replace_schema_metadata(table.schema.metadata)

    @contextlib.contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except MemoryError as error:
            words = f"it would become more than {self._most >> 20} MiB"
            raise TdprofError(f"{self._path} is not read: {words}", hint=self._hint) from error
        except (OSError, ValueError) as error:  # Arrow's exceptions are among them
            raise TdprofError(f"cannot read {self._path}: {first_words(error)}", hint=self._hint) from error
