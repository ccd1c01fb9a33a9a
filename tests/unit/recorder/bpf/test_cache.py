"""Compiled BPF objects on disk: found again, and trusted only if nobody else could have written them."""

import json
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.linux.user_cache import user_cache
from tdprof.recorder.bpf.cache import MOST_FILES, BpfCache
from tdprof.recorder.bpf.compiler import replace_maps
from tdprof.recorder.bpf.object_file import BpfObject, Compiler, MapSpec, Program
from tdprof.recorder.bpf.settings import MARK

KEY = {"machine": "x86_64", "sources": {"sample.bpf.c": 1}}
LOAD_MAP_1 = struct.pack("<BBhiQ", 0x18, 0x12, 0, 1, 0)
EXIT = struct.pack("<BBhi", 0x95, 0, 0, 0)


@pytest.fixture
def compiled(tmp_path: Path) -> BpfObject:
    bcc = tmp_path / "bcc.py"
    bcc.write_text("installed")
    status = bcc.stat()
    return BpfObject(
        [MapSpec("rows", 1, 48, 16, 1, 0), MapSpec("ring", 27, 0, 0, 4096, 0)],
        [Program("sample_0", LOAD_MAP_1 + EXIT)],
        Compiler(str(bcc), "0.26.0", status.st_mtime_ns, status.st_size),
    )


@pytest.fixture
def cache(tmp_path: Path) -> BpfCache:
    return BpfCache(tmp_path / "home" / "bpf")


def only_file(tmp_path: Path) -> Path:
    [path] = (tmp_path / "home" / "bpf").iterdir()
    return path


def test_an_object_is_found_again(cache: BpfCache, compiled: BpfObject, tmp_path: Path) -> None:
    assert cache.load(KEY) is None
    cache.store(KEY, compiled)
    assert cache.load(KEY) == compiled
    assert cache.load({**KEY, "machine": "aarch64"}) is None
    assert only_file(tmp_path).stat().st_mode & 0o777 == 0o600
    assert only_file(tmp_path).parent.stat().st_mode & 0o777 == 0o700


def test_another_key_under_the_same_name_is_a_miss(cache: BpfCache, compiled: BpfObject, tmp_path: Path) -> None:
    cache.store(KEY, compiled)
    path = only_file(tmp_path)
    body = json.dumps({"key": {}, "object": compiled.to_json()}).encode()
    path.write_bytes(f"{zlib.crc32(body):08x}\n".encode() + body)
    assert cache.load(KEY) is None


def test_another_bcc_compiles_anew(cache: BpfCache, compiled: BpfObject) -> None:
    cache.store(KEY, compiled)
    bcc = Path(compiled.compiler.path)
    bcc.write_text("a newer one")
    assert cache.load(KEY) is None
    bcc.unlink()
    assert cache.load(KEY) is None


def _file_for_all(path: Path) -> None:
    path.chmod(0o602)


def _file_for_group(path: Path) -> None:
    path.chmod(0o620)


def _folder_for_all(path: Path) -> None:
    path.parent.chmod(0o702)


def _link_to_elsewhere(path: Path) -> None:
    target = path.parent.parent / "elsewhere"
    path.rename(target)
    path.symlink_to(target)


def _linked_folder(path: Path) -> None:
    target = path.parent.parent / "elsewhere"
    path.parent.rename(target)
    path.parent.symlink_to(target)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path, 0o600)


