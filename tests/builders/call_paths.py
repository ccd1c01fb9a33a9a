"""Random C programs whose call paths, and the share of time that each has, are known."""

import random
import subprocess
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

# What stands between a caller and the function that it calls; each is hard for some way to walk a stack.
KINDS = (
    "plain",
    "pointer",
    "callback",
    "variadic",
    "alloca",
    "big_frame",
    "aligned",
    "many_arguments",
    "library",
    "recursive",
    "signal",
    "floating",
)
LEAVES = ("loop", "loop", "loop", "library_loop", "memory")
ROUND_ITERATIONS = 200_000
MOST_RECURSION = 6

_HEAD = """
#include <alloca.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__clang__)
#define ALONE __attribute__((noinline))
#else
#define ALONE __attribute__((noipa))
#endif
/* After a call: so that it is no tail call, which would leave no frame. */
#define STAY __asm__ volatile("" ::: "memory")
#define LOOP(n) for (long i = 0; i < (n); i++) __asm__ volatile("" : "+r"(i))
"""


@dataclass(frozen=True, slots=True)
class CallPath:
    """One path that the program takes.

    Attributes:
        functions: names from below ``main`` to the leaf.
        iterations: of its leaf's loop in each round; 0 where the leaf spends its time in the C library.
    """

    functions: tuple[str, ...]
    iterations: int


@dataclass(frozen=True, slots=True)
class Program:
    """Sources of a program and its library, and what is true of it."""

    main: str
    library: str
    paths: tuple[CallPath, ...]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Weights of the samples of a program below its ``main``, by how their stacks compare with its paths.

    Attributes:
        exact: the true path, up to where the sample was taken.
        wrong: a path that the program does not have, with no sign of it.
        incomplete: said to be incomplete or guessed.
        by_path: weights of the exact ones that had reached their path's leaf, in the order of the paths.
        leaf: taken in a path's leaf, or in what that calls.
        leaf_exact: those of them that have the leaf's true caller, complete or not.
        examples: the heaviest wrong ones.
        reasons: weights of the incomplete ones, by the first mark that says why.
    """

    exact: int
    wrong: int
    incomplete: int
    by_path: tuple[int, ...]
    leaf: int
    leaf_exact: int
    examples: tuple[str, ...]
    reasons: Mapping[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return self.exact + self.wrong + self.incomplete


def make_program(seed: int, paths: int = 8, most_calls: int = 7) -> Program:
    """A program that is the same for a seed."""
    rng = random.Random(seed)
    main, library, found, calls = [_HEAD], [_HEAD], [], []
    for number in range(paths):
        leaf = LEAVES[number] if number < 2 else rng.choice(LEAVES)
        iterations = rng.randint(ROUND_ITERATIONS // 8, ROUND_ITERATIONS) if "loop" in leaf else 0
        name = f"cp_{number}_leaf"
        (library if leaf == "library_loop" else main).append(_leaf(name, leaf, iterations))
        functions = [name]
        kinds = [KINDS[(seed + number) % len(KINDS)]]
        kinds += rng.choices(KINDS, k=rng.randint(0, most_calls - 1))
        for depth, kind in enumerate(kinds):
            caller = f"cp_{number}_{depth}_{kind}"
            text, between = _caller(caller, kind, functions[0], rng)
            (library if kind == "library" else main).append(text)
            functions = [*between, *functions]
        calls.append(f"        {functions[0]}(x);")
        found.append(CallPath(tuple(functions), iterations))
    rng.shuffle(calls)
    body = "\n".join(calls)
    main.append(f"""
int main(int argc, char **argv)
{{
    double seconds = argc > 1 ? atof(argv[1]) : 1.0;
    struct timespec start, now;
    volatile int x = argc;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &start);
    do {{
{body}
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    }} while (now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) * 1e-9 < seconds);
    return 0;
}}
""")
    return Program("".join(main), "".join(library), tuple(found))


def _leaf(name: str, kind: str, iterations: int) -> str:
    if kind == "memory":
        return f"""
