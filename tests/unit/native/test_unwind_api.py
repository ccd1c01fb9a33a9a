"""bpf/unwind.h, profiler/native/unwind_api.h and Python agree; the shared code compiles for BPF."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from builders import unwind_table
from tdprof.native import unwind_api as binding
from tdprof.unwind import sections

ROOT = Path(__file__).parents[3]


@pytest.mark.skipif(shutil.which("gcc") is None, reason="gcc is not installed")
def test_numbers(tmp_path: Path) -> None:
    asked: dict[str, int] = {}
    asked.update(UNWIND_MOST_SEGMENTS=binding.MOST_SEGMENTS)
    for name in ("CFA_SP", "CFA_PLT", "NONE", "STOP", "SIGNAL", "FP_RECORD", "RA_CFA", "RA_LR", "RA_SLOT", "FP_SAME"):
        asked[f"UNWIND_{name}"] = getattr(sections, name)
    # What the tests' own reader takes for granted.
    asked["sizeof(struct unwind_header) + 0"] = unwind_table.HEADER.size
    asked["sizeof(struct unwind_segment) + 0"] = unwind_table.SEGMENT.size
    lines = "".join(f'printf("%llu\\n", (unsigned long long)({expression}));\n' for expression in asked)
    source = tmp_path / "layout.c"
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "unwind_api.h"\nint main(void) {{\n{lines}return 0;\n}}\n'
    )
    program = tmp_path / "layout"
    folders = ["-I", ROOT / "profiler/native", "-I", ROOT / "bpf"]
    subprocess.run(["gcc", "-std=gnu11", *map(str, folders), source, "-o", program], check=True)
    found = subprocess.run([program], check=True, capture_output=True, text=True).stdout.split()
    assert dict(zip(asked, map(int, found), strict=True)) == asked


def test_each_end_has_its_word():
    listed = re.findall(r'^\tX\(\w+, "([a-z-]+)"', (ROOT / "bpf/unwind.h").read_text(), re.MULTILINE)
    assert binding.end_words() == ("", *listed)
    assert len(set(listed)) == len(listed) >= 13


@pytest.mark.skipif(shutil.which("clang") is None, reason="clang is not installed")
@pytest.mark.parametrize("machine", ["UNWIND_X86_64", "UNWIND_AARCH64"])
def test_the_step_compiles_for_bpf(machine, tmp_path):
    source = tmp_path / "step.c"
    source.write_text(
        f"#define UNWIND_MACHINE {machine}\n"
        "#include <linux/types.h>\n"
        "struct unwind_memory { __u64 word; };\nstruct unwind_tables { __u32 row; };\n"
        "static inline int unwind_read(struct unwind_memory *m, __u64 a, __u64 *w) { *w = m->word + a; return 0; }\n"
        "static inline int unwind_bucket(struct unwind_tables *t, __u32 n, __u32 *r) { *r = t->row + n; return 0; }\n"
        "static inline int unwind_row(struct unwind_tables *t, __u32 n, __u32 *r) { *r = t->row + n; return 0; }\n"
        "static inline int unwind_returns_to(struct unwind_memory *m, __u64 pc) { return (int)(m->word - pc); }\n"
        '#include "unwind_step.h"\n'
        "int run(struct unwind_memory *m, struct unwind_tables *t, struct unwind_state *s, struct unwind_rule *r)\n"
        "{\n\tif (unwind_search(t, 1, unwind_lookup_pc(s) & 255))\n\t\treturn unwind_step(m, s, r);\n"
        "\tunwind_begin(s, 1, 2, 3, 4, 0);\n\treturn (int)unwind_caller_address(s);\n}\n"
    )
    multiarch = next(Path("/usr/include").glob("*-linux-gnu"), Path("/usr/include"))
    compiler = ["clang", "-target", "bpf", "-O2", "-Wall", "-Wextra", "-Werror", "-I", ROOT / "bpf", "-I", multiarch]
    subprocess.run([*map(str, compiler), "-c", source, "-o", tmp_path / "step.o"], check=True)
