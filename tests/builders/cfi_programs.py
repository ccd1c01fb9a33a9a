"""Small programs whose functions have every kind of frame, for tests of unwinding."""

import shutil
import subprocess
from pathlib import Path

COMPILERS = {"x86_64": "gcc", "aarch64": "aarch64-linux-gnu-gcc"}

FRAMES = Path(__file__).with_name("frames.c")
THROWS = Path(__file__).with_name("throws.c")


def compile_frames(folder: Path, arch: str, *flags: str) -> Path | None:
    """The program for one of COMPILERS' machines; None where its compiler is not installed."""
    compiler = COMPILERS[arch]
    if not shutil.which(compiler):
        return None
    program = folder / f"frames-{arch}"
    subprocess.run([compiler, "-O2", *flags, FRAMES, "-o", program], check=True)
    return program
