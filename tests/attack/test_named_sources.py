"""Source files: debug data may name any file, and its owner is not to see through root what only root may read."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from attack.conftest import MALLORY, User
from live.recording import TDPROF, record
from tdprof.linux.elf import open_elf
from tdprof.model.addresses import MappedFile
from tdprof.pipeline.annotate.source_files import SourceFiles
from tdprof.recorder.identity import Identity
from tdprof.symbolize.symbolizer import Symbolizer

pytestmark = pytest.mark.beside_others

SECRET = "root:secret-hash\n" * 60
PROGRAM = """
#include <time.h>
#line 3 "%s"
int main(void)
{
    volatile unsigned long sum = 0;
    while (clock() < CLOCKS_PER_SEC / 2)
        for (int i = 0; i < 100000; i++)
            sum += i;
}
"""


@pytest.fixture
def secret(treasure: Path) -> Path:
    """Readable for everybody, in a folder that only root may enter; removed before the folder is looked at."""
    hidden = treasure.parent / "hidden"
    hidden.mkdir(mode=0o700)
    path = hidden / "shadow"
    path.write_text(SECRET)
    return path


def build(program: Path, source: Path, owner: int) -> Path:
    compiler = ["gcc", "-g", "-O1", "-fno-omit-frame-pointer", "-x", "c", "-", "-o", str(program)]
    subprocess.run(compiler, input=PROGRAM % source, text=True, check=True)
    os.chown(program, owner, owner)
    return program


def annotate(capture: Path, *arguments: object) -> str:
    words = [*TDPROF, "annotate", str(capture), "main", "--no-symbol-cache", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=True).stdout


@pytest.mark.needs_perf
def test_a_program_shows_root_no_source_that_its_owner_may_not_read(meadow: Path, secret: Path) -> None:
    program = build(meadow / "program", secret, MALLORY)
    record("-F", "1999", "--", program, folder=meadow / "capture")
    said = annotate(meadow / "capture")
    assert "secret-hash" not in said
    assert f"the source file {secret} is not shown" in " ".join(said.split())
    # What root asks for by name is root's to decide.
    assert "secret-hash" in annotate(meadow / "capture", "--source-dir", secret.parent)
    # The same program, of root.
    os.chown(program, 0, 0)
    assert "secret-hash" in annotate(meadow / "capture")
    # Lines that somebody has put into the capture may name any file, too.
    subprocess.run([*TDPROF, "archive", meadow / "capture", "--no-symbol-cache"], check=True, capture_output=True)
    assert "secret-hash" not in annotate(meadow / "capture")


def test_what_their_owner_may_read_is_shown(meadow: Path, mallory: User) -> None:
    folder = mallory.folder(meadow / "mallory", 0o700)
    (folder / "a.c").write_text("mine\n")
    os.chown(folder / "a.c", mallory.uid, mallory.uid)
    (folder / "a.c").chmod(0o600)
    for reader, shown in ((Identity.of_user(mallory.uid), ["mine", ""]), (Identity.nobody(), None)):
        files = SourceFiles()
        files.read_as(reader)
        assert files.read(str(folder / "a.c"), None) == shown


def test_a_folder_that_root_names_is_not_left_by_links(meadow: Path, mallory: User, secret: Path) -> None:
    folder = mallory.folder(meadow / "mallory")
    (folder / "a.c").symlink_to(secret)
    (folder / "src").symlink_to(secret.parent)
    (folder / "pipe.c").write_text("")
    (folder / "pipe.c").unlink()
    os.mkfifo(folder / "pipe.c")
    files = SourceFiles([folder], [("/mapped", str(folder)), ("/half", f"{folder}/s")])
    files.read_as(Identity.of_user(mallory.uid))
    for path in ("/build/a.c", "/build/src/shadow", "/mapped/../hidden/shadow", "/halfrc/shadow", "/build/pipe.c"):
        assert files.read(path, None) is None


def test_a_capture_leads_to_no_file_outside_of_it(meadow: Path, make_program: Callable[[Path], str]) -> None:
    elsewhere = meadow / "elsewhere"
    build_id = make_program(elsewhere)
    carried = meadow / "capture/files"
    carried.mkdir(parents=True)
    (carried / build_id).symlink_to(elsewhere)
    with Symbolizer(carried_files=carried) as symbolizer:
        file = MappedFile("/no/such/program", build_id)
        assert symbolizer.owner_of(file) is None
        assert not hasattr(symbolizer.file_of(file), "path")


@pytest.fixture
def make_program() -> Callable[[Path], str]:
    """Writes a program somewhere; returns its build-id."""

    def make(path: Path) -> str:
        build(path, Path("main.c"), 0)
        return open_elf(path).build_id

    return make
