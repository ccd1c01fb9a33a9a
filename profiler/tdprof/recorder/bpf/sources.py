"""What the BPF programs are compiled from, and the objects that a wheel has of them."""

import json
import os
import re
import zlib
from pathlib import Path
from typing import Any

from tdprof.recorder.bpf.object_file import BpfObject

# Each has an object in a wheel (tools/generate-bpf).
MACHINES = ("x86_64", "aarch64")
# bcc rewrites the methods of maps in the text that it is given, but not in headers.
_PART = re.compile(r'^#include "(\w+\.bpf\.h)"\n', re.MULTILINE)


def folder_of_sources() -> Path:
    """The package's ``bpf/``. `importlib.resources` would load `zipfile` and more to say the same."""
    return Path(__file__).parents[2] / "bpf"


def checksums(folder: Path) -> dict[str, int]:
    """The CRC-32 of each source by its name. They tell what an object was made of; they are no protection."""
    found = {}
    for parent, _, names in os.walk(folder):  # half the time of `glob`, at every start
        below = parent[len(str(folder)) + 1 :]
        for name in names:
            if name.endswith((".h", ".bpf.c")):
                found[f"{below}/{name}" if below else name] = zlib.crc32(Path(parent, name).read_bytes())
    return found


def program_text(folder: Path) -> str:
    """``sample.bpf.c`` with its parts, the files ``*.bpf.h``, where it includes them; lines keep their numbers."""
    main = folder / "sample.bpf.c"

    def part(found: re.Match[str]) -> str:
        next_line = found.string.count("\n", 0, found.end()) + 1
        return f'#line 1 "{found[1]}"\n{(folder / found[1]).read_text()}#line {next_line} "{main.name}"\n'

    return _PART.sub(part, main.read_text())


def compiler_request(folder: Path, machine: str) -> dict[str, Any]:
    """What the compiler is asked; see compiler.py for the keys."""
    return {
        "text": program_text(folder),
        "include": str(folder),
        "headers": str(folder / "stand-in"),
        "machine": machine,
    }


def shipped_object(folder: Path, machine: str) -> BpfObject | None:
    """The object for a machine that came with the sources, if it was made of exactly these."""
    try:
        content = json.loads((folder / "objects" / f"{machine}.json").read_bytes())
        if content["machine"] != machine or content["sources"] != checksums(folder):
            return None
        return BpfObject.from_json(content["object"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
