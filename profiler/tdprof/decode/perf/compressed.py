"""The compressed records of perf.data."""

from __future__ import annotations

from collections.abc import Iterator

import zstandard

from tdprof.decode.perf.columns import Batch, RecordStream
from tdprof.decode.perf.files import FileLosses

# zstd may blow up input by 2^15; slices of this size keep what one step can yield at some tens of MB.
_SLICE_BYTES = 1 << 10
# What all compressed records may become: so many times their size, and something for small files. What they are made
# into counts by the memory or the time that it takes, and their bytes, which are passed over, little: samples of a
# program that stands still are alike, and with a copy of the stack in each they shrink to a thousandth.
_MOST_TO_COMPRESSED, _SPARE_BYTES = 48, 16 << 20
_BYTES_PASSED_OVER = 64  # count as one
_RECORD_BYTES, _COPY_BYTES, _SIDE_BAND_ROW_BYTES, _CHAIN_WORD_BYTES, _READ_BYTES, _BRANCH_BYTES = (
    32,
    256,
    224,
    32,
    24,
    8,
)
_TOOL_RECORD_BYTES = 64 << 10  # each is met in the interpreter, and however small a payload, it may become 48 KiB


class Inflater:
    """Compressed records. All of a file's payloads are one zstd stream, and a record may span two of them.

    Args:
        stream: where records go.
        losses: where what does not decompress is counted.
        batch_bytes: of records, after which `feed` pauses.
    """

    def __init__(self, stream: RecordStream, losses: FileLosses, batch_bytes: int) -> None:
        self._stream = stream
        self._losses = losses
        self._batch_bytes = batch_bytes
        self._zstd = zstandard.ZstdDecompressor().decompressobj()
        self._failed = False
        self._rest = b""
        self._fed_bytes = 0
        self._may_become = _SPARE_BYTES
        self._malformed_bytes = self._records = self._chain_words = 0

    def feed(self, payload: memoryview) -> Iterator[None]:
        """Decode a payload; pauses whenever a batch's worth of records came out of it."""
        if (self._failed or self._zstd.eof) and payload[:4] == zstandard.FRAME_HEADER:
            self._zstd, self._failed = zstandard.ZstdDecompressor().decompressobj(), False
        for at in range(0, len(payload), _SLICE_BYTES):
            try:
                if self._failed:
                    raise zstandard.ZstdError("the stream broke before")
                if self._may_become < 0:
                    raise zstandard.ZstdError("too large")
                records = self._zstd.decompress(payload[at : at + _SLICE_BYTES])
                self._may_become += _MOST_TO_COMPRESSED * _SLICE_BYTES - len(records) // _BYTES_PASSED_OVER
                self._decode(records)
            except zstandard.ZstdError:
                self._failed = True
                self._losses.compressed_bytes += len(payload) - at
                break
            if self._fed_bytes >= self._batch_bytes:
                self._fed_bytes = 0
                yield

    def keep(self, batch: Batch) -> None:
        """What came out is kept, and the distinct call chains so far."""
        losses, chain_words = self._stream.losses, len(self._stream.chains().frames)
        records = sum(losses.by_type.values())
        self._may_become -= (
            losses.malformed_bytes
            - self._malformed_bytes
            + (records - self._records) * _RECORD_BYTES
            + len(batch.copies) * _COPY_BYTES
            + len(batch.side_band) * _SIDE_BAND_ROW_BYTES
            + len(batch.reads) * _READ_BYTES
            + len(batch.branches) * _BRANCH_BYTES
            + (chain_words - self._chain_words) * _CHAIN_WORD_BYTES
        )
        self._malformed_bytes, self._records, self._chain_words = losses.malformed_bytes, records, chain_words

    def finish(self) -> None:
        """No payload follows: decode what is left and count what cannot be."""
        self._decode(b"", final=True)
        self._losses.unreadable_bytes += len(self._rest)
        self._rest = b""

    def _decode(self, data: bytes, *, final: bool = False) -> None:
        records = memoryview(self._rest + data)
        at = self._stream.feed(records, final=final)
        while self._stream.tool_record and len(records) - at >= 8 and self._may_become >= 0:  # none is expected within
            self._may_become -= _TOOL_RECORD_BYTES
            self._stream.skip(8)
            at += 8
            at += self._stream.feed(records[at:], final=final)
        self._fed_bytes += at
        self._rest = bytes(records[at:])
