"""Caches that another user prepared: forged contents are not believed, and nothing is written where he wants it."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from attack.conftest import User
from tdprof.linux.user_cache import cache_home
from tdprof.symbolize.cache import CachedSymbols, SymbolCache
from tdprof.symbolize.code_index import CodeIndex
from tdprof.symbolize.debuginfod import Debuginfod
from tdprof.symbolize.symbol_table import SymbolTable

pytestmark = pytest.mark.beside_others

BUILD_ID = "ab" + 38 * "1"


def symbols() -> CachedSymbols:
    """Columns without rows: what stands in them does not matter here."""
    empty = np.zeros(0, np.uint64)

    def of(kind: type) -> object:
        return kind(**{name: b"" if "bytes" in str(hint) else empty for name, hint in kind.__annotations__.items()})

    return CachedSymbols("source", of(SymbolTable), of(CodeIndex), is_complete=True, asked=None)  # type: ignore[arg-type]


def give(folder: Path, user: User) -> None:
    for path in (folder, *folder.rglob("*")):
        os.lchown(path, user.uid, user.uid)


@pytest.mark.parametrize("what", ["folder", "part", "file", "way", "link"])
def test_forged_symbols_are_not_believed(meadow: Path, mallory: User, what: str) -> None:
    way = meadow / "way"
    way.mkdir()
    cache = SymbolCache(way / "symbols")
    cache.store(BUILD_ID, symbols())
    assert cache.load(BUILD_ID, "source") is not None
    (file,) = way.rglob("*.tds")
    if what == "link":
        real = mallory.folder(meadow / "real")
        os.rename(way / "symbols", real / "symbols")
        (way / "symbols").symlink_to(real / "symbols")
    else:
        forged = {"folder": way / "symbols", "part": file.parent, "file": file, "way": way}[what]
        os.chown(forged, mallory.uid, mallory.uid)
    assert cache.load(BUILD_ID, "source") is None
    if what in ("folder", "way", "link"):
        assert cache.entries() == []
        assert cache.refusal()


@pytest.mark.parametrize("kind", ["debuginfo", "executable"])
def test_nothing_is_written_through_links_in_a_cache(
    meadow: Path, treasure: Path, mallory: User, untouched: Callable[[], None], kind: str
) -> None:
    """Not symbols, and neither files nor marks of what a server does not have."""
    home = mallory.folder(meadow / "home")
    for name in (BUILD_ID, BUILD_ID[:2]):
        mallory.run("import os, sys; os.symlink(*sys.argv[1:])", treasure, home / name)
    SymbolCache(home).store(BUILD_ID, symbols())
    client = Debuginfod(["http://127.0.0.1:9"], home, timeout_s=60)
    assert client.find(BUILD_ID, kind) is None  # type: ignore[arg-type]
    assert "belongs to user 54321" in client.failures["http://127.0.0.1:9"]
    untouched()
    # Root's own folder, in which a link was left, is as good as none.
    give(home, User(0))
    SymbolCache(home).store(BUILD_ID, symbols())
    Debuginfod([], home).find(BUILD_ID, kind)  # type: ignore[arg-type]
    untouched()


@pytest.mark.parametrize("target", ["theirs", "shared"])
def test_a_kept_home_whose_cache_leads_elsewhere_is_not_used(
    meadow: Path, mallory: User, monkeypatch: pytest.MonkeyPatch, target: str
) -> None:
    """Also where the link leads to a folder of root that all may write to, and what is below it is the attacker's."""
    home = mallory.folder(meadow / "home")
    shared = meadow / "shared"
    shared.mkdir()
    shared.chmod(0o1777)
    mallory.run("import os, sys; os.makedirs(sys.argv[1])", shared / "tdprof" / "symbols")
    leads_to = {"theirs": mallory.folder(meadow / "theirs"), "shared": shared}[target]
    mallory.run("import os, sys; os.symlink(*sys.argv[1:])", leads_to, home / ".cache")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(home))
    assert not cache_home().is_relative_to(meadow)
    monkeypatch.setenv("DEBUGINFOD_URLS", "http://127.0.0.1:9")
    client = Debuginfod.from_environment()
    assert client is not None
    assert not client.folder.is_relative_to(meadow)
    command = [sys.executable, "-m", "tdprof", "cache", "--json"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300).stdout
    assert not Path(json.loads(said)["folder"]).is_relative_to(meadow)
