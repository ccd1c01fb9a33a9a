"""A process that makes a segment's tables, while its recorder goes on and stays small.

Run as a module: from its standard input it reads what ``start_finishing`` wrote there.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tdprof.linux.own_folder import OwnFolder
    from tdprof.recorder.held_programs import HeldPrograms

_NICENESS = 19


class FinishingProcess:
    """Makes the tables of a capture whose recording has ended.

    Args:
        folder: the capture.
        held: what its recorder holds of the programs that were mapped.
    """

    def __init__(self, folder: "OwnFolder", held: "HeldPrograms | None") -> None:
        descriptors, told = held.handed_over() if held else ([], [])
        request = {"folder": folder.fd, "shown": str(folder.shown), "held": told}
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - `result` closes it
        with tempfile.TemporaryFile() as said:
            said.write(json.dumps(request).encode())
            said.seek(0)
            # In a session of its own: Ctrl-C ends the recording, not what is written of it.
            self._process = subprocess.Popen(
                [sys.executable, "-I", "-m", "tdprof.pipeline.finishing_process"],
                stdin=said,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=[folder.fd, *descriptors],
                start_new_session=True,
            )

    @property
    def is_done(self) -> bool:
        """Whether ``result`` would return at once."""
        return self._process.poll() is not None

    def result(self) -> str | None:
        """Wait for its end.

        Returns:
            Why there are no tables; None if there are. The spool is then still there, and can be read.
        """
        status = self._process.wait()
        with self._log:
            self._log.seek(0)
            lines = self._log.read().decode(errors="replace").splitlines()
        if status == 0:
            return None
        return lines[-1] if lines else f"the process that made them ended with status {status}"


def main() -> None:
    """Finish the capture that standard input tells of."""
    os.nice(_NICENESS)
    request = json.load(sys.stdin)
    from tdprof.errors import TdprofError
    from tdprof.linux.own_folder import OwnFolder
    from tdprof.pipeline.finish import finish_capture
    from tdprof.recorder.held_programs import HeldPrograms

    try:
        with HeldPrograms.taken_over(request["held"]) as held:
            finish_capture(OwnFolder(request["folder"], Path(request["shown"])), held)
    except TdprofError as error:
        sys.exit(error.message)


if __name__ == "__main__":
    main()
