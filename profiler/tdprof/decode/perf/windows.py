"""Windows of a file's records decoded by several threads, into what one would have made of them."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np

from tdprof.decode.perf.chains import grown
from tdprof.decode.perf.columns import NO_CHAIN, Batch, Chains, RecordLosses, take_batch
from tdprof.decode.perf.records import CompiledRecordDecoder
from tdprof.model.arrays import I32
from tdprof.values import dataclass

_MOST_CHAIN_WORDS = 4 << 20  # of one thread, 32 MB: all of them are in the common table, too


@dataclass(frozen=True, slots=True)
class Window:
    """Whole records, in which the one before left no damage; none of the perf tool's among them says anything.

    Attributes:
        start, end: where in the file's record data.
    """

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Decoded:
    """What one thread made of a window.

    Attributes:
        batch: with its own numbers of chains.
        chains: those that are new to it, from number ``first_chain`` on.
    """

    batch: Batch
    first_chain: int
    chains: Chains
    losses: RecordLosses


class _Worker:
    """One thread's decoder, and what the common one calls its chains.

    Args:
        stream: the decoder.
        order: of bytes, for `struct`.
    """

    def __init__(self, stream: CompiledRecordDecoder, order: str) -> None:
        self._stream = stream
        self._size = struct.Struct(f"{order}H")
        self._chains = self._chain_words = 0  # in its table
        self._numbers: I32 = np.full(1 << 12, NO_CHAIN, np.int32)  # the last is what `NO_CHAIN` finds

    def decode(self, data: memoryview) -> _Decoded | None:
        """None: it is not as windows are."""
        stream, at = self._stream, 0
        if self._chain_words > _MOST_CHAIN_WORDS:
            stream.forget_chains()
            self._chains = self._chain_words = 0
        while at < len(data):
            used = stream.feed(data[at:])
            at += used
            if stream.tool_record:
                at += self._size.unpack_from(data, at + 6)[0]
            elif not used:
                return None
        losses = stream.take_losses()
        if losses.malformed or not stream.is_between_records:
            return None
        decoded = _Decoded(take_batch(stream, copy=False), self._chains, stream.chains(self._chains), losses)
        self._chains += len(decoded.chains)
        self._chain_words += len(decoded.chains.frames)
        return decoded

    def renumber(self, decoded: _Decoded, common: CompiledRecordDecoder) -> Batch:
        """The batch with the common numbers of its chains; windows are to come in their order in the file."""
        end = decoded.first_chain + len(decoded.chains)
        while end >= len(self._numbers):
            self._numbers = grown(self._numbers)
            self._numbers[-1] = NO_CHAIN
        self._numbers[decoded.first_chain : end] = common.add_chains(decoded.chains)
        common.add_losses(decoded.losses)
        samples = decoded.batch.samples
        for chain in (samples.user_chain, samples.kernel_chain):
            chain[:] = self._numbers[chain]
        return decoded.batch


class WindowsAhead:
    """Decodes windows before they are asked for; a context manager.

    Numbers of chains, and all else, are what ``common`` would have made of the same bytes: what is new to it in a
    window is new to the thread, too, and comes in the same order.

    Args:
        common: the decoder of everything else in the file.
        open_stream: makes others like it.
        order: of bytes, for `struct`.
        data: the file's record data.
        windows: of it, in order.
        threads: at most.
    """

    def __init__(
        self,
        common: CompiledRecordDecoder,
        open_stream: Callable[[], CompiledRecordDecoder],
        order: str,
        data: memoryview,
        windows: Iterable[Window],
        threads: int,
    ) -> None:
        self._common = common
        self._data = data
        self._windows: Iterator[Window] = iter(windows)
        self._coming: deque[tuple[Window, _Worker, Future[_Decoded | None]]] = deque()
        self._pool = ThreadPoolExecutor(threads)
        for _ in range(threads):
            self._submit(_Worker(open_stream(), order))

    def __enter__(self) -> WindowsAhead:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def take(self, start: int) -> tuple[int, Batch] | None:
        """Where the window ends that begins there, and its records, whose samples stay until the next is asked for.

        None: there is none, and the caller has to decode what stands there.
        """
        if not self._coming or self._coming[0][0].start != start or not self._common.is_between_records:
            return None
        window, worker, coming = self._coming.popleft()
        decoded = coming.result()
        if decoded is None:  # nor is what follows certain to begin where a window does
            self._coming.clear()
            self._windows = iter(())
            return None
        batch = worker.renumber(decoded, self._common)
        self._common.skip(window.end - window.start)
        self._submit(worker)
        return window.end, batch

    def _submit(self, worker: _Worker) -> None:
        """The thread's next window, into other memory than its last one."""
        window = next(self._windows, None)
        if window is not None:
            coming = self._pool.submit(worker.decode, self._data[window.start : window.end])
            self._coming.append((window, worker, coming))
