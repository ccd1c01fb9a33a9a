"""Two programs of known call paths that are mapped over each other (MAP_FIXED), many times a second."""

import subprocess
from pathlib import Path

from builders.call_paths import ROUND_ITERATIONS, CallPath, Program
from builders.library_turns import Turns

# Frames of other sizes at the same addresses: by the other's rules a walk finds no caller, or a wrong one.
_FRAMES = ((16, 64, 400, 40), (240, 24, 120, 900))
_TURN = """
#define ALONE __attribute__((noinline, noclone, used)) static
ALONE int NAME(leaf)(int x) { for (long i = 0; i < ITERATIONS; i++) __asm__ volatile("" : "+r"(i)); return x + 1; }
#define CALLS(name, callee, size) ALONE int NAME(name)(int x) { \\
    volatile char room[size]; room[x & 7] = 1; int r = NAME(callee)(x); return r + room[x & 7]; }
CALLS(inner, leaf, FRAME0) CALLS(middle, inner, FRAME1) CALLS(outer, middle, FRAME2) CALLS(first, outer, FRAME3)
int run(int x) { int r = NAME(first)(x); __asm__ volatile("" ::: "memory"); return r; }
"""
_HOST = """
#include <elf.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>

int main(int argc, char **argv)
{
    double seconds = atof(argv[1]);
    int rounds = atoi(argv[2]);
    struct timespec start, now;
    char *base = mmap(0, 1 << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &start);
    for (int turn = 0;; turn++) {
        int fd = open(argv[3 + turn % (argc - 3)], O_RDONLY);
        const Elf64_Ehdr *file = mmap(0, 4096, PROT_READ, MAP_PRIVATE, fd, 0);
        const Elf64_Phdr *part = (const void *)((const char *)file + file->e_phoff);
        for (int i = 0; i < file->e_phnum; i++, part++)
            if (part->p_type == PT_LOAD && part->p_flags & PF_X)
                mmap(base + (part->p_vaddr & ~4095), part->p_filesz + (part->p_vaddr & 4095), PROT_READ | PROT_EXEC,
                     MAP_PRIVATE | MAP_FIXED, fd, part->p_offset & ~4095);
        int (*run)(int) = (int (*)(int))(base + file->e_entry);
        munmap((void *)file, 4096);
        for (int round = 0; round < rounds; round++) {
            run(argc & 1);
            __asm__ volatile("" ::: "memory");
        }
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
        if (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) * 1e-9 > seconds)
            return 0;
    }
}
"""


def build_fixed_turns(folder: Path, *, seconds: float, rounds: int) -> Turns:
    """Compile a program that runs each so many rounds, then maps the other over it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "turn.c").write_text(_TURN)
    (folder / "host.c").write_text(_HOST)
    files, paths = [], []
    for number, frames in enumerate(_FRAMES):
        defined = [f"-DFRAME{at}={size}" for at, size in enumerate(frames)]
        defined += [f"-DNAME(name)=cp_f{number}_##name", f"-DITERATIONS={ROUND_ITERATIONS}"]
        files.append(folder / f"turn{number}.so")
        flags = ["-O2", "-w", "-shared", "-fPIC", "-nostdlib", "-fno-stack-protector", "-Wl,-e,run"]
        subprocess.run(["gcc", *flags, *defined, "-o", files[-1], folder / "turn.c"], check=True)
        names = tuple(f"cp_f{number}_{name}" for name in ("first", "outer", "middle", "inner", "leaf"))
        paths.append(CallPath(names, ROUND_ITERATIONS))
    subprocess.run(["gcc", "-O2", "-w", "-o", folder / "host", folder / "host.c"], check=True)
    return Turns((folder / "host", str(seconds), str(rounds), *files), Program("", "", tuple(paths)))
