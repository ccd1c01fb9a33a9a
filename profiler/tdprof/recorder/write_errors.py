"""A capture's folder that takes nothing more, in words: why, and what to do about it."""

import errno

from tdprof.errors import TdprofError
from tdprof.linux.own_folder import OwnFolder

_CURES = {errno.ENOSPC: "free some space", errno.EDQUOT: "free some space", errno.EMFILE: "ulimit -n 1024"}


def cannot_begin(folder: OwnFolder, error: OSError) -> TdprofError:
    """Nothing was recorded yet."""
    hint = _CURES.get(error.errno or 0, "name another folder with -o")
    return TdprofError(f"cannot write into {folder.shown}: {error.strerror}", hint=hint)


def stopped_early(folder: OwnFolder, error: OSError) -> TdprofError:
    """What was recorded before is there."""
    cause = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else str(error.strerror)
    cure = _CURES.get(error.errno or 0, "")
    return TdprofError(
        f"recording stopped early: cannot write into {folder.shown}: {cause}",
        hint=f"{cure}; " * bool(cure) + f"tdprof report {folder.shown} shows what was kept",
    )