def _foreign_file(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    os.chown(path, 12345, -1)


def _foreign_folder(path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    os.chown(path.parent, 12345, -1)


@pytest.mark.parametrize(
    "spoil",
    [
        _file_for_all,
        _file_for_group,
        _folder_for_all,
        _link_to_elsewhere,
        _linked_folder,
        _pipe,
        _foreign_file,
        _foreign_folder,
    ],
)
def test_what_others_could_have_written_is_not_trusted(
    cache: BpfCache, compiled: BpfObject, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    cache.store(KEY, compiled)
    spoil(only_file(tmp_path))
    assert cache.load(KEY) is None


def test_nothing_is_written_into_a_folder_of_others(cache: BpfCache, compiled: BpfObject, tmp_path: Path) -> None:
    (tmp_path / "home" / "bpf").mkdir(parents=True)
    (tmp_path / "home" / "bpf").chmod(0o777)
    cache.store(KEY, compiled)
    assert not list((tmp_path / "home" / "bpf").iterdir())


def test_a_folder_that_cannot_be_made_costs_only_time(compiled: BpfObject, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    cache = BpfCache(tmp_path / "file" / "bpf")
    cache.store(KEY, compiled)
    assert cache.load(KEY) is None


def test_it_does_not_grow_without_end(cache: BpfCache, compiled: BpfObject, tmp_path: Path) -> None:
    for number in range(2 * MOST_FILES):
        cache.store({"number": number}, compiled)
    assert len(list((tmp_path / "home" / "bpf").iterdir())) == MOST_FILES


@given(place=st.integers(0, 1 << 16), flip=st.integers(0, 255))
def test_damage_is_a_miss(place: int, flip: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Cut somewhere, or one byte changed somewhere."""
    folder = tmp_path_factory.mktemp("damaged")
    bcc = folder / "bcc.py"
    bcc.touch()
    compiled = BpfObject([], [Program("f", EXIT)], Compiler(str(bcc), "1", bcc.stat().st_mtime_ns, 0))
    cache = BpfCache(folder / "home" / "bpf")
    cache.store(KEY, compiled)
    path = only_file(folder)
    content = bytearray(path.read_bytes())
    place %= len(content)
    if flip:
        content[place] ^= flip
    else:
        del content[place:]
    path.write_bytes(content)
    found = cache.load(KEY)
    # The case of the checksum's hexadecimal digits carries no information.
    assert found is None or (found == compiled and place < 8)


@pytest.mark.parametrize(
    "change",
    [
        {"maps": None},
        {"maps": [{"name": "rows"}]},
        {"maps": [{"name": "r", "type": -1, "key_bytes": 0, "value_bytes": 0, "entries": 0, "flags": 0}]},
        {"maps": [{"name": "r", "type": 1 << 32, "key_bytes": 0, "value_bytes": 0, "entries": 0, "flags": 0}]},
        {"maps": [{"name": "r", "type": True, "key_bytes": 0, "value_bytes": 0, "entries": 0, "flags": 0}]},
        {"programs": [{"name": "f", "code": ""}]},
        {"programs": [{"name": "f", "code": "95"}]},
        {"programs": [{"name": "f", "code": "no hex"}]},
        {"programs": [{"name": "f", "code": (LOAD_MAP_1 + EXIT).hex()}], "maps": []},
        {"programs": [{"name": "f", "code": (struct.pack("<BBhiII", 0x18, 0, 0, 99, 0, MARK) + EXIT).hex()}]},
        {"compiler": {}},
        {"compiler": 3},
    ],
)
def test_what_is_no_object_is_refused(compiled: BpfObject, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"."):
        BpfObject.from_json({**compiled.to_json(), **change})


def test_maps_are_replaced_only_where_they_are_meant() -> None:
    constant = struct.pack("<BBhiiI", 0x18, 0x02, 0, 1, 0, 0)[:16]
    # The second half of a constant that looks like a reference to a map is not one.
    half = struct.pack("<BBhi", 0x18, 0x02, 0, 7) + struct.pack("<BBhi", 0x18, 0x12, 0, 1)
    code = LOAD_MAP_1 + constant + half + EXIT
    assert replace_maps(code, {1: 77}) == struct.pack("<BBhiQ", 0x18, 0x12, 0, 77, 0) + constant + half + EXIT


def test_the_compilers_identity_counts(compiled: BpfObject) -> None:
    assert compiled.compiler.is_unchanged()
    assert not replace(compiled.compiler, size_bytes=compiled.compiler.size_bytes + 1).is_unchanged()


def test_caches_follow_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "given"))
    assert user_cache("bpf") == tmp_path / "given" / "tdprof" / "bpf"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")  # to be ignored, says the base directory specification
    monkeypatch.setenv("HOME", str(tmp_path))
    assert user_cache("bpf") == tmp_path / ".cache" / "tdprof" / "bpf"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be somebody else's guest")
def test_root_keeps_out_of_the_caches_of_others(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.chown(tmp_path, 12345, -1)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert not user_cache("bpf").is_relative_to(tmp_path)
