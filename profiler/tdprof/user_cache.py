"""Where this user's caches are."""

import os
import pwd
from pathlib import Path


def user_cache(name: str) -> Path:
    """The folder ``tdprof/NAME`` under ``$XDG_CACHE_HOME``, else under ``~/.cache``; it need not exist.

    Root that kept another user's environment (``sudo -E``) has root's own: files of root in that user's cache would be
    in the user's way, and files of that user are nothing for root to trust.
    """
    home = os.path.expanduser("~")
    # A user without a home has a cache that nobody can write.
    found = Path(home if os.path.isabs(home) else "/") / ".cache"
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        found = Path(base)
    if os.geteuid() == 0 and _owner(found) != 0:
        found = Path(pwd.getpwuid(0).pw_dir) / ".cache"
    return found / "tdprof" / name


def _owner(path: Path) -> int | None:
    """The user whose folder this is, or will be once it is made; None if that cannot be said."""
    for folder in (path, *path.parents):
        try:
            return folder.stat().st_uid
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return None