ALONE int {name}(int x)
{{
    static char from[200000], to[200000];
    for (int i = 0; i < 20; i++) {{
        memcpy(to, from, sizeof(to) - x);
        STAY;
        if (memchr(to, 1, sizeof(to) - x)) x++;
        STAY;
    }}
    return x;
}}
"""
    # Aligned, so that all loops are equally fast.
    return f"""
ALONE __attribute__((aligned(64))) int {name}(int x)
{{
    LOOP({iterations}L);
    return x + 1;
}}
"""


def _caller(name: str, kind: str, callee: str, rng: random.Random) -> tuple[str, list[str]]:
    """A function that calls another, and the names that a stack has of it, outermost first."""
    declare = f"\nint {callee}(int x);\n"
    call = f"int r = {callee}(x); STAY;"
    between = [name]
    if kind == "pointer":
        text = f"int (*volatile {name}_to)(int) = {callee};\nALONE int {name}(int x)\n{{\n"
        text += f"    int r = {name}_to(x); STAY; return r + 1;\n}}\n"
    elif kind == "callback":
        between = [name, f"{name}_compare"]
        text = f"ALONE int {name}_compare(const void *a, const void *b)\n{{\n"
        text += f"    int r = {callee}(*(const int *)a); STAY; return r > *(const int *)b;\n}}\n"
        text += f"ALONE int {name}(int x)\n{{\n    int pair[2] = {{x, x}};\n"
        text += f"    qsort(pair, 2, sizeof(int), {name}_compare); STAY; return pair[0];\n}}\n"
    elif kind == "variadic":
        between = [name, f"{name}_list"]
        text = f"ALONE int {name}_list(int x, ...)\n{{\n    va_list list; va_start(list, x);\n"
        text += f"    double d = va_arg(list, double); int more = va_arg(list, int); va_end(list);\n    {call}\n"
        text += "    return r + (int)d + more;\n}\n"
        text += f"ALONE int {name}(int x)\n{{\n    int r = {name}_list(x, 1.5 * x, x); STAY; return r;\n}}\n"
    elif kind == "alloca":
        text = f"ALONE int {name}(int x)\n{{\n    volatile char *room = alloca(16 + (x & 7) * {rng.randint(8, 900)});\n"
        text += f"    room[x & 7] = 1; {call} return r + room[x & 7];\n}}\n"
    elif kind == "big_frame":
        size = rng.choice((5_000, 20_000, 100_000))
        text = f"ALONE int {name}(int x)\n{{\n    volatile char room[{size}]; room[0] = room[{size} - 1] = x;\n"
        text += f"    {call} return r + room[0] + room[{size} - 1];\n}}\n"
    elif kind == "aligned":
        text = (
            f"ALONE int {name}(int x)\n{{\n    volatile char room[64] __attribute__((aligned({rng.choice((32, 64))})));"
        )
        text += f" room[x & 7] = x;\n    {call} return r + room[x & 7];\n}}\n"
    elif kind == "many_arguments":
        between = [name, f"{name}_of"]
        text = f"ALONE int {name}_of(int x, int a, int b, int c, int d, int e, int f, int g, int h, int i)\n{{\n"
        text += f"    {call} return r + a + b + c + d + e + f + g + h + i;\n}}\n"
        text += (
            f"ALONE int {name}(int x)\n{{\n    int r = {name}_of(x, 1, 2, 3, 4, 5, 6, 7, 8, 9); STAY; return r;\n}}\n"
        )
    elif kind == "recursive":
        again = rng.randint(2, MOST_RECURSION)
        between = [name, *[f"{name}_again"] * again]
        text = f"ALONE int {name}_again(int x, int n)\n{{\n    int r = n > 1 ? {name}_again(x, n - 1) : {callee}(x);"
        text += f" STAY; return r + 1;\n}}\nALONE int {name}(int x)\n{{\n    int r = {name}_again(x, {again}); STAY;"
        text += " return r;\n}\n"
    elif kind == "signal":
        between = [name, f"{name}_handler"]
        text = f"ALONE void {name}_handler(int s)\n{{\n    volatile int r = {callee}(s & 1); STAY; r = r + 1;\n}}\n"
        # A handler below a handler of the same signal: not blocked while it runs.
        text += f"ALONE int {name}(int x)\n{{\n    struct sigaction action = {{.sa_handler = {name}_handler,"
        text += " .sa_flags = SA_NODEFER};\n    sigaction(SIGUSR1, &action, 0); raise(SIGUSR1); STAY; return x;\n}\n"
    elif kind == "floating":
        text = f"ALONE int {name}(int x)\n{{\n    double a = x * 1.5, b = x + 0.25; {call}\n"
        text += "    return r + (int)(a * b);\n}\n"
    else:  # plain, library
        text = f"ALONE int {name}(int x)\n{{\n    {call} return r + 1;\n}}\n"
    return declare + text, between


def build_program(
    program: Program, folder: Path, compiler: Sequence[str] = ("gcc",), flags: Iterable[str] = ("-O2",)
) -> Path:
    """Compile and link it, with its library beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "paths.c").write_text(program.main)
    (folder / "library.c").write_text(program.library)
    common = [*compiler, *flags, "-w"]
    # Functions of the library that are called through its own table of addresses, and call the program's.
    subprocess.run([*common, "-shared", "-fPIC", "-o", folder / "libpaths.so", folder / "library.c"], check=True)
    binary = folder / "paths"
    subprocess.run(
        [*common, "-rdynamic", "-o", binary, folder / "paths.c", "-L", folder, "-lpaths", "-Wl,-rpath,$ORIGIN"],
        check=True,
    )
    return binary


