"""Random programs as libraries that take turns at one address: what is mapped there changes many times a second."""

import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from builders.call_paths import CallPath, Program, make_program

_BUFFERS = "static char from[200000], to[200000];"
_HOST = """
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
    double seconds = atof(argv[1]);
    int rounds = atoi(argv[2]);
    struct timespec start, now;
    void *first = NULL;
    clock_gettime(CLOCK_MONOTONIC, &start);
    for (int turn = 0;; turn++) {
        void *library = dlopen(argv[3 + turn % (argc - 3)], RTLD_NOW | RTLD_LOCAL);
        int (*run)(int) = library ? dlsym(library, "run") : NULL;
        if (!run) {
            fprintf(stderr, "%s\\n", dlerror());
            return 1;
        }
        if (first && ((char *)run - (char *)first > 65536 || (char *)first - (char *)run > 65536)) {
            fprintf(stderr, "a library is not where the one before was\\n");
            return 1;
        }
        first = (void *)run;
        for (int round = 0; round < rounds; round++) {
            run(argc);
            __asm__ volatile("" ::: "memory");
        }
        dlclose(library);
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) * 1e-9 > seconds)
            return 0;
    }
}
"""


@dataclass(frozen=True, slots=True)
class Turns:
    """A program that loads libraries one after the other.

    Attributes:
        command: how it is run; to be preceded by nothing, followed by nothing.
        program: what is true of it, for `call_paths.judge`.
    """

    command: tuple[str | Path, ...]
    program: Program


def build_turns(
    seeds: Sequence[int],
    folder: Path,
    compiler: Sequence[str] = ("gcc",),
    flags: Iterable[str] = ("-O2",),
    *,
    seconds: float,
    rounds: int,
) -> Turns:
    """Compile a program that runs each random program so many rounds, then the next, as libraries in turn."""
    folder.mkdir(parents=True, exist_ok=True)
    common = [*compiler, *flags, "-w"]
    paths: list[CallPath] = []
    libraries = []
    for seed in seeds:
        own = f"cp_s{seed}_"
        program = make_program(seed)
        # One round of its main, as a function that is named after it.
        calls = program.main.partition("    do {\n")[2].partition("        clock_gettime")[0]
        text = program.main.partition("\nint main(")[0] + program.library.partition("i++)")[2].partition("\n")[2]
        text += f"ALONE int cp_round(int x)\n{{\n{calls}    return x;\n}}\n"
        # One pair of buffers, so that all libraries are of one size.
        text = text.replace(_BUFFERS, "").replace("#if defined", f"{_BUFFERS}\n#if defined", 1)
        text = text.replace("cp_", own) + f"int run(int x) {{ int r = {own}round(x); STAY; return r; }}\n"
        source = folder / f"turn{seed}.c"
        source.write_text(text)
        libraries.append(folder / f"turn{seed}.so")
        subprocess.run([*common, "-shared", "-fPIC", "-o", libraries[-1], source], check=True)
        for path in program.paths:
            named = tuple(name.replace("cp_", own) for name in ("cp_round", *path.functions))
            paths.append(replace(path, functions=named))
    (folder / "host.c").write_text(_HOST)
    subprocess.run([*common, "-o", folder / "host", folder / "host.c", "-ldl"], check=True)
    return Turns((folder / "host", str(seconds), str(rounds), *libraries), Program("", "", tuple(paths)))
