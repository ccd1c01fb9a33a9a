"""Programs held from the moment they are mapped, since no path may lead to them when the recording has ended: the
sandbox and its mounts are gone, or the program has deleted itself."""

import contextlib
import errno
import os
import re
import struct
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Any, NamedTuple, Self

from tdprof.linux.file_bytes import FileBytes, reopen_regular
from tdprof.recorder.identity import HeldProcess, Identity, call_as
from tdprof.recorder.patience import Patience
from tdprof.recorder.shares import Shares
from tdprof.text import plural
from tdprof.values import dataclass

# Each holds a descriptor, and keeps a file system from being unmounted while the recording runs.
# `Shares` leaves a user half of root's; others have only their own, and fewer descriptors.
_MOST_HELD = 512 if os.geteuid() else 1024
_MOST_LEFT_OUT = 4096  # told apart, of those that are not held
# Of a program that is run thousands of times, some run is long enough, or none matters.
_MOST_TRIES = 16
_MOST_TRIED = 8 * _MOST_HELD
# What nobody has mapped for so many segments is let go of: the processes that make their tables have it by then.
_KEPT_SEGMENTS = 3
_MOST_REFUSED = 4096  # processes of users who have their share
# struct perf_event_header of PERF_RECORD_MMAP2: type 10; misc PERF_RECORD_MISC_USER and, from Linux 5.12 on and where
# the file has one, PERF_RECORD_MISC_MMAP_BUILD_ID. Searched for rather than walked to: rings hold samples, too. What
# only looks like a record leads to no file.
_HEADER = re.compile(rb"\x0a\0\0\0\x02([\0\x40])", re.DOTALL)
# After the header: pid, tid, addr, len, pgoff; what tells the file; prot, flags; then the path.
_RECORD = struct.Struct("<HIIQQQ24sII")
# What tells the file: size of the build-id, reserved, build-id; or device and inode, of which 0 is no file.
_BUILD_ID, _INODE = struct.Struct("<B3x20s"), struct.Struct("<8xQ8x")
_PROT_EXEC = 4
# PERF_RECORD_FORK: type 7, misc 0; then size, pid, parent's pid, tid, parent's tid, time.
_FORK_HEADER = re.compile(rb"\x07\0\0\0\0\0", re.DOTALL)
_FORK = struct.Struct("<HIIIIQ")


class _Start(NamedTuple):
    time_ns: int
    pid: int
    parent: int


@dataclass(frozen=True, slots=True)
class _Held:
    fd: int  # O_PATH: opened for reading only when it is wanted, with the identity of who mapped it
    identity: Identity


