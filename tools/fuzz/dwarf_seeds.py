"""Writes seeds for tools/fuzz/symbols: the debug sections of small programs, compiled in several ways."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tdprof.linux.elf import Elf, open_elf
from tdprof.native.dwarf_api import SECTIONS
from tdprof.symbolize.debug_sections import read_debug_sections

SOURCE = """
static inline int square(int x) { return x * x; }
static inline int twice(int x) { return square(x) + square(x + 1); }
int __attribute__((noinline)) work(int n) { int s = 0; for (int i = 0; i < n; i++) s += twice(i); return s; }
int main(int argc, char **argv) { (void)argv; return work(argc); }
"""
WAYS = [
    ["gcc", "-gdwarf-5"],
    ["gcc", "-gdwarf-4"],
    ["gcc", "-gdwarf-3"],
    ["gcc", "-gdwarf-5", "-gdwarf64"],
    ["gcc", "-gdwarf-5", "-gsplit-dwarf"],
    ["gcc", "-gdwarf-4", "-gsplit-dwarf"],
    ["gcc", "-gdwarf-5", "-ffunction-sections"],
    ["gcc", "-gdwarf-5", "-flto"],
    ["clang", "-gdwarf-5"],
    ["clang", "-gdwarf-4"],
    ["clang", "-gdwarf-5", "-gsplit-dwarf"],
]


def write_seed(elf: Elf, suffix: str, path: Path) -> None:
    sections = read_debug_sections(elf, suffix)
    parts = [bytes(sections.get(name, b"")) for name in SECTIONS]
    path.write_bytes(b"".join(len(part).to_bytes(3, "little") for part in parts) + b"".join(parts))


def main() -> None:
    target = Path(sys.argv[1])
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "a.c").write_text(SOURCE)
        for number, (compiler, *flags) in enumerate(WAYS):
            if shutil.which(compiler) is None:
                continue
            command = [compiler, "-O2", *flags, "-c", "a.c", "-o", "a.o"]
            subprocess.run(command, cwd=folder, check=True)
            # Linked, so that addresses are in place, but without the C library's own debug data.
            link = [compiler, "-nostdlib", "-Wl,-e,main", "a.o", "-o", "a"]
            subprocess.run(link, cwd=folder, check=True)
            write_seed(open_elf(folder / "a"), "", target / f"seed-{number}")
            for split in folder.glob("*.dwo"):
                write_seed(open_elf(split), ".dwo", target / f"seed-{number}-dwo")
                split.unlink()


if __name__ == "__main__":
    main()
