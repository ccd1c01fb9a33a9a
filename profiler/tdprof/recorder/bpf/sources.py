"""What the BPF programs are compiled from."""

import zlib
from importlib.resources import files
from pathlib import Path
from typing import Any


def folder_of_sources() -> Path:
    """The package's ``bpf/``."""
    return Path(str(files("tdprof") / "bpf"))


def checksums(folder: Path) -> dict[str, int]:
    """The CRC-32 of each source by its name. They tell what an object was made of; they are no protection."""
    paths = (folder / "sample.bpf.c", *folder.glob("*.h"), *(folder / "stand-in").rglob("*.h"))
    return {path.relative_to(folder).as_posix(): zlib.crc32(path.read_bytes()) for path in sorted(paths)}


def compiler_request(folder: Path, machine: str) -> dict[str, Any]:
    """What the compiler is asked; see compiler.py for the keys."""
    return {
        "text": (folder / "sample.bpf.c").read_text(),
        "include": str(folder),
        "headers": str(folder / "stand-in"),
        "machine": machine,
    }
