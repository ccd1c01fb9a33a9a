"""Doing something as another process would: with its user, its groups and none of our privileges.

What a process names (a perf map, a dump of its code, its program) may have been put there to make us read what the
process may not: a mount of /etc/shadow in a user namespace of its own is enough. So its files are opened by a thread
that is no more than the process is. Linux keeps credentials for each thread; the thread gives up its capabilities,
which it cannot take back, and ends.
"""

import ctypes
import errno
import os
import platform
import pwd
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from tdprof.linux.readable import is_readable

_T = TypeVar("_T")
# glibc's setgroups() changes every thread of the process; the system call only its own.
_SETGROUPS = {"x86_64": 116, "aarch64": 159}.get(platform.machine())
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
        OSError: it has ended, or we may not look at it; or its user has no number here.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        handle = os.pidfd_open(pid)
        try:
            fields = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
            uid, gid = (int(fields[name].split()[3]) for name in ("Uid", "Gid"))
            is_here = os.path.samefile(f"/proc/{pid}/ns/user", "/proc/self/ns/user")
            reads_all = is_here and uid == 0 and bool(int(fields["CapEff"], 16) & _READS_ALL)
            self.identity = Identity(uid, gid, tuple(sorted(map(int, fields["Groups"].split()))), reads_all)
            # By its number in its own pid namespace it names its files.
            self.inner_pid = int(fields["NSpid"].split()[-1]) if "NSpid" in fields else pid
            self.started_ticks = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
            self.root = os.open(f"/proc/{pid}/root", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            # All of that was read of one process only if it has not ended, and its number not been given to another.
            if is_readable(handle):
                os.close(self.root)
                raise ProcessLookupError(errno.ESRCH, "the process has ended")
        except (KeyError, ValueError, IndexError) as error:
            raise OSError(errno.EINVAL, "unknown layout of /proc") from error
        finally:
            os.close(handle)

    def started_ns(self) -> int:
        """When it began, of CLOCK_MONOTONIC; in steps of a hundredth of a second."""
        # /proc counts the time that the machine was suspended, the recording's clock does not.
        suspended_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        return self.started_ticks * 1_000_000_000 // os.sysconf("SC_CLK_TCK") - suspended_ns

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        os.close(self.root)


def call_as(identity: Identity, work: Callable[[], _T], patience_s: float = _PATIENCE_S) -> _T:
    """Call ``work`` in a thread of its own that has the rights of ``identity`` and no others.

    Raises:
        OSError: the identity cannot be taken, or from ``work``; TimeoutError if that took too long.
    """
    results: list[_T] = []
    failures: list[BaseException] = []

    def run() -> None:
        try:
            _become(identity)
            results.append(work())
        except BaseException as error:  # handed over to the caller
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(patience_s)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError(errno.ETIMEDOUT, "a file of the process did not answer")
    return results[0]


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
