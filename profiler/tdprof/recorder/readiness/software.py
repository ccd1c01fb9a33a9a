"""Checks of the software around the recording: bcc, the compiled parts, debug data."""

import ctypes
import importlib.util
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from tdprof.linux.elf import ElfError, open_elf
from tdprof.native.library import load_native
from tdprof.recorder.bpf.object_file import BpfObject
from tdprof.recorder.readiness.check import Check, CheckStatus
from tdprof.recorder.readiness.machine import Machine

_IMPORT_TIMEOUT_S = 20


def check_bcc(machine: Machine, interpreters: Sequence[str], shipped: BpfObject | None) -> Check:
    """Whether one of the interpreters imports bcc, of which the loader takes the first. Needed if nothing shipped."""
    if shipped:
        return Check(
            "bcc", CheckStatus.OK, f"not needed: the BPF programs came compiled (bcc {shipped.compiler.version})"
        )
    tried = []
    for interpreter in interpreters:
        try:
            result = subprocess.run(
                [interpreter, "-I", "-c", "import bcc; print(bcc.__version__)"],
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_IMPORT_TIMEOUT_S,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            tried.append(f"{interpreter}: {error}")
            continue
        if result.returncode == 0:
            return Check("bcc", CheckStatus.OK, f"{result.stdout.strip()} through {interpreter}")
        last_line = result.stderr.strip().rpartition("\n")[2]
        tried.append(f"{interpreter}: {last_line or f'status {result.returncode}'}")
    fix = machine.install_command("bcc") or "install your distribution's Python package of bcc"
    return Check(
        "bcc",
        CheckStatus.WARN,
        "; ".join(tried) or "no Python interpreter found",
        "no BPF: samples go through ring buffers",
        fix,
    )


def _loads(library: Path) -> bool:
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return False
    return True


def check_compiled_parts() -> Check:
    """The two C libraries, each of which has a slower equal in Python."""
    missing = [] if load_native() else ["tdprof"]
    spe = importlib.util.find_spec("arm_spe")
    folder = Path(spe.origin).parent if spe and spe.origin else None
    if folder and not any(_loads(path) for path in folder.glob("_native*.so")):
        missing.append("arm_spe")
    if not missing:
        return Check("compiled-parts", CheckStatus.OK, "present")
    return Check(
        "compiled-parts",
        CheckStatus.WARN,
        f"not built for {' and '.join(missing)}: there was no working C compiler at installation",
        "decoding runs in Python, with the same results, many times slower",
        f"install gcc, then {sys.executable} -m pip install --force-reinstall --no-deps --no-cache-dir PATH_OF_TDPROF",
    )


def own_libc(machine: Machine) -> Path | None:
    """The C library this process runs on; None where /proc does not show it."""
    for line in machine.text("/proc/self/maps").splitlines():
        path = line.split(maxsplit=5)[-1]
        if Path(path).name.startswith(("libc.so", "libc-", "ld-musl")):
            return machine.path(path)
    return None


def check_debug_data(machine: Machine) -> Check:
    """Whether debug data of system libraries is at hand, with this process's C library as the example."""
    name, libc = "debug-data", own_libc(machine)
    if libc is None:
        return Check(name, CheckStatus.UNKNOWN, "the C library of this process could not be found in /proc/self/maps")
    try:
        elf = open_elf(libc)
    except (OSError, ElfError) as error:
        return Check(name, CheckStatus.UNKNOWN, f"{libc} cannot be read: {error}")
    if any(section.name in (".debug_info", ".zdebug_info") for section in elf.sections):
        return Check(name, CheckStatus.OK, f"{libc.name} carries its own")
    if elf.build_id:
        place = f"/usr/lib/debug/.build-id/{elf.build_id[:2]}/{elf.build_id[2:]}.debug"
        if machine.has(place):
            return Check(name, CheckStatus.OK, f"of {libc.name}: {place}")
    detail = f"none of {libc.name} here, and no debuginfod server named"
    if servers := sum("://" in url for url in os.environ.get("DEBUGINFOD_URLS", "").split()):
        asked = f"none of {libc.name} here; a report asks the {servers} of $DEBUGINFOD_URLS, which was not tried"
        return Check(name, CheckStatus.UNKNOWN, asked)
    fix = machine.install_command("debug") or "install your distribution's debug package of the C library"
    cost = "inside system libraries no lines, no inlined frames, and no names of functions they do not export"
    return Check(name, CheckStatus.WARN, detail, cost, fix)
