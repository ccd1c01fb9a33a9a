"""Who runs tdprof through sudo, and when what root made is his."""

import os
import stat

from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class InvokingUser:
    """Who called sudo."""

    uid: int
    gid: int

    def could_write(self, folder: os.stat_result) -> bool:
        """Whether he could have made a file in this folder himself."""
        mode = folder.st_mode
        if folder.st_uid == self.uid:
            return bool(mode & stat.S_IWUSR)
        if folder.st_gid == self.gid:
            return bool(mode & stat.S_IWGRP)
        return bool(mode & stat.S_IWOTH)

    def give(self, fd: int) -> bool:
        """Make an open file or folder his. False where the file system refuses: then it stays root's."""
        try:
            os.fchown(fd, self.uid, self.gid)
        except OSError:
            return False
        return True


def invoking_user() -> InvokingUser | None:
    """As sudo names him; None where root is root itself, or where this is not root."""
    if os.getresuid() != (0, 0, 0):
        return None
    try:
        found = InvokingUser(int(os.environ["SUDO_UID"]), int(os.environ["SUDO_GID"]))
    except (KeyError, ValueError):
        return None
    return found if 0 < found.uid < 1 << 31 and 0 <= found.gid < 1 << 31 else None


def is_trusted(uid: int) -> bool:
    """Whether links and older captures of this user are taken for what they say: ours, root's, or sudo's caller's."""
    invoking = invoking_user()
    return uid in (0, os.geteuid()) or (invoking is not None and uid == invoking.uid)
