"""Serves a few documents to the browser of whoever runs this process, and to nobody else on the machine or beyond."""

import functools
import http.server
import secrets
import sys
import threading
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any

from tdprof.errors import TdprofError
from tdprof.values import dataclass

HOST = "127.0.0.1"
# A page of another site can make its own name lead here (DNS rebinding), but its requests carry that name. The port may
# differ: ssh -L forwards from any.
LOCAL_NAMES = frozenset({HOST, "localhost"})


@dataclass(frozen=True, slots=True)
class Document:
    """What stands at one path.

    Attributes:
        content_type: MIME type.
        read: makes the bytes; called once, when they are first asked for.
        policy: the Content-Security-Policy it is sent with.
    """

    content_type: str
    read: Callable[[], bytes]
    policy: str = "default-src 'none'"


class LocalServer(http.server.ThreadingHTTPServer):
    """Answers requests for the documents below a path that cannot be guessed; ``serve_forever`` runs it.

    Args:
        documents: by path below ``url``, without a leading slash. No file system is behind them.
        port: to listen on; 0 for any free one.

    Raises:
        TdprofError: the port cannot be had.
    """

    daemon_threads = True

    def __init__(self, documents: Mapping[str, Document], port: int = 0) -> None:
        self.token = secrets.token_urlsafe(16)
        self._documents = documents
        self._lock = threading.Lock()
        self._read = functools.cache(lambda path: documents[path].read())
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            hint = "another --port, or none for any that is free"
            raise TdprofError(f"cannot listen on port {port}: {error.strerror}", hint=hint) from error

    @property
    def url(self) -> str:
        """What all paths stand below."""
        return f"http://{HOST}:{self.server_port}/{self.token}/"

    def document(self, path: str) -> tuple[Document, bytes] | None:
        """The document at a path below ``url`` with its bytes; None if there is none."""
        if path not in self._documents:
            return None
        with self._lock:
            return self._documents[path], self._read(path)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a browser that went away in the middle of an answer."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class _Handler(http.server.BaseHTTPRequestHandler):
    server: LocalServer
    protocol_version = "HTTP/1.1"
    timeout = 60  # seconds that a connection may stay idle

    def do_GET(self) -> None:
        if self.headers.get("Host", "").partition(":")[0] not in LOCAL_NAMES:
            self.send_error(HTTPStatus.FORBIDDEN, "served to this machine's own names only")
            return
        token, _, path = self.path.partition("?")[0].removeprefix("/").partition("/")
        # Compared in a time that says nothing about it.
        is_known = secrets.compare_digest(token.encode(), self.server.token.encode())
        found = self.server.document(path) if is_known else None
        if found is None:
            self.send_error(HTTPStatus.NOT_FOUND)
            return
        document, body = found
        self.send_response(HTTPStatus.OK)
        self.send_header("Content-Type", document.content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", f"{document.policy}; frame-ancestors 'none'")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815  as http.server asks

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are nobody's news."""