class HeldPrograms:
    """What was mapped, by build-id. Use as a context manager.

    Args:
        followed: processes of which, with all they start, the recording is; empty: of all that its records speak of.

    Attributes:
        not_held_before: how many programs that were mapped in the segment before this one were not held, at most.
    """

    def __init__(self, followed: Iterable[int] = ()) -> None:
        self._followed = set(followed)
        self._strangers: list[_Start] = []  # processes of the last look whose parent is not followed
        self._held: dict[str, _Held] = {}
        self._segment = 0
        self._mapped_in: dict[str, int] = {}  # the last segment in which each that is held was known to be mapped
        self._shares = Shares(_MOST_HELD)
        self._refused: set[int] = set()
        self._tries: Counter[str] = Counter()  # that failed: whoever mapped it was gone, or may not read it
        self._left_out: set[str] = set()
        self.not_held_before = 0
        self._may_be_gone = False  # some that was left out in earlier segments
        self._patience = Patience()

    def look(self, rings: Sequence[bytes]) -> None:
        """Hold what perf records say was mapped, as far as it still is; of each ring those since the last look."""
        records = b"".join(rings)
        if self._followed:
            self._follow_children(_started_processes(records))
        for pid, address, length, build_id, _ in mapped_files(records):
            if not build_id or not self.follows(pid):
                continue
            if self._tries[build_id] < _MOST_TRIES:
                is_held = self._hold(pid, address, length, build_id)
                if not is_held and len(self._tries) < _MOST_TRIED:
                    self._tries[build_id] += 1

    def follow(self, pid: int) -> None:
        """The recording is of one more process, where it is not of all."""
        if self._followed:
            self._followed.add(pid)

    def _follow_children(self, started: list[_Start]) -> None:
        # One ring is looked at before another: what started a process may be seen after it.
        for each in sorted([*self._strangers, *started]):
            if each.parent in self._followed:
                self._followed.add(each.pid)
        self._strangers = [each for each in started if each.pid not in self._followed]

    def hold_mapped_before(self, pid: int, address: int, length: int, build_id: str) -> None:
        """Hold what was mapped before the recording, and is not what its path leads to; called by another thread."""
        self._hold(pid, address, length, build_id)

    def _hold(self, pid: int, address: int, length: int, build_id: str) -> bool:
        """Hold a mapped file; False: whoever mapped it is gone, or may not read it."""
        if build_id in self._held:
            self._mapped_in[build_id] = self._segment
            return True
        if pid in self._refused or not self._shares.left_for(0):
            return self._leave_out(build_id)
        held = self._reach(pid, address, length)
        if held and not self._shares.left_for(held.identity.uid):
            os.close(held.fd)
            if len(self._refused) < _MOST_REFUSED:
                self._refused.add(pid)
            return self._leave_out(build_id)
        if held:
            self._mapped_in[build_id] = self._segment
        if held and self._held.setdefault(build_id, held) is not held:
            os.close(held.fd)  # another thread was faster
        elif held:
            self._shares.take(held.identity.uid)
        return held is not None

    def begin_segment(self, mapped: Collection[str] | None) -> None:
        """Have room again for what will be mapped: let go of what has been mapped by nobody for some segments.

        Args:
            mapped: the build-ids of all that is mapped now; None: not all is known.
        """
        self._segment += 1
        self.not_held_before = self._not_held()
        for counted in (self._tries, self._refused):
            counted.clear()
        if mapped is not None:
            self._left_out.intersection_update(mapped)
        self._may_be_gone = mapped is None and bool(self._left_out)
        known = list(self._held)  # at once: a thread that looks at what was mapped before may still add
        self._mapped_in.update((each, self._segment) for each in known if mapped is None or each in mapped)
        for build_id in known:
            if self._mapped_in[build_id] < self._segment - _KEPT_SEGMENTS:
                del self._mapped_in[build_id]
                held = self._held.pop(build_id)
                os.close(held.fd)
                self._shares.give_back(held.identity.uid)

    def _leave_out(self, build_id: str) -> bool:
        if len(self._left_out) < _MOST_LEFT_OUT:
            self._left_out.add(build_id)
        return True

    def _reach(self, pid: int, address: int, length: int) -> _Held | None:
        def hold() -> _Held:
            with HeldProcess(pid) as process:
                return _Held(process.hold_mapped(address, length), process.identity)

        with contextlib.suppress(OSError):
            return self._patience.ask(pid, hold, lambda held: os.close(held.fd))
        return None

    def follows(self, pid: int) -> bool:
        """Whether the recording is of this process."""
        return not self._followed or pid in self._followed

    def _not_held(self) -> int:
        left_out = self._left_out.copy()  # at once: the thread that looks at what was mapped before may still add
        return sum(build_id not in self._held for build_id in left_out)

    def notes(self) -> list[str]:
        """What a user should know of it, for each segment."""
        if not (count := self._not_held()):
            return []
        may_be_more = len(self._left_out) == _MOST_LEFT_OUT
        bound = "at least " if may_be_more else ""
        if self._may_be_gone:
            bound = "about " if may_be_more else "at most "
        return [f"{bound}{plural(count, 'program', 's')} not held while running: what was deleted since has no names"]

    def __contains__(self, build_id: str) -> bool:
        return build_id in self._held

    def open(self, build_id: str) -> FileBytes:
        """The program, with the rights of the process that mapped it.

        Raises:
            OSError: it is not held, or the process could not read it.
        """
        held = self._held.get(build_id)
        if held is None:
            raise FileNotFoundError(errno.ENOENT, "it is not held")
        return call_as(held.identity, lambda: FileBytes(reopen_regular(held.fd)))

    def handed_over(self) -> tuple[list[int], list[dict[str, Any]]]:
        """The descriptors of all, and for ``taken_over`` in another process what they are, in the same order."""
        kept = self._held.copy()  # at once: the thread that looks at what was mapped before may still add
        told = [{"build_id": build_id, "identity": asdict(held.identity)} for build_id, held in kept.items()]
        return [held.fd for held in kept.values()], told

    @classmethod
    def taken_over(cls, told: Iterable[dict[str, Any]], descriptors: Iterable[int]) -> Self:
        """What another process handed over; the descriptors are now this one's."""
        found = cls()
        for each, fd in zip(told, descriptors, strict=True):
            identity = Identity(**{**each["identity"], "groups": tuple(each["identity"]["groups"])})
            found._held[each["build_id"]] = _Held(fd, identity)
        return found

    def user_of(self, build_id: str) -> int:
        """Whose process mapped a program that is held."""
        return self._held[build_id].identity.uid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        for held in self._held.values():
            os.close(held.fd)
        self._held.clear()


def mapped_files(records: bytes) -> Iterator[tuple[int, int, int, str, bytes]]:
    """(pid, address, length, build-id, what tells the file) of the executable mappings of files among perf records.

    The build-id is empty where the kernel does not say it: before Linux 5.12, and of files without one.
    """
    for found in _HEADER.finditer(records):
        if found.end() + _RECORD.size < len(records):
            _, pid, _, address, length, _, file, prot, _ = _RECORD.unpack_from(records, found.end())
            if not prot & _PROT_EXEC or records[found.end() + _RECORD.size] != ord("/"):
                continue
            size, build_id = _BUILD_ID.unpack(file)
            if found[1] == b"\0":
                if _INODE.unpack(file) != (0,):
                    yield pid, address, length, "", file
            elif 0 < size <= len(build_id):
                yield pid, address, length, build_id[:size].hex(), file


def _started_processes(records: bytes) -> list[_Start]:
    found = []
    for at in _FORK_HEADER.finditer(records):
        if at.end() + _FORK.size < len(records):
            _, pid, parent, _, _, time_ns = _FORK.unpack_from(records, at.end())
            if pid != parent:
                found.append(_Start(time_ns, pid, parent))
    return found
