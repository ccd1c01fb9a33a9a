"""Every structure that Python shares with C lies where the C compiler puts it: no mirror is left out.

A mirror, a ``ctypes.Structure``, names the C structure in its docstring; rows of NumPy are listed here.
"""

import ctypes
import importlib
import pkgutil
import re
import shutil
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import arm_spe
import tdprof
from arm_spe import tallied, tally
from live_aarch64 import neoverse_sim
from tdprof.decode import bpf_aggregates
from tdprof.decode.perf import branches, columns, groups, records, walked
from tdprof.decode.python import records as python_records
from tdprof.unwind import walk

ROOT = Path(__file__).parents[3]
FOLDERS = ("profiler/native", "spe/native", "bpf", "tools/neoverse_sim")
ROWS = {
    "perf_id": records._ID,
    "perf_read_row": columns.READ,
    "perf_branch_row": columns.BRANCH,
    "perf_side_band_row": columns.SIDE_BAND,
    "perf_group": groups.GROUP,
    "perf_branch_sum": branches.SUM,
    "ring_walk_head": walked._HEAD,
    "python_frame": python_records.FRAME,
    "python_stack": python_records._STACK,
    "python_code": python_records.CODE,
    "sample_key": bpf_aggregates.KEY,
    "sample_value": bpf_aggregates.VALUE,
    "spe_row": tallied.ROW,
    "spe_item": tally.ITEM,
    "spe_page": tallied.PAGE,
}
# What follows in these is of no fixed length where it is read.
BEGINNINGS = {"python_stack": "frame", "python_code": "lines"}
# Of the kernel's own header, which may be older than we are: its bits have no offset, and config3 came with Linux 6.3.
UNCHECKED = {"perf_event_attr": re.compile("reserved_|config3")}

Field = tuple[str, int, int]
"""Name, offset and size in bytes."""


def modules() -> Iterator[ModuleType]:
    """All of both packages, and the test's side of the simulated Neoverse."""
    for package in (tdprof, arm_spe):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not found.name.endswith(("__main__", "_native.abi3", "_native")):  # runs the program; no Python
                yield importlib.import_module(found.name)
    yield neoverse_sim


def mirrors() -> Iterator[type[ctypes.Structure]]:
    for module in modules():
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, ctypes.Structure) and value.__module__ == module.__name__:
                yield value


def struct_of(mirror: type[ctypes.Structure]) -> str:
    named = re.match(r"`*struct (\w+)", mirror.__doc__ or "")
    assert named, f"{mirror.__module__}.{mirror.__name__}: the docstring does not say which struct it mirrors"
    return named[1]


def fields_of_mirror(mirror: type[ctypes.Structure]) -> list[Field]:
    whole = [field[0] for field in mirror._fields_ if len(field) == 2]
    return [(name, getattr(mirror, name).offset, getattr(mirror, name).size) for name in whole]


def fields_of_row(row: np.dtype[np.void]) -> list[Field]:
    assert row.fields is not None
    return [(name, offset, kind.itemsize) for name, (kind, offset, *_) in row.fields.items()]


MIRRORS = {struct_of(mirror): mirror for mirror in mirrors()}


@cache
def header_of(struct: str) -> str:
    """What to include for it."""
    if struct.startswith("perf_event_"):
        return "<linux/perf_event.h>"
    files = [path for folder in FOLDERS for path in (ROOT / folder).glob("*.[ch]")]
    defining = [path for path in files if re.search(rf"^struct {struct} \{{|^struct {struct}$", path.read_text(), re.M)]
    assert len(defining) == 1, f"struct {struct} is defined in {len(defining)} files"
    return f'"{defining[0]}"'


def compiled_layout(folder: Path, struct: str, names: list[str]) -> tuple[int, list[Field]]:
    """Size of a struct and its fields, as the C compiler has them."""
    lines = "".join(
        f'printf("%zu %zu\\n", offsetof(struct {struct}, {name}), sizeof(((struct {struct} *)0)->{name}));\n'
        for name in names
    )
    (folder / "layout.c").write_text(
        "#include <stddef.h>\n#include <stdio.h>\n#include <linux/types.h>\n"
        f"#include {header_of(struct)}\n"
        f'int main(void) {{\n{lines}printf("%zu\\n", sizeof(struct {struct}));\nreturn 0;\n}}\n'
    )
    includes = [f"-I{ROOT / name}" for name in FOLDERS]
    build = ["gcc", "-std=gnu11", *includes, "-ffunction-sections", "-Wl,--gc-sections", "-o", str(folder / "layout")]
    subprocess.run([*build, str(folder / "layout.c")], check=True)
    output = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout
    *rows, size = output.splitlines()
    return int(size), [(name, *map(int, row.split())) for name, row in zip(names, rows, strict=True)]  # type: ignore[misc]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
@pytest.mark.parametrize("struct", [*MIRRORS, *ROWS])
def test_layout(struct: str, tmp_path: Path) -> None:
    if struct in MIRRORS:
        size, fields = ctypes.sizeof(MIRRORS[struct]), fields_of_mirror(MIRRORS[struct])
    else:
        size, fields = ROWS[struct].itemsize, fields_of_row(ROWS[struct])
    unchecked = UNCHECKED.get(struct)
    fields = [field for field in fields if unchecked is None or not unchecked.match(field[0])]
    rest = [BEGINNINGS[struct]] if struct in BEGINNINGS else []
    found_size, found = compiled_layout(tmp_path, struct, [name for name, _, _ in fields] + rest)
    assert found[: len(fields)] == fields
    assert unchecked or (found[-1][1] if rest else found_size) == size


def test_two_mirrors_of_one_struct() -> None:
    assert fields_of_row(walk.MAPPING) == fields_of_mirror(MIRRORS["unwind_mapping"])


def test_mirrors_are_found() -> None:
    assert {"perf_decoder", "stack_places", "stack_merge", "folded_rows", "bpf_stacks_result", "spe_tally"} <= {
        *MIRRORS
    }


@pytest.mark.parametrize("struct", MIRRORS)
def test_what_mirrors_the_library_stands_in_one_folder(struct: str) -> None:
    if "profiler/native" in header_of(struct):
        assert MIRRORS[struct].__module__.startswith("tdprof.native.")
