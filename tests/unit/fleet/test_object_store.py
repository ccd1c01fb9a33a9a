"""Captures and stores in an object store: a server that speaks S3 (moto's), and the same bytes as in folders."""

import atexit
import contextlib
import http.server
import io
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from pyarrow import fs

from builders.fleet import make_host_capture, tdprof
from tdprof.errors import TdprofError
from tdprof.fleet import sources
from tdprof.fleet.add import add_captures
from tdprof.fleet.engine import InProcessEngine
from tdprof.fleet.storage import ObjectFiles
from tdprof.fleet.store import Store
from tdprof.fleet.work import WorkOptions

moto_server = pytest.importorskip("moto.server", reason="moto is not installed: tools/setup test")


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    """Its host and port."""
    started = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    started.start()
    host, port = started.get_host_and_port()
    yield f"{host}:{port}"
    started.stop()


@pytest.fixture
def bucket(server: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """One's name, of this test."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    name = f"b{abs(hash(request.node.name))}"
    put(f"http://{server}/{name}")
    return name


def put(url: str, content: bytes = b"") -> None:
    request = urllib.request.Request(url, content, {"Content-Type": "application/octet-stream"}, method="PUT")
    with urllib.request.urlopen(request, timeout=300) as answer:
        assert answer.status == 200


def upload(server: str, bucket: str, prefix: str, folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            put(f"http://{server}/{bucket}/{prefix}/{path.relative_to(folder)}", path.read_bytes())


def uri(server: str, bucket: str, prefix: str) -> str:
    return f"s3://{bucket}/{prefix}?endpoint_override={server}&scheme=http&region=us-east-1"


@contextlib.contextmanager
def busy_at_first(server: str) -> Iterator[str]:
    """Host and port of who passes on what it is asked for, the first time that an object is to be read excepted."""
    asked: set[str] = set()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if "list-type" not in self.path and self.path not in asked:
                asked.add(self.path)
                body = b"<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>"
                self.answer(503, {}, body)
            else:
                self.do_HEAD()

        def do_HEAD(self) -> None:
            request = urllib.request.Request(
                f"http://{server}{self.path}", None, dict(self.headers), method=self.command
            )
            with urllib.request.urlopen(request, timeout=300) as passed:
                self.answer(passed.status, dict(passed.headers), passed.read())

        def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(body))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *told: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as started:
        threading.Thread(target=started.serve_forever).start()
        try:
            yield f"127.0.0.1:{started.server_address[1]}"
        finally:
            started.shutdown()
    assert any("tdprof-store.json" in path for path in asked)


def contents(place: Path) -> dict[str, bytes]:
    return {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}


def objects(server: str, bucket: str, prefix: str) -> dict[str, bytes]:
    files, root = fs.FileSystem.from_uri(uri(server, bucket, prefix))
    found = files.get_file_info(fs.FileSelector(root, recursive=True))
    return {
        info.path[len(root) + 1 :]: files.open_input_stream(info.path).read()
        for info in found
        if info.type is fs.FileType.File
    }


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    for host in ("a", "b"):
        make_host_capture(folder / f"{host}.capture", host, {"work": 60, "rest": 40})
    (folder / "damaged").mkdir()
    (folder / "damaged" / "capture.json").write_bytes(b"{")
    return folder


def test_captures_and_store_on_s3_are_those_of_folders(
    server: str, bucket: str, tmp_path: Path, captures: Path
) -> None:
    upload(server, bucket, "caps/of%20today", captures)
    stored, given = uri(server, bucket, "prod"), uri(server, bucket, "caps/of%20today")
    told = json.loads(tdprof("fleet", "add", stored, given, "--json").stdout)
    assert (told["added"], told["samples"]) == (2, 200)
    (rejected,) = told["rejected"]
    assert rejected["source"].startswith(f"s3://{bucket}/caps/of%20today/damaged")
    assert rejected["reason"].startswith(f"cannot read s3://{bucket}/caps/of%20today/damaged/capture.json")
    assert tdprof("fleet", "compact", stored).status == 0
    assert tdprof("fleet", "add", tmp_path / "here", captures).status == 0
    assert tdprof("fleet", "compact", tmp_path / "here").status == 0
    here = {name: content for name, content in contents(tmp_path / "here").items() if not name.startswith("rejected/")}
    there = {
        name: content for name, content in objects(server, bucket, "prod").items() if not name.startswith("rejected/")
    }
    assert there == here
    assert any(name.startswith("sums/") for name in here)
    again = json.loads(tdprof("fleet", "add", stored, given, "--json").stdout)
    assert (again["added"], again["known"]) == (0, 2)
    assert json.loads(tdprof("fleet", "report", stored, "--json").stdout)["strata"][0]["samples"] == 200
    assert (
        tdprof("export", stored, "--to", "folded").stdout
        == tdprof("export", tmp_path / "here", "--to", "folded").stdout
    )


def test_a_server_that_is_busy_for_a_moment_is_asked_again_in_more_words_than_were_asked_for(
    server: str, bucket: str, tmp_path: Path, captures: Path
) -> None:
    """Arrow gives up where the answer of an error is longer than the part of the object that was asked for."""
    stored = uri(server, bucket, "prod")
    tdprof("fleet", "add", stored, captures / "a.capture")
    expected = tdprof("fleet", "report", stored).stdout
    with busy_at_first(server) as through:
        assert tdprof("fleet", "report", uri(through, bucket, "prod")).stdout == expected


def test_a_server_that_hangs_is_not_waited_for_after_ctrl_c(bucket: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        stored = uri(f"127.0.0.1:{silent.getsockname()[1]}", bucket, "prod")
        with subprocess.Popen(
            [sys.executable, "-m", "tdprof", "fleet", "report", stored], stderr=subprocess.PIPE, text=True
        ) as asking:
            asked, _ = silent.accept()
            with asked:
                assert asked.recv(4) == b"HEAD"
                asking.send_signal(signal.SIGINT)
                told = asking.communicate(timeout=60)[1]  # Arrow asks for 95 s
    assert (asking.returncode, told.strip()) == (130, "tdprof: interrupted")


def test_ctrl_c_while_a_question_starts_leaves_no_answer_to_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        start(thread)
        raise KeyboardInterrupt

    dropped: list[object] = []
    monkeypatch.setattr(threading.Thread, "start", interrupted)
    monkeypatch.setattr(atexit, "unregister", dropped.append)
    with pytest.raises(KeyboardInterrupt):
        ObjectFiles(SimpleNamespace(get_file_info=lambda asked: asked), "bucket/prod").is_empty()
    assert dropped == [fs.ensure_s3_finalized]


class _Objects:
    """An object store with names that this test's server would refuse."""

    def __init__(self, folder: Path, more: Sequence[str]) -> None:
        self._content = {
            f"caps/one/{path.relative_to(folder)}": path.read_bytes() for path in folder.rglob("*") if path.is_file()
        } | {f"caps/one/{name}": b"no" for name in more}

    root = "caps/one"

    def below(self, folder: str) -> list[str]:
        return list(self._content)

    def open(self, path: str) -> io.BytesIO:
        if path not in self._content:
            raise FileNotFoundError
        return io.BytesIO(self._content[path])


def test_names_of_objects_lead_nowhere(tmp_path: Path, captures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "deep" / "er"))
    (tmp_path / "deep" / "er").mkdir(parents=True)
    names = ["../../outside", "../outside", "files//x", "a/./b", "n" * 300, "nul\0", f"{tmp_path}/absolute"]
    objects = _Objects(captures / "a.capture", [*names, "files/one"])
    monkeypatch.setattr(sources, "open_place", lambda place: objects)
    with sources.brought_here("s3://caps/one") as folder:
        found = {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}
        assert found == {*(path.name for path in (captures / "a.capture").iterdir()), "files/one"}
        assert {path for path in tmp_path.rglob("*") if path.is_file()} == {folder / name for name in found}
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    monkeypatch.setattr(sources, "_MOST_BYTES", 1000)
    with pytest.raises(TdprofError, match="larger than any capture"), sources.brought_here("s3://caps/one"):
        pass


