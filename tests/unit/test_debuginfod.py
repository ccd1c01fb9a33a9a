import contextlib
import http.server
import os
import platform
import subprocess
import threading
import time

import numpy as np
import pytest

from builders.elf import EM_AARCH64, EM_X86_64, ElfFile, Symbol
from builders.llvm_symbolizer import our_stacks
from tdprof.elf import read_build_id
from tdprof.model import MappedFile, Unknown
from tdprof.symbolize import Symbolizer
from tdprof.symbolize.debuginfod import Debuginfod


class Server:
    """Serves files by path, and remembers what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.announce: int | None = None
        self.delay_s = 0.0
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                time.sleep(outer.delay_s)
                body = outer.files.get(self.path)
                if body is None:
                    with contextlib.suppress(BrokenPipeError):
                        self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(outer.announce or len(body)))
                self.end_headers()
                with contextlib.suppress(BrokenPipeError):
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def client(server, tmp_path) -> Debuginfod:
    return Debuginfod([server.url], tmp_path / "copies", timeout_s=5)


def test_no_server_named_contacts_nobody():
    assert Debuginfod.from_environment({}) is None
    assert Debuginfod.from_environment({"DEBUGINFOD_URLS": "  "}) is None


def test_environment(tmp_path):
    client = Debuginfod.from_environment(
        {
            "DEBUGINFOD_URLS": "http://a http://b",
            "DEBUGINFOD_CACHE_PATH": str(tmp_path),
            "DEBUGINFOD_TIMEOUT": "7",
            "DEBUGINFOD_MAXSIZE": "1000",
            "DEBUGINFOD_MAXTIME": "nonsense",
        }
    )
    assert client is not None
    assert (client.urls, client.folder) == (["http://a", "http://b"], tmp_path)
    assert (client.timeout_s, client.largest_bytes, client.longest_s) == (7, 1000, 0)


def test_a_file_is_fetched_once(server, client):
    server.files["/buildid/abcd/debuginfo"] = b"debug data"
    path = client.find("abcd", "debuginfo")
    assert path is not None
    assert path.read_bytes() == b"debug data"
    assert client.find("abcd", "debuginfo") == path
    assert server.asked == ["/buildid/abcd/debuginfo"]


def test_a_miss_is_believed_for_a_while(server, client):
    assert client.find("abcd", "debuginfo") is None
    assert client.find("abcd", "debuginfo") is None
    assert len(server.asked) == 1
    mark = client.folder / "abcd" / "debuginfo"
    os.utime(mark, (time.time() - 3600, time.time() - 3600))
    server.files["/buildid/abcd/debuginfo"] = b"now there"
    assert client.find("abcd", "debuginfo") is not None


@pytest.mark.parametrize("announced", [True, False])
def test_what_is_too_large_is_not_kept(server, client, announced):
    server.files["/buildid/abcd/debuginfo"] = bytes(5000)
    if not announced:
        server.announce = 100
    client.largest_bytes = 1000 if announced else 50
    assert client.find("abcd", "debuginfo") is None
    assert "MAXSIZE" in client.failures[server.url]
    assert not [path for path in client.folder.rglob("*") if path.is_file()]


def test_a_download_that_breaks_off_leaves_nothing(server, client):
    server.files["/buildid/abcd/debuginfo"] = bytes(500)
    server.announce = 1000
    client.timeout_s = 1
    assert client.find("abcd", "debuginfo") is None
    assert client.failures
    assert not [path for path in client.folder.rglob("*") if path.is_file()]


def test_a_slow_server_is_given_up_and_not_asked_again(server, client):
    server.delay_s = 1.0
    client.timeout_s = 0.2
    assert client.find("abcd", "debuginfo") is None
    assert client.find("ef01", "debuginfo") is None
    assert len(server.asked) == 1
    assert "timed out" in client.failures[server.url]


def test_no_server_there(tmp_path):
    client = Debuginfod(["http://127.0.0.1:9"], tmp_path, timeout_s=2)
    assert client.find("abcd", "debuginfo") is None
    assert "refused" in client.failures["http://127.0.0.1:9"]


def test_symbolizer_fetches_debug_data_and_executables(server, client, tmp_path):
    program = tmp_path / "program"
    symbols = [Symbol("alpha", 0x401000, 0x10)]
    machine = EM_AARCH64 if platform.machine() == "aarch64" else EM_X86_64  # strip knows its own
    full = ElfFile(symbols=symbols, build_id=b"\x11" * 20, machine=machine).to_bytes()
    program.write_bytes(full)
    subprocess.run(["strip", program], check=True)
    server.files[f"/buildid/{'11' * 20}/debuginfo"] = full
    server.files[f"/buildid/{'22' * 20}/executable"] = ElfFile(
        symbols=[Symbol("beta", 0x401000, 0x10)], build_id=b"\x22" * 20
    ).to_bytes()
    wrong = ElfFile(symbols=symbols, build_id=b"\x44" * 20).to_bytes()
    server.files[f"/buildid/{'33' * 20}/executable"] = wrong
    place = np.array([0x1000], np.uint64)
    with Symbolizer(debuginfod=client) as symbolizer:
        assert read_build_id(program) == "11" * 20
        assert our_stacks(symbolizer.locate(MappedFile(str(program), "11" * 20), place)) == [[("alpha", "??:0")]]
        gone = MappedFile("/no/such/program", "22" * 20)
        assert our_stacks(symbolizer.locate(gone, place)) == [[("beta", "??:0")]]
        lying = MappedFile("/no/such/other", "33" * 20)
        assert symbolizer.locate(lying, place).reason.tolist() == [Unknown.NO_FILE]
