"""Where root puts temporary files: nowhere that another user could exchange them."""

import os
from pathlib import Path

from tdprof.linux.folder_path import only_ours, open_folder


def avoid_temporary_folders_of_others() -> str:
    """For this process, where it is root's: /tmp instead of a $TMPDIR that another user owns or may write to.

    Returns:
        Why the folder that was asked for is not used; "" if it is.
    """
    asked = next((folder for name in ("TMPDIR", "TEMP", "TMP") if (folder := os.environ.get(name))), "")
    if os.geteuid() != 0 or not asked:
        return ""
    try:
        os.close(open_folder(Path(asked), only_ours))
    except OSError as error:
        import tempfile  # only now: it takes longer to load than all else here

        # Not the variable itself: the command that is recorded keeps it.
        tempfile.tempdir = "/tmp"
        return error.strerror or str(error)
    return ""
