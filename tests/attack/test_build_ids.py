"""Build-ids that a stranger's capture claims: no part of any path or URL, whatever stands in them."""

import contextlib
import functools
import os
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import cast

import click
import pytest
from click.testing import CliRunner

from builders import capture_tables
from builders.costly_captures import write_capture
from tdprof.cli.main import cli
from tdprof.errors import TdprofError

pytestmark = pytest.mark.beside_others

GOOD = "5ea1" + 18 * "ab"
FORGED = [
    "../../../../../../etc/evil",
    "/etc/evil",
    "..",
    ".",
    "evil",
    "ab/../../evil",
    "abcd?evil",
    "abcd#evil",
    "abcd@evil",
    "abcd%2f..%2fevil",
    "abcd\r\nHost: evil",
    "abcd\0evil",
    "abcd evil",
    "ABCDEVIL",
    "abc",
    "ab" * 5000,
    "ａｂｃｄ",  # noqa: RUF001 - digits to some, not to a linker
]
COMMANDS = (["report"], ["report", "--lines"], ["export", "--to", "pprof"], ["export", "--to", "html"], ["archive"])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """What a debuginfod server is asked for, which has nothing."""
    paths: list[str] = []

    class Nothing(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_error(404)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Nothing) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        monkeypatch.setenv("DEBUGINFOD_URLS", f"http://127.0.0.1:{server.server_address[1]}")
        monkeypatch.setenv("DEBUGINFOD_CACHE_PATH", str(tmp_path / "copies"))
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        yield paths
        server.shutdown()
        thread.join()


class _Audit:
    """Notes the names that Python opens, makes, moves or removes, while somebody wants them."""

    names: list[str] | None = None

    def __init__(self) -> None:
        sys.addaudithook(self._note)

    def _note(self, event: str, arguments: tuple[object, ...]) -> None:
        if self.names is not None and event in ("open", "os.mkdir", "os.rename", "os.link", "os.symlink", "os.remove"):
            self.names += [os.fsdecode(each) for each in arguments if isinstance(each, str | bytes | os.PathLike)]


_audit = functools.cache(_Audit)  # a hook of the interpreter stays for ever


@pytest.fixture
def touched() -> Iterator[list[str]]:
    audit = _audit()
    names: list[str] = []
    audit.names = names
    yield names
    audit.names = None


def test_what_a_capture_calls_a_build_id_is_no_name_of_anything(
    tmp_path: Path, asked: list[str], touched: list[str]
) -> None:
    capture = tmp_path / "capture"
    capture.mkdir()
    (capture / "files").mkdir()
    claimed = [GOOD, *FORGED]
    places = [0x100000 * (1 + number) for number in range(len(claimed))]
    write_capture(
        capture,
        mappings=capture_tables.mappings(
            *(
                (0, 42, place, 0x1000, 0, f"/nowhere/{place:x}", claim)
                for place, claim in zip(places, claimed, strict=True)
            )
        ),
        stacks=capture_tables.stacks(*((place, False, [place + 0x10]) for place in places)),
        samples=capture_tables.samples(*((1, 0, 42, 42, "app", place, None, 1, 1) for place in places)),
    )
    for command in COMMANDS:
        output = ["-o", str(tmp_path / "out")] if command[0] == "export" else []
        with contextlib.suppress(TdprofError):
            result = CliRunner().invoke(cast(click.Command, cli), [*command, str(capture), *output])
            assert result.exception is None or isinstance(result.exception, SystemExit | TdprofError)
    assert {path.split("/")[2] for path in asked} == {GOOD}
    assert touched
    for claim in FORGED:
        parts = {part for part in claim.replace("\0", "/").split("/") if "evil" in part.lower() or len(part) > 100}
        assert not [name for name in touched if parts & {*Path(name).parts}], claim
    assert not [name for name in touched if ".." in Path(name).parts]
    assert sorted(path.name for path in (tmp_path / "copies").iterdir()) == [GOOD]