def judge(program: Program, stacks: Iterable[tuple[Sequence[str], int]]) -> Verdict:
    """Compare sampled stacks with the program's paths.

    Args:
        stacks: function names from the root to the leaf, and a weight, of each stack. Names that are not the program's
            (the C library's, its start) are passed over; one that begins with ``[incomplete`` marks the stack, as
            does one that ends with ``[guessed]``.
    """
    prefixes: dict[tuple[str, ...], int | None] = {("main",): None}
    for number, path in enumerate(program.paths):
        whole = ("main", *path.functions)
        for length in range(2, len(whole)):
            prefixes[whole[:length]] = None
        prefixes[whole] = number
    callers = {path.functions[-1]: ("main", *path.functions)[-2:] for path in program.paths}
    exact = wrong = incomplete = leaf = leaf_exact = 0
    by_path = [0] * len(program.paths)
    examples: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    for names, weight in stacks:
        own = tuple(name for name in names if name == "main" or name.startswith("cp_"))
        if own and own[-1] in callers:
            leaf += weight
            leaf_exact += weight * (own[-2:] == callers[own[-1]])
        if marks := [name for name in names if name.startswith("[incomplete") or name.endswith("[guessed]")]:
            if own:
                incomplete += weight
                reasons[marks[0] if marks[0].startswith("[") else "guessed"] += weight
        elif not own:
            continue  # before and after main
        elif own in prefixes:
            exact += weight
            number = prefixes[own]
            if number is not None:
                by_path[number] += weight
        else:
            wrong += weight
            examples[";".join(names)] += weight
    shown = tuple(f"{weight} {text}" for text, weight in examples.most_common(5))
    return Verdict(exact, wrong, incomplete, tuple(by_path), leaf, leaf_exact, shown, reasons)


def read_folded(text: str) -> Iterable[tuple[list[str], int]]:
    """Stacks of folded lines, without the thread that each begins with."""
    for line in text.splitlines():
        stack, weight = line.rsplit(" ", 1)
        yield stack.split(";")[1:], int(weight)
