"""The text of the kernel's list of symbols. Apart from `kallsyms`, so that it is read while NumPy is loaded."""

import os
import threading
from pathlib import Path

from tdprof.linux.file_bytes import open_regular
from tdprof.recorder.host import KALLSYMS

# The kernel gives half a page of /proc/kallsyms or less to a buffer in full, and goes on with the next one; of a larger
# one it ends a call after a page. A thread has to wait for the interpreter after each call.
_BUFFER_BYTES, _BUFFERS = 2048, 512


def read_kallsyms(path: Path = KALLSYMS) -> bytes:
    """The list; nothing where it cannot be read."""
    pieces = list[memoryview]()
    try:
        descriptor = open_regular(path)
        try:
            while True:
                piece = memoryview(bytearray(_BUFFER_BYTES * _BUFFERS))
                buffers = [piece[at : at + _BUFFER_BYTES] for at in range(0, len(piece), _BUFFER_BYTES)]
                if not (count := os.readv(descriptor, buffers)):
                    return b"".join(pieces)
                pieces.append(piece[:count])
        finally:
            os.close(descriptor)
    except OSError:
        return b""


class KallsymsAhead:
    """The list of this kernel, read by a thread from now on: the kernel takes longer to write it than a table takes."""

    def __init__(self) -> None:
        self._text = b""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._text = read_kallsyms()

    def text(self) -> bytes:
        """The list, once it is read."""
        self._thread.join()
        return self._text
