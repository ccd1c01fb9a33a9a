"""The parts of functions that compilers set aside are found where their names were stripped."""

import shutil
import subprocess
from pathlib import Path

import pytest

from builders.programs import need
from tdprof.linux.elf import SHT_SYMTAB, open_elf
from tdprof.recorder.split_code import other_parts
from tdprof.symbolize.symbol_table import read_elf_symbols

# Each case does something rare, which is set aside; so does `other`, next to it.
SOURCE = """
__attribute__((cold, noinline)) int rare(int n) { return n * 3; }
volatile int input;
#define CASE(n) case n: RARE(n) total += n; break;
#define RARE(n) if (__builtin_expect(input == n, 0)) { total += rare(n); if (input) total ^= rare(total); }
int loop(int count)
{
	int total = 0;
	while (count--)
		switch (input & 7) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) }
	return total;
}
int other(int count)
{
	int total = 0;
	while (count--)
		switch (input & 15) { CASE(6) CASE(7) CASE(8) CASE(9) CASE(10) }
	return total;
}
int main(int count, char **arguments) { return loop(count) + other(count) + (arguments == 0); }
"""


@pytest.mark.parametrize("compiler", ["gcc", "aarch64-linux-gnu-gcc"])
def test_the_part_of_a_function_and_not_its_neighbours(tmp_path: Path, compiler: str) -> None:
    need(compiler)
    (tmp_path / "program.c").write_text(SOURCE)
    program = tmp_path / "program"
    flags = ["-O2", "-freorder-blocks-and-partition", "-fasynchronous-unwind-tables"]
    subprocess.run([compiler, *flags, "-o", program, tmp_path / "program.c"], check=True)
    table = read_elf_symbols(open_elf(program), SHT_SYMTAB)
    named = dict(
        zip(table.names(range(len(table))), zip(table.start.tolist(), table.end.tolist(), strict=True), strict=True)
    )
    stripper = shutil.which(compiler.replace("gcc", "strip")) or "strip"
    subprocess.run([stripper, program], check=True)
    elf = open_elf(program)
    for name in ("loop", "other"):
        assert other_parts(elf, *named[name]) == [named[f"{name}.cold"]]
        assert other_parts(elf, *named[f"{name}.cold"]) == [named[name]]
    assert not other_parts(elf, *named["rare"])
    assert not other_parts(elf, 1 << 40, 1 << 41)
