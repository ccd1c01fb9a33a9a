import contextlib
import http.server
import os
import platform
import socket
import subprocess
import threading
import time

import numpy as np
import pytest

from builders.elf import EM_AARCH64, EM_X86_64, ElfFile, Symbol
from builders.llvm_symbolizer import our_stacks
from builders.waiting import PATIENCE_S, wait_until
from tdprof.linux.elf import read_build_id
from tdprof.model.addresses import MappedFile, Unknown
from tdprof.symbolize.debuginfod import Debuginfod
from tdprof.symbolize.symbolizer import Symbolizer


class Server:
    """Serves files by path, and remembers what it was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.announce: int | None = None
        self.delay_s = 0.0
        self.pause_s = 0.0  # between the bytes of a body
        self.raw: list[bytes] | None = None  # instead of an answer, one after the other with the pause between
        self.raw_for = "/"  # paths that begin so
        self.sent = 0  # how many of those
        self.is_over = threading.Event()
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                outer.is_over.wait(outer.delay_s)
                if outer.raw is not None and self.path.startswith(outer.raw_for):
                    self.trickle(outer.raw)
                    return
                body = outer.files.get(self.path)
                if body is None:
                    with contextlib.suppress(BrokenPipeError):
                        self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(outer.announce or len(body)))
                self.end_headers()
                if outer.pause_s:
                    self.trickle([body[i : i + 1] for i in range(len(body))])
                    return
                with contextlib.suppress(BrokenPipeError):
                    self.wfile.write(body)

            def trickle(self, parts: list[bytes]) -> None:
                self.close_connection = True
                with contextlib.suppress(OSError):
                    for part in parts:
                        self.wfile.write(part)
                        outer.sent += 1
                        if outer.is_over.wait(outer.pause_s):
                            return

            def log_message(self, *args: object) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def server():
    server = Server()
    yield server
    server.is_over.set()
    server.server.shutdown()
    server.server.server_close()


@pytest.fixture
def client(server, tmp_path) -> Debuginfod:
    return Debuginfod([server.url], tmp_path / "copies", timeout_s=PATIENCE_S)


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
            "DEBUGINFOD_MAXTIME": "inf",
        }
    )
    assert client is not None
    assert (client.urls, client.folder) == (["http://a", "http://b"], tmp_path)
    assert (client.timeout_s, client.largest_bytes, client.longest_s) == (7, 1000, 0)


DEBUG_DATA = ElfFile(build_id=b"\xab\xcd").to_bytes()


def test_a_file_is_fetched_once(server, client):
    server.files["/buildid/abcd/debuginfo"] = DEBUG_DATA
    path = client.find("abcd", "debuginfo")
    assert path is not None
    assert path.read_bytes() == DEBUG_DATA
    assert client.find("abcd", "debuginfo") == path
    assert server.asked == ["/buildid/abcd/debuginfo"]


def test_a_miss_is_believed_for_a_while(server, client):
    assert client.find("abcd", "debuginfo") is None
    assert client.find("abcd", "debuginfo") is None
    assert len(server.asked) == 1
    mark = client.folder / "abcd" / "debuginfo"
    os.utime(mark, (time.time() - 3600, time.time() - 3600))
    server.files["/buildid/abcd/debuginfo"] = DEBUG_DATA
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
    assert client.find("abcd", "debuginfo") is None
    assert client.failures
    assert not [path for path in client.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"<html>Please log in to this hotel's network</html>" * 9, "no ELF file"),
        (ElfFile(build_id=b"\x12\x34").to_bytes(), "build-id 1234"),
        (DEBUG_DATA[:40], "no ELF file"),
        (DEBUG_DATA[:-1], "it sent a part of the file"),
    ],
)
def test_another_file_is_not_kept(server, client, answer, why):
    server.files["/buildid/abcd/debuginfo"] = answer
    assert client.find("abcd", "debuginfo") is None
    assert why in client.failures[server.url]
    assert not [path for path in client.folder.rglob("*") if path.is_file()]


def test_another_file_that_was_kept_is_fetched_again(server, client):
    copy = client.folder / "abcd" / "debuginfo"
    copy.parent.mkdir(parents=True)
    copy.write_bytes(b"<html>Please log in</html>" * 9)
    server.files["/buildid/abcd/debuginfo"] = DEBUG_DATA
    assert client.find("abcd", "debuginfo") == copy
    assert copy.read_bytes() == DEBUG_DATA


@pytest.mark.parametrize("build_id", ["../../../../etc", "ab", "AB/../cd", "abcd?x", "abcd\n", "abc", "ab" * 65, ""])
def test_what_is_no_build_id_is_part_of_no_address(server, client, build_id):
    assert client.find(build_id, "debuginfo") is None
    assert not server.asked
    assert not client.folder.exists()


@pytest.mark.parametrize(
    "raw",
    [
        [b"HTTP/1.1 200 OK\r\n", *([b"X"] * 1000)],  # a header without an end
        [b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", *([b"0"] * 1000)],  # a chunk's length, the same
        [b"HTTP/1.1 200 OK\r\nContent-Length: 999999\r\n\r\n", *([b"x"] * 1000)],
    ],
    ids=["header", "chunk", "body"],
)
@pytest.mark.parametrize("limit", ["DEBUGINFOD_TIMEOUT", "DEBUGINFOD_MAXTIME"])
def test_a_server_that_drips_is_given_up(server, client, raw, limit):
    server.raw, server.pause_s = raw, 0.05
    client.timeout_s, client.longest_s = (0.5, 0) if limit == "DEBUGINFOD_TIMEOUT" else (30, 0.5)
    assert client.find("abcd", "debuginfo") is None
    assert server.sent < len(raw)
    assert limit in client.failures[server.url]
    assert not [path for path in client.folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize("limit", ["DEBUGINFOD_TIMEOUT", "DEBUGINFOD_MAXTIME"])
def test_a_server_that_drips_its_tls_handshake_is_given_up(client, limit):
    listener, is_over, sent = socket.create_server(("127.0.0.1", 0)), threading.Event(), list[int]()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection, contextlib.suppress(OSError):
            connection.sendall(b"\x16\x03\x03\x40\x00")  # a record of 16 KiB, of which a byte comes now and then
            while not is_over.wait(0.05):
                connection.sendall(b"\x02")
                sent.append(1)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    client.urls = [f"https://127.0.0.1:{listener.getsockname()[1]}"]
    client.timeout_s, client.longest_s = (0.5, 0) if limit == "DEBUGINFOD_TIMEOUT" else (30, 0.5)
    try:
        assert client.find("abcd", "debuginfo") is None
    finally:
        is_over.set()
        thread.join()
        listener.close()
    assert len(sent) < 0x4000
    assert limit in client.failures[client.urls[0]]


@pytest.mark.parametrize(
    "target", ["file://{path}", "ftp://127.0.0.1:1/x", "{url}/page", "{url}/buildid/abcd/debuginfo"]
)
def test_a_redirection_leads_to_no_file_of_ours_no_page_and_not_in_circles(server, client, tmp_path, target):
    """A portal answers everything with a page, and status 200."""
    (tmp_path / "own").write_bytes(DEBUG_DATA)
    server.files["/page"] = b"<html>Please log in</html>"
    location = target.format(path=tmp_path / "own", url=server.url)
    server.raw = [f"HTTP/1.1 302 Found\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n".encode()]
    server.raw_for = "/buildid/"
    assert client.find("abcd", "debuginfo") is None
    assert client.failures[server.url]
    assert not [path for path in client.folder.rglob("*") if path.is_file()]
    assert len(server.asked) < 20


def test_a_slow_server_that_sends_enough_is_waited_for(server, client):
    data = DEBUG_DATA.ljust(5 * (100 << 10), b"\0")
    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n".encode()
    server.raw = [head, *(data[i : i + (100 << 10)] for i in range(0, len(data), 100 << 10))]
    server.pause_s, client.timeout_s = 2, 6  # 10 s in all
    path = client.find("abcd", "debuginfo")
    assert path is not None, client.failures
    assert path.read_bytes() == data


def test_a_slow_server_is_given_up_and_not_asked_again(server, client):
    server.delay_s = PATIENCE_S
    client.timeout_s = 2
    assert client.find("abcd", "debuginfo") is None
    assert client.find("ef01", "debuginfo") is None
    wait_until(lambda: server.asked)
    assert len(server.asked) == 1
    assert "timed out" in client.failures[server.url]


def test_no_server_there(tmp_path):
    client = Debuginfod(["http://127.0.0.1:9"], tmp_path, timeout_s=PATIENCE_S)
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


def test_a_server_that_says_nothing_is_given_up(client):
    with socket.create_server(("127.0.0.1", 0)) as listener:  # connections wait there for ever
        client.urls, client.timeout_s = [f"http://127.0.0.1:{listener.getsockname()[1]}"], 0.2
        assert client.find("abcd", "debuginfo") is None
    assert "in 0.2 s (DEBUGINFOD_TIMEOUT)" in client.failures[client.urls[0]]
