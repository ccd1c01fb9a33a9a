"""Bytes to batches of records: the compiled decoder, or the Python one where it was not built."""

import ctypes
from collections.abc import Iterator

import numpy as np

from arm_spe.columns import MIN_OTHER_CAPACITY, OTHER_COLUMNS, RECORD_COLUMNS, RecordBatch, allocate_columns
from arm_spe.counts import DecodeCounts
from arm_spe.native import Buffer, Columns, Decoder, load_native
from arm_spe.reference import decode_reference

BATCH_RECORDS = 65536


class RecordDecoder:
    """Decodes one span of AUX bytes batch by batch; ``counts`` grows as it goes.

    A span is bytes that the hardware wrote without a loss in between: an unfinished record at its end is dropped and
    counted, never joined to the next span. The bytes may be a mapped file of any size; memory is one batch.

    Args:
        data: the bytes.
        batch_records: rows of a batch at most.
        reuse: let every batch use the same memory: faster, but a batch is valid only until the next.
    """

    def __init__(self, data: Buffer, *, batch_records: int = BATCH_RECORDS, reuse: bool = False) -> None:
        self._data = np.frombuffer(data, np.uint8)
        self._batch_records = batch_records
        self._reuse = reuse
        self.counts = DecodeCounts()

    def __iter__(self) -> Iterator[RecordBatch]:
        library = load_native()
        if library is None:
            batch, self.counts = decode_reference(self._data.tobytes())
            yield batch
            return
        data, size = self._data, len(self._data)
        decoder, others = Decoder(), ctypes.c_uint64()
        arrays = allocate_columns(0, 0)
        while decoder.position < size:
            if not self._reuse or not len(arrays["pc"]):
                # No record is shorter than two bytes a packet, so a short input needs no full batch.
                rows = min(self._batch_records, (size - decoder.position) // 2 + 1)
                arrays = allocate_columns(rows, MIN_OTHER_CAPACITY + rows // 8)
            rows = library.spe_decode(
                data.ctypes.data, size, ctypes.byref(decoder), ctypes.byref(Columns.over(arrays)), ctypes.byref(others)
            )
            self.counts = decoder.counts()
            if rows:
                filled = {column.name: arrays[column.name][:rows] for column in RECORD_COLUMNS}
                filled.update({column.name: arrays[column.name][: others.value] for column in OTHER_COLUMNS})
                yield RecordBatch(filled)
