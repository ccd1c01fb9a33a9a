"""Kernel ring buffers, drained straight from the shared pages into a file."""

import errno
import mmap
import os
from collections.abc import Callable
from typing import Self

from tdprof.values import dataclass

PAGE_BYTES = mmap.PAGESIZE
# struct perf_event_mmap_page: data_head and data_tail, as indices of 64-bit words.
_DATA_HEAD, _DATA_TAIL = 1024 // 8, 1032 // 8
# What the smallest record takes beside one of what was lost before it: where there is less, nothing more is told.
_LEAST_ROOM_BYTES = 128
_AUX_HEAD, _AUX_TAIL, _AUX_OFFSET, _AUX_SIZE = 1056 // 8, 1064 // 8, 1072 // 8, 1080 // 8


# kernel/bpf/ringbuf.c: a record begins with its length and two flag bits, and its offset in pages.
RECORD_HEADER_BYTES = 8
RECORD_IS_BUSY = 1 << 31


def between(data: memoryview, start: int, end: int) -> bytes:
    """What stands between two positions of a ring, in one piece where it wraps, too."""
    first, size = start % len(data), end - start
    return bytes(data[first : first + size]) + bytes(data[: max(0, first + size - len(data))])


def write_all(out_fd: int, data: memoryview) -> None:
    """Write all of it."""
    while data:
        data = data[os.write(out_fd, data) :]


def write_ring(out_fd: int, data: memoryview, start: int, size: int) -> None:
    """Write ``size`` bytes of a power-of-two ring from position ``start``, in two parts where it wraps."""
    offset = start % len(data)
    first = min(size, len(data) - offset)
    parts = [data[offset : offset + first], data[: size - first]]
    while parts:
        written = os.writev(out_fd, parts)
        while parts and written >= len(parts[0]):
            written -= len(parts.pop(0))
        if parts:
            parts[0] = parts[0][written:]


Write = Callable[[int, memoryview, int, int], None]  # as `write_ring`


@dataclass(frozen=True, slots=True)
class RingPart:
    """What a ring holds between two positions, which only grow.

    Attributes:
        data: all of the ring.
        start, end: before and behind whole records.
    """

    data: memoryview
    start: int
    end: int

    def copy(self) -> bytes:
        """All of it, in one piece."""
        return between(self.data, self.start, self.end)


class PerfRing:
    """A perf event's ring buffer of records. Owns its mapping, not the event.

    Args:
        fd: the event.
        data_bytes: wanted size, a power of two of pages; halved until the locked-memory limit admits it.

    Raises:
        OSError: not even one page could be mapped.
    """

    def __init__(self, fd: int, data_bytes: int) -> None:
        self.fd = fd
        while True:
            try:
                self._map = mmap.mmap(fd, PAGE_BYTES + data_bytes)
                break
            except (PermissionError, OSError) as error:
                if error.errno not in (errno.EPERM, errno.ENOMEM) or data_bytes <= PAGE_BYTES:
                    raise
                data_bytes //= 2
        self.data_bytes = data_bytes
        self._view = memoryview(self._map)
        self._words = self._view[:PAGE_BYTES].cast("Q")
        self._data = self._view[PAGE_BYTES:]
        self._looked = 0
        self._full_at = -1

    def look(self, copy: Callable[[RingPart], bytes] = RingPart.copy) -> bytes:
        """The records that came since the last look, or what ``copy`` takes of them; they stay in the ring."""
        part = RingPart(self._data, self._looked, self._words[_DATA_HEAD])
        self._looked = part.end
        return copy(part)

    def not_drained(self) -> RingPart:
        """All that there is."""
        return RingPart(self._data, self._words[_DATA_TAIL], self._words[_DATA_HEAD])

    @property
    def pending_bytes(self) -> int:
        """How much that is."""
        return int(self._words[_DATA_HEAD] - self._words[_DATA_TAIL])

    def looked_at(self) -> RingPart:
        """What was looked at and not drained: no record leaves the ring unseen."""
        return RingPart(self._data, self._words[_DATA_TAIL], self._looked)

    def drop(self, part: RingPart) -> None:
        """Give the kernel the room of what was looked at."""
        self._let_go(part.end)

    def _let_go(self, end: int) -> None:
        tail = self._words[_DATA_TAIL]
        self._words[_DATA_TAIL] = end
        head = self._words[_DATA_HEAD]  # read last: what has come by now has told of losses before it
        if self.data_bytes - _LEAST_ROOM_BYTES < head - tail <= self.data_bytes:
            self._full_at = head

    @property
    def may_hide_loss(self) -> bool:
        """Whether it was full, and no record came since, with which the kernel would have told of a loss."""
        return bool(self._words[_DATA_HEAD] == self._full_at)

    def drain(self, out_fd: int) -> int:
        """Append the records that were looked at to a file; returns the number of bytes.

        ``os.writev`` gives up the interpreter lock before the system call; the lock's atomic operations keep the
        kernel's reads of the data behind our read of the head.
        """
        head, tail = self._looked, self._words[_DATA_TAIL]
        size = head - tail
        if size == 0:
            return 0
        write_ring(out_fd, self._data, tail, size)
        self._let_go(head)
        return size

    def close(self) -> None:
        """Unmap; the event stays open."""
        self._words.release()
        self._data.release()
        self._view.release()
        self._map.close()


