"""Doing something as another process would: with its user, its groups and none of our privileges.

What a process names (a perf map, a dump of its code, its program) may have been put there to make us read what the
process may not: a mount of /etc/shadow in a user namespace of its own is enough. So its files are opened by a thread
that is no more than the process is. Linux keeps credentials for each thread; the thread gives up its capabilities,
which it cannot take back, and ends.
"""

import contextlib
import ctypes
import errno
import os
import pwd
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self, TypeVar

from tdprof.linux.clocks import ahead_ns
from tdprof.linux.readable import is_readable
from tdprof.recorder.executable_maps import reach_program, read_executable_lines
from tdprof.recorder.patience import Call
from tdprof.values import dataclass

_T = TypeVar("_T")
# glibc's setgroups() changes every thread of the process; the system call only its own.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(os.uname().machine)
_CAPABILITY_VERSION_3 = 0x20080522
_ALL_IDS = "0 0 4294967295"  # uid_map of the first user namespace
_READS_ALL = 1 << 1 | 1 << 2  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH (linux/capability.h)
_NOBODY = 65534  # also the kernel's number for users that have none here (overflowuid)
_PATIENCE_S = 5.0  # a file may lie in a file system whose server never answers


class CannotBecomeError(PermissionError):
    """This process may not act as another user; nothing was opened."""


@dataclass(frozen=True, slots=True)
class Identity:
    """What decides on access to files: as this process's user namespace numbers users and groups.

    Attributes:
        uid, gid, groups: as they count for files; groups in ascending order.
        reads_all: a process of root's in this user namespace, whose capabilities let it read every file.
    """

    uid: int
    gid: int
    groups: tuple[int, ...]
    reads_all: bool = False

    @classmethod
    def of_user(cls, uid: int) -> Self:
        """A user's who need not be logged in; one without an entry in /etc/passwd may what everybody may."""
        try:
            user = pwd.getpwuid(uid)
        except KeyError:
            return cls(uid, _NOBODY, ())
        return cls(uid, user.pw_gid, tuple(sorted(os.getgrouplist(user.pw_name, user.pw_gid))))

    @classmethod
    def nobody(cls) -> Self:
        """Who owns nothing, and may what everybody may."""
        return cls(_NOBODY, _NOBODY, ())

    @classmethod
    def own(cls) -> Self:
        """This process's."""
        return cls(os.geteuid(), os.getegid(), tuple(sorted(os.getgroups())), reads_all=os.geteuid() == 0)


class HeldProcess:
    """A running process, its identity and the root of its file system. Use as a context manager.

    Args:
        pid: of the process.

    Raises:
        OSError: it has ended, became another user's, or we may not look at it; or its user has no number here.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        with contextlib.ExitStack() as stack:
            try:
                self._handle = os.pidfd_open(pid)
            except OverflowError as error:  # a file said so
                raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH)) from error
            stack.callback(os.close, self._handle)
            try:
                self.identity, self.inner_pid = self._found = _identity(pid)
                self.started_ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
                self.root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
                stack.callback(os.close, self.root)
                self.confirm()
            except (KeyError, ValueError, IndexError) as error:
                raise OSError(errno.EINVAL, "unknown layout of /proc") from error
            self._stack = stack.pop_all()

    def hold_mapped(self, start: int, length: int) -> int:
        """A descriptor (O_PATH) of the very file that it mapped there, also if that was deleted since.

        Raises:
            OSError: nothing is mapped just there any more, or only root may know what; or it is not who it was.
        """
        try:
            fd = os.open(f"/proc/{self.pid}/map_files/{start:x}-{start + length:x}", os.O_PATH | os.O_CLOEXEC)
        except PermissionError:  # only the privileged may follow that link
            inodes = [line.key.inode for line in read_executable_lines(self.pid) if line.start == start]
            fd = reach_program(self.pid, "".join(inodes))
        try:
            self.confirm()
        except OSError:
            os.close(fd)
            raise
        return fd

    def confirm(self) -> None:
        """See that what was found by its number meanwhile is its own, of the time when it had this identity.

        A program that gives up root, as newgrp does, must not have root's rights below a root, or to a mapping, that
        its user chose afterwards.

        Raises:
            OSError: it has ended, or is somebody else.
        """
        if _identity(self.pid) != self._found:
            raise PermissionError(errno.EPERM, "the process became another user's")
        if is_readable(self._handle):  # its number may be another's by now
            raise ProcessLookupError(errno.ESRCH, "the process has ended")

    def started_ns(self) -> int:
        """When it began, of CLOCK_MONOTONIC; in steps of a hundredth of a second."""
        # /proc counts the time that the machine was suspended, the recording's clock does not.
        return self.started_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") - ahead_ns(time.CLOCK_BOOTTIME)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


def _identity(pid: int) -> tuple[Identity, int]:
    """Who a process is now, and its number in its own pid namespace, by which it names its files."""
    fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    uid, gid = (int(fields[name].split()[3]) for name in ("Uid", "Gid"))
    is_here = os.path.samefile(f"/proc/{pid}/ns/user", "/proc/self/ns/user")
    reads_all = is_here and uid == 0 and bool(int(fields["CapEff"], 16) & _READS_ALL)
    groups = tuple(sorted(map(int, fields["Groups"].split())))
    return Identity(uid, gid, groups, reads_all), int(fields["NSpid"].split()[-1]) if "NSpid" in fields else pid


def call_as(
    identity: Identity,
    work: Callable[[], _T],
    patience_s: float = _PATIENCE_S,
    *,
    discard: Callable[[_T], object] | None = None,
) -> _T:
    """Call ``work`` in a thread of its own that has the rights of ``identity`` and no others.

    Args:
        discard: called with a result that comes too late.

    Raises:
        OSError: the identity cannot be taken, or from ``work``; TimeoutError if that took too long.
    """

    def run() -> _T:
        _become(identity)
        return work()

    call = Call(run, discard)
    threading.Thread(target=call.run, daemon=True).start()
    return call.result(patience_s, "a file of the process")


def _become(identity: Identity) -> None:
    """Change this thread, for good."""
    if identity == Identity.own():
        return
    if _SETGROUPS is None or os.geteuid() != 0:
        raise CannotBecomeError(errno.EPERM, "only root can do something as another user")
    if identity.uid == _overflow_uid() and not _knows_all_users():
        raise CannotBecomeError(errno.EPERM, "the process's user has no number here")
    libc = ctypes.CDLL(None, use_errno=True)
    groups = (ctypes.c_uint32 * len(identity.groups))(*identity.groups)
    if libc.syscall(_SETGROUPS, len(identity.groups), groups):
        raise CannotBecomeError(ctypes.get_errno(), "cannot take the groups of another user")
    libc.setfsgid(identity.gid)
    libc.setfsuid(identity.uid)
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION_3, 0)
    if libc.capset(header, (ctypes.c_uint32 * 6)()):
        raise CannotBecomeError(ctypes.get_errno(), "cannot give up capabilities")
    # Neither call says whether it worked; an impossible number changes nothing and returns what holds.
    if (libc.setfsuid(-1), libc.setfsgid(-1)) != (identity.uid, identity.gid):
        raise CannotBecomeError(errno.EPERM, "cannot become another user")


def _overflow_uid() -> int:
    return int(Path("/proc/sys/kernel/overflowuid").read_text())


def _knows_all_users() -> bool:
    return Path("/proc/self/uid_map").read_text().split() == _ALL_IDS.split()
