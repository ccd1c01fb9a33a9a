# SPDX-License-Identifier: Apache-2.0
"""Seeds for tools/fuzz/unwind: the beginnings of real programs' sections.

python unwind_seeds.py FOLDER
"""

import sys
from pathlib import Path

from tdprof.linux.elf import ElfError, open_elf

_PROGRAMS = [
    "/proc/self/exe",
    "/usr/aarch64-linux-gnu/lib/libc.so.6",
    "/usr/lib/go/bin/gofmt",
    "/lib64/ld-linux-x86-64.so.2",
]
_SECTIONS = {".eh_frame": 0, ".debug_frame": 1, ".gopclntab": 2}
_BYTES = 3000


def main(folder: Path) -> None:
    for number, program in enumerate(_PROGRAMS):
        try:
            elf = open_elf(program)
        except (OSError, ElfError):
            continue
        for name, which in _SECTIONS.items():
            section = elf.section(name)
            if section:
                data = bytes(elf.section_data(section)[:_BYTES])
                (folder / f"{number}{name}").write_bytes(bytes([which, elf.machine == 183]) + data)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
