"""The kernel's types, as its own description of them says."""

import struct
from pathlib import Path

import pytest

from tdprof.errors import TdprofError
from tdprof.native.library import load_native
from tdprof.recorder import kernel_types
from tdprof.recorder.kernel_types import KERNEL_BTF, read_kernel_types


@pytest.fixture(params=[True, False], ids=["compiled", "python"], autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setattr(kernel_types, "load_native", lambda: None)
    elif not load_native():
        pytest.skip("the compiled library was not built")


def written(folder: Path, data: bytes) -> Path:
    (folder / "vmlinux").write_bytes(data)
    return folder / "vmlinux"


def test_members_and_enumerators_are_found_behind_types_of_all_kinds(tmp_path: Path) -> None:
    names = {"int": 1, "array": 5, "task": 11, "state": 16, "pid": 22, "kinds": 26, "one": 32}
    text = b"\0int\0array\0task\0state\0pid\0kinds\0one\0"
    data = struct.pack("<IIII", names["int"], 1 << 24, 4, 0)  # an integer
    data += struct.pack("<IIIIII", names["array"], 3 << 24, 0, 1, 1, 8)
    data += struct.pack("<III", names["task"], 7 << 24, 0)  # a declaration of the same name
    data += struct.pack("<IIII", 0, 19 << 24 | 1, 8, 0) + bytes(8)  # 64-bit enumerators
    data += struct.pack("<III", names["task"], 4 << 24 | 2, 16)
    data += struct.pack("<III", names["state"], 1, 64) + struct.pack("<III", names["pid"], 1, 96)
    data += struct.pack("<III", names["kinds"], 1 << 31 | 4 << 24 | 1, 4)
    data += struct.pack("<III", names["one"], 1, 3 << 24 | 32)  # a bit field of three bits
    data += struct.pack("<III", names["kinds"], 6 << 24 | 1, 4) + struct.pack("<Ii", names["one"], -1)
    data += struct.pack("<III", names["array"], 8 << 24, 1)  # a typedef of an array's name
    whole = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(data), len(data), len(text)) + data + text
    found = read_kernel_types(["task", "kinds", "absent"], [], written(tmp_path, whole))
    assert found.offsets == {("task", "state"): 8, ("task", "pid"): 12, ("kinds", "one"): 4}
    assert read_kernel_types([], ["kinds"], tmp_path / "vmlinux").enumerators == {"one": -1}
    assert read_kernel_types([], [], tmp_path / "vmlinux", typedefs=["array", "task"]).typedefs == {"array": 8}


def test_members_of_what_has_no_name_are_the_structures(tmp_path: Path) -> None:
    names = {"mm": 1, "code": 4, "kept": 9}
    text = b"\0mm\0code\0kept\0"
    data = struct.pack("<III", 0, 4 << 24 | 2, 16)  # 1: without a name, within itself, too
    data += struct.pack("<III", names["code"], 9, 64) + struct.pack("<III", 0, 1, 128)
    data += struct.pack("<III", 0, 5 << 24 | 1, 16) + struct.pack("<III", 0, 1, 0)  # 2: a union of that
    data += struct.pack("<III", names["mm"], 4 << 24 | 3, 40)
    data += struct.pack("<III", names["kept"], 9, 0) + struct.pack("<III", 0, 2, 128) + struct.pack("<III", 0, 9, 320)
    whole = struct.pack("<HBBIIIII", 0xEB9F, 1, 0, 24, 0, len(data), len(data), len(text)) + data + text
    found = read_kernel_types(["mm", "absent"], [], written(tmp_path, whole)).offsets
    assert found.keys() == {("mm", "kept"), ("mm", "code")}
    assert found["mm", "kept"] == 0


ODD_KIND = struct.pack("<HBBIIIIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 1, 0, 31 << 24, 0)


CUT = struct.pack("<HBBIIIIIIII", 0xEB9F, 1, 0, 24, 0, 12, 12, 2, 0, 4 << 24, 0)
HALF_A_TYPE = struct.pack("<HBBIIIIIIIII", 0xEB9F, 1, 0, 24, 0, 16, 16, 0, 0, 4 << 24, 0, 0)


@pytest.mark.parametrize("data", [b"", b"\x9f\xeb", bytes(64), ODD_KIND, CUT, HALF_A_TYPE])
def test_damage_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(TdprofError, match="is damaged"):
        read_kernel_types(["task"], [], written(tmp_path, data))


def test_a_kernel_that_does_not_tell_is_said(tmp_path: Path) -> None:
    with pytest.raises(TdprofError, match="does not tell its types") as caught:
        read_kernel_types(["task"], [], tmp_path / "none")
    assert "CONFIG_DEBUG_INFO_BTF" in (caught.value.hint or "")


@pytest.mark.skipif(not KERNEL_BTF.exists(), reason="the kernel does not tell its types")
def test_compiled_or_not_the_kernels_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    structures = ("task_struct", "mm_struct", "inode", "css_set", "no_such_struct")
    found = [read_kernel_types(structures, ["cgroup_subsys_id"], typedefs=["btf_trace_sched_switch"])]
    monkeypatch.setattr(kernel_types, "load_native", lambda: None)
    found.append(read_kernel_types(structures, ["cgroup_subsys_id"], typedefs=["btf_trace_sched_switch"]))
    assert found[0] == found[1]
    assert {structure for structure, _ in found[0].offsets} == set(structures[:-1])
    assert found[0].enumerators["cpu_cgrp_id"] >= 0
    assert found[0].offsets["task_struct", "pid"] > found[0].offsets["task_struct", "mm"] > 0
