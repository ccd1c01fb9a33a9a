"""The compiled BPF programs of a wheel: made for both architectures, loaded without a compiler, constants and all."""

import json
import os
import platform
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tdprof.recorder.bpf import compiler_process, load, sources
from tdprof.recorder.bpf.compiler import INSTRUCTION
from tdprof.recorder.bpf.load import BpfLoad, BpfUnavailableError
from tdprof.recorder.bpf.object_file import BpfObject, LoadError, load_program
from tdprof.recorder.bpf.settings import MARK, Setting, filled_in, settings_in
from tdprof.recorder.bpf.table_sizes import TableSizes
from tdprof.recorder.call_graph import CallGraph

PROJECT = Path(__file__).resolve().parents[2]
GENERATOR = PROJECT / "tools" / "generate-bpf"
SIZES = TableSizes.for_rate(1000)
LOAD_DOUBLE, CALL = 0x79, 0x85
# Where the sample's period is in the context: behind the registers (struct pt_regs, struct user_pt_regs).
PERIOD_OFFSET = {"x86_64": 21 * 8, "aarch64": 34 * 8}

pytestmark = [pytest.mark.needs_bpf, pytest.mark.beside_others, pytest.mark.thorough]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sources as a wheel has them, with the objects of both architectures."""
    folder = tmp_path_factory.mktemp("wheel") / "bpf"
    shutil.copytree(PROJECT / "bpf", folder, ignore=shutil.ignore_patterns("objects"))
    subprocess.run([sys.executable, GENERATOR, folder / "objects"], check=True)
    return folder


@pytest.fixture
def shipped(generated: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The same, as the loader's sources, on a machine that has no compiler and never recorded anything."""

    def refuse(_process: object) -> None:
        raise AssertionError("the compiler was started")

    folder = tmp_path / "bpf"
    shutil.copytree(generated, folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(compiler_process.CompilerProcess, "__init__", refuse)
    monkeypatch.setattr(load, "folder_of_sources", lambda: folder)
    return folder


def object_for(folder: Path, machine: str) -> BpfObject:
    found = sources.shipped_object(folder, machine)
    assert found
    return found


def code_of(found: BpfObject, name: str) -> bytes:
    [program] = [program for program in found.programs if program.name == name]
    return program.code


def test_no_compiler_is_needed_for_any_events(shipped: Path) -> None:
    for events in (1, 90):
        attempt = BpfLoad([True] * events, SIZES, CallGraph.AUTO)
        with attempt.finish() as loaded:
            assert len(loaded.programs) == events
        attempt.close()
    assert not (shipped.parent / "cache").exists()


def test_other_sources_need_the_compiler_again(shipped: Path) -> None:
    with (shipped / "sample.h").open("a") as file:
        file.write("/* changed */\n")
    with pytest.raises(AssertionError, match="the compiler was started"):
        BpfLoad([True], SIZES)


def test_a_refusal_is_told_and_not_covered_by_a_missing_bcc(shipped: Path) -> None:
    path = shipped / "objects" / f"{platform.machine()}.json"
    content = json.loads(path.read_text())
    for program in content["object"]["programs"]:
        if program["name"] == "store":
            program["code"] = struct.pack("<BBhi", 0x95, 0, 0, 0).hex()
    path.write_text(json.dumps(content))
    with pytest.raises(BpfUnavailableError, match="the BPF program did not load: store: R0 !read_ok"):
        BpfLoad([True], SIZES).finish()


def test_generating_again_gives_the_same(generated: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, GENERATOR, tmp_path], check=True)
    for machine in sources.MACHINES:
        text = (tmp_path / f"{machine}.json").read_text()
        assert text == (generated / "objects" / f"{machine}.json").read_text()
        assert json.loads(text)["generator"] == "tools/generate-bpf"
        assert json.loads(text)["license"] == "GPL-2.0-only"


def test_each_architecture_has_its_own_registers_and_the_same_maps(generated: Path) -> None:
    objects = {machine: object_for(generated, machine) for machine in sources.MACHINES}
    for machine, found in objects.items():
        offsets = {
            offset for op, _, offset, _ in INSTRUCTION.iter_unpack(code_of(found, "sample")) if op == LOAD_DOUBLE
        }
        assert {other for other, offset in PERIOD_OFFSET.items() if offset in offsets} == {machine}
    assert objects["x86_64"].maps == objects["aarch64"].maps
    assert [program.name for program in objects["x86_64"].programs] == [
        program.name for program in objects["aarch64"].programs
    ]


def test_every_setting_has_its_places(generated: Path) -> None:
    for machine in sources.MACHINES:
        found = object_for(generated, machine)
        places = {program.name: {number for _, number in settings_in(program.code)} for program in found.programs}
        assert places.pop("overflow") == {Setting.EVENT}
        assert set().union(*places.values()) == set(Setting) - {Setting.EVENT}


def test_what_a_setting_switches_off_need_not_exist() -> None:
    """A kernel without the helper for a thread's registers loads the program that has the call in it."""
    code = b"".join(
        INSTRUCTION.pack(*instruction)
        for instruction in (
            (0x18, 0x01, 0, int(Setting.HAS_TASK_REGISTERS)),
            (0, 0, 0, MARK),
            (0x15, 0x01, 1, 0),  # if r1 == 0 skip one
            (CALL, 0, 0, 1 << 20),  # a helper that no kernel has
            (0xB7, 0, 0, 0),  # r0 = 0
            (0x95, 0, 0, 0),  # exit
        )
    )
    os.close(load_program("without", filled_in(code, {Setting.HAS_TASK_REGISTERS: 0})))
    with pytest.raises(LoadError, match="invalid func"):
        load_program("with", filled_in(code, {Setting.HAS_TASK_REGISTERS: 1}))