class AuxRing(PerfRing):
    """A ring of records together with the AUX area that its event's hardware writes into.

    Args:
        fd: the event, not yet enabled.
        data_bytes, aux_bytes: wanted sizes; each is halved until the locked-memory limit admits it.

    Raises:
        OSError: one of them could not be mapped at all.
    """

    def __init__(self, fd: int, data_bytes: int, aux_bytes: int) -> None:
        super().__init__(fd, data_bytes)
        offset = PAGE_BYTES + self.data_bytes
        while True:
            self._words[_AUX_OFFSET], self._words[_AUX_SIZE] = offset, aux_bytes
            try:
                self._aux_map = mmap.mmap(fd, aux_bytes, offset=offset)
                break
            except OSError as error:
                if error.errno not in (errno.EPERM, errno.ENOMEM) or aux_bytes <= 2 * PAGE_BYTES:
                    super().close()
                    raise
                aux_bytes //= 2
        self.aux_bytes = aux_bytes
        self._aux = memoryview(self._aux_map)
        self._aux_looked = 0

    def look(self, copy: Callable[[RingPart], bytes] = RingPart.copy) -> bytes:
        """The same; takes notice of the AUX bytes afterwards: the kernel announces them only once they are there."""
        records = super().look(copy)
        self._aux_looked = self._words[_AUX_HEAD]
        return records

    @property
    def pending_bytes(self) -> int:
        """How much there is of records, and in the AUX area."""
        return super().pending_bytes + int(self._words[_AUX_HEAD] - self._words[_AUX_TAIL])

    def drain_aux(self, out_fd: int, write: Write = write_ring) -> int:
        """Append the AUX bytes up to the last look to a file; returns how many.

        Its offsets are thus those of the AUX records, whatever ``write`` makes of the bytes.
        """
        head, tail = self._aux_looked, self._words[_AUX_TAIL]
        if head != tail:
            write(out_fd, self._aux, tail, head - tail)
            self._words[_AUX_TAIL] = head
        return head - tail

    def close(self) -> None:
        """Unmap both; the event stays open."""
        self._aux.release()
        self._aux_map.close()
        super().close()


class BpfRing:
    """A BPF ring buffer map that carries new call stacks."""

    def __init__(self, map_fd: int, data_bytes: int) -> None:
        self.data_bytes = data_bytes
        self._consumer_map = mmap.mmap(map_fd, PAGE_BYTES)
        # Once, though the kernel offers the data twice in a row: each page counts as this process's as often as it is
        # mapped.
        self._producer_map = mmap.mmap(map_fd, PAGE_BYTES + data_bytes, prot=mmap.PROT_READ, offset=PAGE_BYTES)
        self._consumer = memoryview(self._consumer_map).cast("Q")
        self._producer = memoryview(self._producer_map)[:PAGE_BYTES].cast("Q")
        self._data = memoryview(self._producer_map)[PAGE_BYTES:]

    @property
    def produced(self) -> int:
        """Bytes ever put in, committed or not."""
        return self._producer[0]

    @property
    def pending(self) -> int:
        """Bytes waiting to be drained."""
        return self._producer[0] - self._consumer[0]

    def drain(self, out_fd: int, up_to: int) -> None:
        """Append records to a file, headers included, up to a ``produced`` mark before which all are committed."""
        start = self._consumer[0]
        if up_to == start:
            return
        write_ring(out_fd, self._data, start, up_to - start)
        self._consumer[0] = up_to

    def take(self) -> bytes:
        """Remove what is there up to the first record that is still being written, headers included."""
        start = end = self._consumer[0]
        while end < self._producer[0]:
            at = end % self.data_bytes
            length = int.from_bytes(self._data[at : at + 4], "little")
            if length & RECORD_IS_BUSY:
                break
            end += RECORD_HEADER_BYTES + (length + 7) // 8 * 8
        found = between(self._data, start, end)
        self._consumer[0] = end
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._consumer.release()
        self._producer.release()
        self._data.release()
        self._consumer_map.close()
        self._producer_map.close()
