"""Access lists (acl(5)), which grant what the mode's bits for others do not show."""

import errno
import os
import struct
from pathlib import Path

import pytest

from attack.conftest import MALLORY, User
from tdprof.capture.output_folder import OutputFolder
from tdprof.linux.output_file import new_file, replaced_file
from tdprof.linux.user_cache import CacheFolder

pytestmark = pytest.mark.beside_others

# linux/posix_acl_xattr.h: version, then (tag, permissions, id) of owner, one user, group, mask and others.
_NOBODY = 0xFFFFFFFF
_ENTRIES = [(0x01, 7, _NOBODY), (0x02, 7, MALLORY), (0x04, 5, _NOBODY), (0x10, 7, _NOBODY), (0x20, 5, _NOBODY)]
GRANTS_MALLORY_ALL = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in _ENTRIES)
OPEN_ALL = """
import os, sys
for folder, _, names in os.walk(sys.argv[1]):
    for path in (folder, *(os.path.join(folder, name) for name in names)):
        if path != sys.argv[1] and (os.access(path, os.R_OK) or os.access(path, os.W_OK)):
            print(path)
"""


def grant(folder: Path, kind: str) -> None:
    try:
        os.setxattr(folder, f"system.posix_acl_{kind}", GRANTS_MALLORY_ALL)
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        pytest.skip("the file system of temporary files has no access lists")


def test_what_is_made_grants_nothing_that_its_folder_hands_down(meadow: Path, mallory: User) -> None:
    folder = mallory.folder(meadow / "his")
    grant(folder, "default")
    (folder / "handed down").touch()
    assert mallory.run(OPEN_ALL, folder) == f"{folder}/handed down\n"
    (folder / "handed down").unlink()
    with OutputFolder(folder / "capture") as output, replaced_file(folder / "one") as one, new_file(folder / "two"):
        output.make()
        os.close(output.folder.create("file"))
        output.folder.subfolder("folder", make=True).close()
        output.publish()
        one.write(b"a result")
    assert mallory.run(OPEN_ALL, folder) == ""


def test_a_cache_that_one_user_may_write_to_is_not_believed(meadow: Path) -> None:
    cache = CacheFolder(meadow / "home" / "cache")
    with cache.opened(make=True):
        assert not cache.refusal()
    for folder in (cache.path, cache.path.parent):
        before = folder.stat().st_mode
        grant(folder, "access")
        assert "others may write" in cache.refusal()
        os.removexattr(folder, "system.posix_acl_access")
        folder.chmod(before)
    assert not cache.refusal()
