"""The child that compiles and loads the BPF programs: started first of all, since it takes longer than the rest."""

import json
import shutil
import socket
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


class LoaderProcess:
    """Runs ``bpf_loader.py``, which imports bcc at once and then waits to be asked.

    Use as a context manager: leaving it ends a child that nobody asked.
    """

    def __init__(self) -> None:
        self._interpreters = bpf_interpreters()
        self._request = b""
        self._spawn()

    def _spawn(self) -> None:
        self._channel, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
        script = str(Path(__file__).with_name("bpf_loader.py"))
        with theirs:
            self._process = subprocess.Popen(
                [self._interpreters.pop(0), "-I", script, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
            )

    def ask(self, request: dict[str, Any]) -> None:
        """Say what to load; see ``bpf_loader.py`` for the keys."""
        self._request = json.dumps(request).encode() + b"\n"
        self._send()

    def _send(self) -> None:
        try:
            self._channel.sendall(self._request)
        except BrokenPipeError:  # it could not import bcc, and says so in its answer
            return

    def answer(self, most_descriptors: int) -> tuple[dict[str, Any], list[int], list[str]]:
        """Wait for it: what the child answered, the descriptors, and the lines that it and clang printed.

        An interpreter that cannot import bcc is followed by the next.
        """
        while True:
            data, descriptors, _, _ = socket.recv_fds(self._channel, 1 << 16, most_descriptors)
            answer = json.loads(data) if data else {"error": "the loader died", "stage": "load"}
            if "error" not in answer:
                return answer, descriptors, []  # without waiting for the child's end: it gives 100 MB back first
            self._process.wait()
            if answer["stage"] != "import" or not self._interpreters:
                self._log.seek(0)
                return answer, descriptors, self._log.read().decode(errors="replace").strip().splitlines()
            self.close()
            self._spawn()
            self._send()

    def close(self) -> None:
        """End the child, if it has not ended."""
        self._channel.close()
        self._process.wait()
        self._log.close()

    def __enter__(self) -> "LoaderProcess":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
