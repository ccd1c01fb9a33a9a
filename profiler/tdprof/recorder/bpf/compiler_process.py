"""The child that compiles the BPF programs, for which it takes longer than everything else before the start."""

import contextlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def bpf_interpreters() -> list[str]:
    """Interpreters that may see the distribution's bcc: ours, then the distribution's.

    A virtual environment's python is the same file as the one it was made of, and yet sees other packages.
    """
    found = [sys.executable]
    for name in ("/usr/bin/python3", shutil.which("python3")):
        if name and name not in found and Path(name).exists():
            found.append(name)
    return found


class CompilerProcess:
    """Runs ``compiler.py``, which imports bcc at once and then waits to be asked.

    Use as a context manager: leaving it ends a child that nobody asked.
    """

    def __init__(self) -> None:
        self._interpreters = bpf_interpreters()
        self._request = b""
        self._spawn()

    def _spawn(self) -> None:
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        self._process = subprocess.Popen(
            [self._interpreters.pop(0), "-I", str(Path(__file__).with_name("compiler.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
        )

    def ask(self, request: dict[str, Any]) -> None:
        """Say what to compile; see ``compiler.py`` for the keys."""
        self._request = json.dumps(request).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        assert self._process.stdin
        try:
            self._process.stdin.write(self._request)
            self._process.stdin.flush()
        except BrokenPipeError:  # it could not import bcc, and says so in its answer
            return

    def answer(self) -> tuple[dict[str, Any], list[str]]:
        """Wait for it: what the child answered, and if that is an error the lines that it and clang printed.

        An interpreter that cannot import bcc is followed by the next.
        """
        while True:
            assert self._process.stdout
            line = self._process.stdout.readline()
            answer = json.loads(line) if line.endswith(b"\n") else {"error": "the compiler died", "stage": "compile"}
            if "error" not in answer:
                return answer, []  # without waiting for the child's end: it gives 100 MB back first
            self._process.wait()
            if answer["stage"] != "import" or not self._interpreters:
                self._log.seek(0)
                return answer, self._log.read().decode(errors="replace").strip().splitlines()
            self.close()
            self._spawn()
            self._send()

    def close(self) -> None:
        """End the child, if it has not ended."""
        assert self._process.stdin
        assert self._process.stdout
        with contextlib.suppress(BrokenPipeError):  # what it was asked was never read
            self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()
        self._log.close()

    def __enter__(self) -> "CompilerProcess":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
