"""The local server: who gets what, and who gets nothing."""

import http.client
import threading
from collections.abc import Iterator

import pytest

from builders.waiting import PATIENCE_S
from tdprof.cli.local_server import Document, LocalServer
from tdprof.errors import TdprofError


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def server(calls: list[str]) -> Iterator[LocalServer]:
    def read() -> bytes:
        calls.append("read")
        return b"<p>hello"

    with LocalServer(
        {"page.html": Document("text/html", read), "a/b.js": Document("text/javascript", lambda: b"1")}
    ) as it:
        thread = threading.Thread(target=it.serve_forever, args=(0.01,))
        thread.start()
        yield it
        it.shutdown()
        thread.join()


def ask(
    server: LocalServer, path: str, *, host: str | None = None, method: str = "GET"
) -> tuple[int, bytes, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=PATIENCE_S)
    connection.putrequest(method, path, skip_host=True)
    if host != "":
        connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
    connection.endheaders()
    response = connection.getresponse()
    result = response.status, response.read(), response.headers
    connection.close()
    return result


def test_a_document_is_served_below_the_token_and_made_once(server: LocalServer, calls: list[str]) -> None:
    for _ in range(2):
        status, body, headers = ask(server, f"/{server.token}/page.html?query")
        assert (status, body) == (200, b"<p>hello")
        assert headers["Content-Type"] == "text/html"
        assert "default-src 'none'" in headers["Content-Security-Policy"]
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Cache-Control"] == "no-store"
    assert calls == ["read"]
    assert ask(server, f"/{server.token}/a/b.js")[1] == b"1"


def test_head_has_no_body(server: LocalServer) -> None:
    status, body, headers = ask(server, f"/{server.token}/page.html", method="HEAD")
    assert (status, body, headers["Content-Length"]) == (200, b"", "8")


@pytest.mark.parametrize(
    "path", ["/", "/page.html", "/{token}", "/{token}/", "/{token}/../page.html", "/x{token}/page.html"]
)
@pytest.mark.parametrize("tail", ["", "/../../../etc/passwd", "%2e%2e/etc/passwd"])
def test_anything_else_is_not_found(server: LocalServer, path: str, tail: str, calls: list[str]) -> None:
    assert ask(server, path.format(token=server.token) + tail)[0] == 404
    assert calls == []


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "", "[::1]:80"])
def test_another_hosts_name_is_refused(server: LocalServer, host: str, calls: list[str]) -> None:
    assert ask(server, f"/{server.token}/page.html", host=host)[0] == 403
    assert calls == []


@pytest.mark.parametrize("host", ["localhost", "localhost:8000", "127.0.0.1:1"])
def test_this_machines_names_are_served_on_any_port(server: LocalServer, host: str) -> None:
    assert ask(server, f"/{server.token}/page.html", host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "OPTIONS", "TRACE"])
def test_only_reading_is_possible(server: LocalServer, method: str) -> None:
    assert ask(server, f"/{server.token}/page.html", method=method)[0] == 501


def test_only_this_machine_can_connect_and_tokens_differ(server: LocalServer) -> None:
    assert server.server_address[0] == "127.0.0.1"
    with LocalServer({}) as other:
        assert other.token != server.token
        assert len(other.token) > 20


def test_a_taken_port_is_refused_by_name(server: LocalServer) -> None:
    with pytest.raises(TdprofError, match=f"cannot listen on port {server.server_port}"):
        LocalServer({}, server.server_port)