@pytest.mark.parametrize("names", [[f"{'/'.join(['x' * 200] * 40)}/y"], ["files/one", "files"]], ids=["deep", "both"])
def test_a_capture_that_no_folder_can_hold_is_set_aside_and_the_others_go_on(
    tmp_path: Path, captures: Path, monkeypatch: pytest.MonkeyPatch, names: Sequence[str]
) -> None:
    objects = _Objects(captures / "a.capture", names)
    monkeypatch.setattr(sources, "open_place", lambda place: objects)
    store = Store.create(str(tmp_path / "store"))
    given = ["s3://caps/one", str(captures / "b.capture")]
    added = add_captures(store, given, WorkOptions(store.place), lambda _: InProcessEngine())
    assert added.added == 1
    assert [each.source for each in added.rejected] == given[:1]


def test_of_a_manifest_no_more_is_fetched_than_one_may_have(
    captures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects = _Objects(captures / "a.capture", [])
    monkeypatch.setattr(sources, "open_place", lambda place: objects)
    monkeypatch.setattr(sources, "MOST_MANIFEST_BYTES", 100)
    with pytest.raises(TdprofError, match="larger than any capture"):
        sources.read_source_manifest("s3://caps/one")


def test_where_nothing_is_and_what_does_not_answer(
    server: str, bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = uri(server, bucket, "nothing")
    ran = tdprof("fleet", "add", tmp_path / "store", nothing)
    assert (ran.status, f"no capture is at s3://{bucket}/nothing, so" in str(ran.error)) == (1, True)
    make_host_capture(tmp_path / "one", "one", {"work": 60})
    ran = tdprof("fleet", "add", tmp_path / "store", nothing, tmp_path / "one")
    assert (ran.status, "no capture at s3://" in ran.stdout) == (0, True)
    before = contents(tmp_path / "store")

    def down(*given: object) -> int:
        raise OSError("timed out")

    monkeypatch.setattr(sources, "open_place", lambda place: SimpleNamespace(open=down, root="x"))
    with pytest.raises(TdprofError, match="cannot read s3://"):
        add_captures(
            Store(str(tmp_path / "store")),
            [uri(server, bucket, "other")],
            WorkOptions(str(tmp_path / "store")),
            lambda _: InProcessEngine(),
        )
    assert contents(tmp_path / "store") == before
