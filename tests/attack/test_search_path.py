"""Root that runs tdprof in another user's folder runs nothing of that user's: modules lie there under every name."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from attack.conftest import User
from builders.waiting import PATIENCE_S

pytestmark = pytest.mark.beside_others

TRAP = "open({place!r} + '/' + __name__, 'w').close()\n"
COMMANDS = [
    ("doctor",),
    ("record", "-o", "{out}", "--with-symbols", "--", "true"),  # starts those who make tables, read memory, compile
    ("report", "{out}"),
]


@pytest.fixture
def trapped(meadow: Path, mallory: User, treasure: Path) -> Path:
    """A folder of the attacker's with modules that write down that they were imported."""
    treasure.chmod(0o777)  # who runs the module is not asked
    folder = mallory.folder(meadow / "his")
    names = {*sys.stdlib_module_names, "sitecustomize", "usercustomize", "bcc", "tdprof", "arm_spe", "numpy", "pyarrow"}
    for name in sorted(names - {"__main__"}):
        (folder / f"{name}.py").write_text(TRAP.format(place=str(treasure)))
        os.chown(folder / f"{name}.py", mallory.uid, mallory.uid)
    return folder


def test_the_traps_work(trapped: Path, treasure: Path) -> None:
    subprocess.run([sys.executable, "-S", "-c", "import json"], cwd=trapped, check=False, timeout=PATIENCE_S)
    assert list(treasure.iterdir())


def test_nothing_is_imported_from_where_it_is_run(trapped: Path, untouched: Callable[[], None], meadow: Path) -> None:
    tdprof = Path(sys.executable).with_name("tdprof")
    if not tdprof.exists():
        pytest.skip("tdprof is not installed as a command beside this interpreter")
    for words in COMMANDS:
        command = [str(tdprof), *(word.format(out=meadow / "out") for word in words)]
        said = subprocess.run(command, cwd=trapped, capture_output=True, text=True, timeout=2 * PATIENCE_S, check=False)
        assert "Traceback" not in said.stderr
        untouched()
    assert (meadow / "out" / "symbols.parquet").exists()
