# SPDX-License-Identifier: Apache-2.0
"""Does tdprof tell the truth on this machine? Micro-benchmarks of known behaviour, and what must hold of them.

    tools/validate                          five minutes, on any Arm Linux with an installed tdprof; best as root
    tools/validate --pack validate.pyz      the kit with its compiled program, for machines without a compiler
    python3 validate.pyz

Prints each check with what tdprof says and writes one file to send back: the checks, the captures, what the machine is.
Exit status: 0 all that was measured holds; 1 something does not; 2 wrong options; 3 nothing was measured or written.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import stat
import subprocess
import sys
import tarfile
import tempfile
import time
import zipapp
from pathlib import Path
from typing import NoReturn

from checks import Check, check_all
from measure import Measured, NotMeasuredError, Setup, machine, measure, run

HERE = Path(__file__).parent
PROGRAM = "programs"
SOURCE = "programs.c"
FLAGS = ("-O1", "-g", "-no-pie", "-pthread")
# Of a benchmark in one recording: under 900 seconds all of them together, after which a recording is given up.
MOST_SECONDS = 60.0


def give_up(why: str) -> NoReturn:
    """End with the reason, and the status of nothing measured."""
    print(f"validate: {why}", file=sys.stderr)
    sys.exit(3)


def build(target: Path, *flags: str) -> None:
    """Compile the benchmarks, for aarch64 wherever this is."""
    compiler = "gcc" if platform.machine() == "aarch64" else "aarch64-linux-gnu-gcc"
    if not shutil.which(compiler):
        package = "gcc libc6-dev" if compiler == "gcc" else "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
        give_up(f"no {compiler} here\n  apt-get install {package}; or tools/validate --pack on another machine")
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / SOURCE
        source.write_bytes(_read(SOURCE))
        command = [compiler, *FLAGS, *flags, "-o", str(target), str(source)]
        done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    if done.returncode:
        # Some distributions have the static C library in a package of its own.
        give_up(f"{compiler} fails (its C library, libc6-dev or glibc-static?)\n{done.stderr.rstrip()}")


def _read(name: str) -> bytes:
    """A file of the kit, which may be a zip file."""
    data = __loader__.get_data(str(HERE / name))  # type: ignore[name-defined]
    return bytes(data)


def program(folder: Path) -> Path:
    """The benchmarks: those that were packed, else compiled now."""
    target = folder / PROGRAM
    try:
        target.write_bytes(_read(PROGRAM))
        target.chmod(target.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    except OSError:
        build(target)
    return target


def pack(target: Path) -> None:
    """A file that runs with any Python 3.9, with the compiled benchmarks in it."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for each in ("__main__.py", "checks.py", "measure.py", SOURCE):
            (folder / each).write_bytes(_read(each))
        build(folder / PROGRAM, "-static")  # whatever C library the other machine has
        zipapp.create_archive(folder, target, "/usr/bin/env python3", compressed=True)
    print(f"{target}: python3 {target.name}, where tdprof is installed")


def seconds(text: str) -> float:
    """How long a benchmark may run."""
    number = float(text)
    if not 0 < number <= MOST_SECONDS:
        raise argparse.ArgumentTypeError(f"more than 0 and at most {MOST_SECONDS:g}")
    return number


def mebibytes(text: str) -> int:
    """How much memory a benchmark may take; from one page of a line on."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("at least 1")
    return number


def new_file(text: str) -> Path:
    """Where a file can be made, which is looked at before minutes of measuring."""
    path = Path(text)
    if path.is_dir() or not os.access(path if path.exists() else path.absolute().parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text} cannot be written")
    return path


def as_text(checks: list[Check], found: Measured) -> str:
    """One line a check, what does not hold and what is not known told apart; then why parts are missing."""
    marks = {True: "holds", False: "DOES NOT HOLD", None: "not known"}
    width = max(len(check.about) for check in checks)
    must = max(len(check.must) for check in checks)
    lines = [f"{marks[check.holds]:13}  {check.about:{width}}  {check.must:{must}}  {check.says}" for check in checks]
    lines += [f"no {part}: {reason}" for part, reason in found.missing.items()]
    count = {kind: sum(check.holds is kind for check in checks) for kind in marks}
    lines.append(f"{count[True]} hold, {count[False]} do not, {count[None]} are not known")
    return "\n".join(lines) + "\n"


def write_file(target: Path, folder: Path, checks: list[Check], found: Measured) -> None:
    """All that explains a check, in one file."""
    (folder / "checks.txt").write_text(as_text(checks, found))
    whole = {"machine": machine(), "missing": found.missing, "checks": [vars(check) for check in checks]}
    (folder / "checks.json").write_text(json.dumps(whole, indent=1))
    for name, words in {"doctor.json": ["doctor", "--json"], "version.txt": ["--version"]}.items():
        try:
            (folder / name).write_text(run(["tdprof", *words]))
        except NotMeasuredError as error:
            (folder / name).write_text(str(error))
    with tarfile.open(target, "w:gz") as archive:
        archive.add(folder, "tdprof-validation")


def main() -> int:
    """The kit's command line."""
    parser = argparse.ArgumentParser(
        prog="validate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--pack", type=new_file, metavar="FILE", help="write the kit with its compiled program, and end"
    )
    parser.add_argument(
        "--seconds", type=seconds, default=4, help="how long each benchmark runs under Topdown; a quarter under SPE [4]"
    )
    parser.add_argument("--memory-mb", type=mebibytes, default=512, help="the most memory a benchmark takes [512]")
    name = f"tdprof-validation-{time.strftime('%Y%m%d-%H%M%S')}.tar.gz"
    parser.add_argument(
        "-o", "--output", type=new_file, default=name, metavar="FILE",
        help="the file to write [tdprof-validation-TIME.tar.gz]",
    )  # fmt: skip
    options = parser.parse_args()
    if options.pack:
        pack(options.pack)
        return 0
    if platform.machine() != "aarch64":
        give_up(f"this machine is {platform.machine()}, not aarch64\n  tools/validate --pack makes a file for one")
    if not shutil.which("tdprof"):
        give_up("no tdprof here\n  pip install tdprof; docs/wheels.md says from where")
    with tempfile.TemporaryDirectory(prefix="tdprof-validation-") as name:
        folder = Path(name)
        milliseconds = round(options.seconds * 1000)
        found = measure(Setup(program(folder), folder, milliseconds, milliseconds // 4, options.memory_mb))
        checks = check_all(found)
        print(as_text(checks, found), end="")
        write_file(options.output, folder, checks, found)
    print(f"written: {options.output}")
    if any(check.holds is False for check in checks):
        return 1
    return 0 if any(check.holds for check in checks) else 3


if __name__ == "__main__":
    try:
        sys.exit(main())
    except OSError as error:
        give_up(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
