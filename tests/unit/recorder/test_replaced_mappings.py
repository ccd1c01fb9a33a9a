"""Records of mappings, of which one takes another's place."""

import mmap
import os
import struct
from pathlib import Path

from tdprof.recorder.mapping_watch import MappingWatch
from tdprof.recorder.replaced_mappings import Place, ReplacedMappings
from tdprof.recorder.ring import PerfRing


def mapping(pid: int, address: int, length: int, build_id: bytes) -> bytes:
    """PERF_RECORD_MMAP2 of executable memory, with a build-id (linux/perf_event.h)."""
    body = struct.pack("<IIQQQ", pid, pid, address, length, 0)
    body += struct.pack("<B3x20sII", len(build_id), build_id, 5, 2) + b"/lib/some.so\0\0\0\0"
    return struct.pack("<IHH", 10, 2 | 1 << 14, 8 + len(body)) + body


ONE, OTHER = b"\1" * 20, b"\2" * 20


def found_in(mapped: ReplacedMappings, records: bytes) -> dict[Place, int]:
    mapped.look(records)
    return mapped.take()


def test_what_covers_another_file_of_the_same_process_is_noticed() -> None:
    mapped = ReplacedMappings()
    assert found_in(mapped, mapping(7, 0x1000, 0x1000, ONE) + mapping(8, 0x1000, 0x1000, OTHER)) == {}
    assert found_in(mapped, mapping(7, 0x2000, 0x1000, OTHER) + mapping(7, 0x1000, 0x1000, ONE)) == {}
    assert found_in(mapped, mapping(7, 0x1800, 0x100, OTHER)) == {Place(7, 0x1800, 0x1900): 1}
    # It is known where it is now.
    assert found_in(mapped, mapping(7, 0x1800, 0x100, OTHER)) == {}
    both = mapping(7, 0x1000, 0x2000, ONE) + mapping(8, 0x1FFF, 1, ONE)
    assert found_in(mapped, both) == {Place(7, 0x1000, 0x3000): 1, Place(8, 0x1FFF, 0x2000): 1}


def test_how_often_a_file_took_anothers_place_is_told() -> None:
    """One that came and went leaves all as it was; two libraries of which each takes one's place are no such thing."""
    mapped = ReplacedMappings()
    mapped.look(mapping(7, 0x1000, 0x1000, ONE) + mapping(7, 0x9000, 0x1000, ONE))
    there, elsewhere = Place(7, 0x1000, 0x2000), Place(7, 0x9000, 0xA000)
    both = mapping(7, 0x1000, 0x1000, OTHER) + mapping(7, 0x9000, 0x1000, OTHER)
    assert found_in(mapped, both) == {there: 1, elsewhere: 1}
    mapped.look(mapping(7, 0x1000, 0x1000, ONE))
    assert found_in(mapped, mapping(7, 0x1000, 0x1000, OTHER)) == {there: 2}
    parts = mapping(7, 0x1000, 0x800, ONE) + mapping(7, 0x1400, 0x100, OTHER)
    assert found_in(mapped, parts) == {Place(7, 0x1000, 0x1800): 1, Place(7, 0x1400, 0x1500): 2}


def test_a_process_that_has_ended_is_forgotten() -> None:
    mapped = ReplacedMappings()
    mapped.look(mapping(7, 0x1000, 0x1000, ONE) + mapping(8, 0x1000, 0x1000, ONE))
    mapped.forget_all_but({8, 9})
    both = mapping(7, 0x1000, 0x1000, OTHER) + mapping(8, 0x1000, 0x1000, OTHER)
    assert found_in(mapped, both) == {Place(8, 0x1000, 0x2000): 1}


def mapping_of_inode(pid: int, address: int, inode: int, path: bytes = b"/lib/some.so") -> bytes:
    """The same as kernels before Linux 5.12 write it: device, inode and its generation instead of a build-id."""
    body = struct.pack("<IIQQQIIQQII", pid, pid, address, 0x1000, 0, 8, 1, inode, 1, 5, 2) + path + b"\0\0\0\0"
    return struct.pack("<IHH", 10, 2, 8 + len(body)) + body


def test_files_without_build_ids_are_told_by_their_inodes() -> None:
    mapped = ReplacedMappings()
    assert found_in(mapped, mapping_of_inode(7, 0x1000, 12)) == {}
    assert found_in(mapped, mapping_of_inode(7, 0x1000, 12)) == {}
    assert found_in(mapped, mapping_of_inode(7, 0x1000, 0, b"//anon")) == {}
    assert found_in(mapped, mapping_of_inode(7, 0x1000, 13)) == {Place(7, 0x1000, 0x2000): 1}
    assert found_in(mapped, mapping(7, 0x1000, 0x1000, ONE)) == {Place(7, 0x1000, 0x2000): 1}


class KernelSide:
    """A file that stands for an event's ring: struct perf_event_mmap_page, then the data."""

    def __init__(self) -> None:
        self.fd = os.memfd_create("ring")
        os.truncate(self.fd, 2 * mmap.PAGESIZE)
        self.head = 0

    def put(self, records: bytes) -> None:
        os.pwrite(self.fd, records, mmap.PAGESIZE + self.head)
        self.head += len(records)
        os.pwrite(self.fd, struct.pack("<Q", self.head), 1024)  # data_head


def test_what_comes_between_a_look_and_the_drain_is_seen_before_it_leaves(tmp_path: Path) -> None:
    kernel, watch = KernelSide(), MappingWatch((), needs_replaced=True)
    ring, spool = PerfRing(kernel.fd, mmap.PAGESIZE), os.open(tmp_path / "ring", os.O_RDWR | os.O_CREAT)
    first, second = mapping(7, 0x1000, 0x1000, ONE), mapping(7, 0x1000, 0x1000, OTHER)
    kernel.put(first)
    watch.see([ring.look()])
    kernel.put(second)
    assert ring.drain(spool) == len(first)
    assert watch.take_replaced() == {}
    watch.see([ring.look()])
    assert ring.drain(spool) == len(second)
    assert watch.has_replaced
    assert watch.take_replaced() == {Place(7, 0x1000, 0x2000): 1}
    assert watch.take_replaced() == {}
    assert os.pread(spool, 4096, 0) == first + second
    ring.close()
    os.close(spool)
    os.close(kernel.fd)


def test_a_ring_may_wrap_between_looks() -> None:
    kernel = KernelSide()
    ring = PerfRing(kernel.fd, mmap.PAGESIZE)
    kernel.head = mmap.PAGESIZE - 8
    os.pwrite(kernel.fd, struct.pack("<Q", kernel.head), 1024)
    ring.look()
    ring.drop(ring.looked_at())
    os.pwrite(kernel.fd, b"12345678", mmap.PAGESIZE + kernel.head)
    os.pwrite(kernel.fd, b"abcd", mmap.PAGESIZE)
    os.pwrite(kernel.fd, struct.pack("<Q", kernel.head + 12), 1024)
    assert ring.look() == ring.looked_at().copy() == ring.not_drained().copy() == b"12345678abcd"
    ring.drop(ring.looked_at())
    assert ring.looked_at().copy() == b""
    ring.close()
    os.close(kernel.fd)
