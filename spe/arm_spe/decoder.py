"""Bytes to batches of records: the compiled decoder, or the Python one where it was not built."""

import ctypes
from collections.abc import Iterator

import numpy as np

from arm_spe.columns import MIN_OTHER_CAPACITY, OTHER_COLUMNS, RECORD_COLUMNS, RecordBatch, allocate_columns
from arm_spe.counts import DecodeCounts
from arm_spe.native import Buffer, Columns, Decoder, load_native
from arm_spe.reference import decode_reference

BATCH_RECORDS = 65536


class ColumnMemory:
    """Columns that decoders use one after the other, so that not each asks the kernel for memory.

    Args:
        batch_records: rows.
    """

    def __init__(self, batch_records: int = BATCH_RECORDS) -> None:
        self.arrays = allocate_columns(batch_records, MIN_OTHER_CAPACITY + batch_records // 8)
        self.columns = Columns.over(self.arrays)

    def columns_for(self, size: int) -> Columns:
        """The columns with as many rows as ``size`` bytes may fill: the decoder clears all that it is given."""
        self.columns.capacity = min(len(self.arrays["pc"]), _most_records(size))
        return self.columns


def _most_records(size: int) -> int:
    """In so many bytes: a record has two packets of two bytes at least, or is cut."""
    return size // 2 + 1


class RecordDecoder:
    """Decodes one span of AUX bytes batch by batch; ``counts`` grows as it goes.

    A span is bytes that the hardware wrote without a loss in between: an unfinished record at its end is dropped and
    counted, never joined to the next span. The bytes may be a mapped file of any size; memory is one batch.

    Args:
        data: the bytes.
        batch_records: rows of a batch at most.
        memory: where every batch stands: faster than its own, but a batch is valid only until the next; decides the
            rows of a batch.
    """

    def __init__(self, data: Buffer, *, batch_records: int = BATCH_RECORDS, memory: ColumnMemory | None = None) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._batch_records = batch_records
        self._memory = memory
        self._decoder = Decoder()
        self._is_read = False  # by the Python decoder, which gives one batch
        self.counts = DecodeCounts()

    def __iter__(self) -> Iterator[RecordBatch]:
        while (batch := self.next_batch(self._memory)) is not None:
            yield batch

    def next_batch(self, memory: ColumnMemory | None = None) -> RecordBatch | None:
        """The records after those that were decoded so far; None at the end.

        Args:
            memory: where the batch stands, valid until the memory is used again; None: the batch's own.
        """
        library = load_native()
        if library is None:
            if self._is_read:
                return None
            self._is_read = True
            batch, self.counts = decode_reference(self._data.tobytes())
            return batch
        start, size = self._data.ctypes.data, len(self._data)
        decoder, others = self._decoder, ctypes.c_uint64()
        while decoder.position < size:
            memory = memory or ColumnMemory(min(self._batch_records, _most_records(size - decoder.position)))
            arrays, columns = memory.arrays, memory.columns_for(size - decoder.position)
            rows = library.spe_decode(start, size, ctypes.byref(decoder), ctypes.byref(columns), ctypes.byref(others))
            self.counts = decoder.counts()
            if rows:
                filled = {column.name: arrays[column.name][:rows] for column in RECORD_COLUMNS}
                filled.update({column.name: arrays[column.name][: others.value] for column in OTHER_COLUMNS})
                return RecordBatch(filled, memory.columns)
        return None
