"""One download over HTTP that ends in time, whatever the server does."""

import http.client
import socket
import ssl
import threading
import time
import urllib.request
from collections.abc import Callable
from types import TracebackType
from typing import IO, Any, Self

from tdprof.values import dataclass

_CHUNK_BYTES = 1 << 20
_LEAST_BYTES = 100 << 10  # what a server has to send within each timeout, as debuginfod_find_debuginfo(3) has it


@dataclass(frozen=True, slots=True)
class Limits:
    """What a server may cost.

    Attributes:
        timeout_s: time for each 100 KiB, connecting and waiting for the first included; 0 or less for ever.
        longest_s: time for all of it; 0 or less for ever.
        largest_bytes: size of the file.
    """

    timeout_s: float
    longest_s: float
    largest_bytes: int


class DownloadError(ValueError):
    """What was wrong with a server's answer."""


def download(url: str, out: IO[bytes], limits: Limits, progress: Callable[[int, int], None]) -> None:
    """Write what stands at an address to a file.

    Args:
        url: http, https or file.
        out: where to.
        limits: what ends it.
        progress: told the bytes that have come and how many were announced, 0 if none were.

    Raises:
        DownloadError: a limit was reached, or less came than was announced.
        OSError, ValueError, http.client.HTTPException: as urllib raises them.
    """
    request = urllib.request.Request(url, headers={"User-Agent": "tdprof"})
    with _Watch(limits) as watch:
        try:
            with _opener(watch).open(request, timeout=limits.timeout_s if limits.timeout_s > 0 else None) as response:
                total = int(response.headers.get("Content-Length") or 0)
                if total > limits.largest_bytes:
                    raise DownloadError(f"{total} bytes are more than DEBUGINFOD_MAXSIZE allows")
                size = 0
                # read1() returns what has come; read() would wait for all of a chunk.
                while chunk := response.read1(_CHUNK_BYTES):
                    size += len(chunk)
                    if size > limits.largest_bytes:
                        raise DownloadError("it is larger than DEBUGINFOD_MAXSIZE allows")
                    watch.came(len(chunk))
                    out.write(chunk)
                    progress(size, total)
        except (OSError, ValueError, http.client.HTTPException) as error:
            if watch.reason:  # a connection that we ended fails in ways that do not say so
                raise DownloadError(watch.reason) from error
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError) and reason.errno is None:  # the socket's, not the network's
                why = f"timed out: nothing came in {limits.timeout_s:g} s (DEBUGINFOD_TIMEOUT)"
                raise DownloadError(why) from error
            raise
    if watch.reason:
        raise DownloadError(watch.reason)
    if total and size != total:
        raise DownloadError("the server sent less than it announced")


class _Watch:
    """Ends the connections of a download that takes too long.

    A thread does it: a socket's own timeout begins anew with each byte, and a server that sends one now and then, in
    its headers or anywhere else, would hold us for ever.
    """

    def __init__(self, limits: Limits) -> None:
        self.reason = ""
        self._limits = limits
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="download watch", daemon=True)
        self._began = self._window_began = time.monotonic()
        self._window_bytes = 0

    def add(self, connected: socket.socket) -> None:
        """Watch a socket, and close it at the end."""
        with self._lock:
            self._sockets.append(connected)
            if self.reason:
                _shut_down(connected)

    def came(self, count: int) -> None:
        """That many bytes have come."""
        self._window_bytes += count
        if self._window_bytes >= _LEAST_BYTES:
            self._window_began, self._window_bytes = time.monotonic(), 0

    def _run(self) -> None:
        while not self._is_over.wait(max(0.0, self._deadline()[0] - time.monotonic())):
            deadline, reason = self._deadline()  # bytes that came have put it off
            if time.monotonic() < deadline:
                continue
            with self._lock:
                self.reason = reason
                for each in self._sockets:
                    _shut_down(each)
            return

    def _deadline(self) -> tuple[float, str]:
        timeout_s, longest_s = self._limits.timeout_s, self._limits.longest_s
        found = (time.monotonic() + threading.TIMEOUT_MAX / 2, "")
        if timeout_s > 0:
            slow = f"timed out: less than {_LEAST_BYTES >> 10} KiB in {timeout_s:g} s (DEBUGINFOD_TIMEOUT)"
            found = min(found, (self._window_began + timeout_s, slow))
        if longest_s > 0:
            found = min(found, (self._began + longest_s, "it takes longer than DEBUGINFOD_MAXTIME allows"))
        return found

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        for each in self._sockets:
            each.close()


def _shut_down(connected: socket.socket) -> None:
    """Wake whoever reads from it."""
    try:
        connected.shutdown(socket.SHUT_RDWR)
    except OSError:  # closed already
        return


def _opener(watch: _Watch) -> urllib.request.OpenerDirector:
    """urllib's, with connections that are watched; without FTP, to which a server could lead us past the watch."""

    def connect(*arguments: Any, **more: Any) -> socket.socket:
        """Watched before TLS is spoken, whose handshake may drip as well; TLS takes the socket away from its object."""
        connected = socket.create_connection(*arguments, **more)
        watch.add(connected.dup())
        return connected

    def watched(kind: type[http.client.HTTPConnection]) -> Callable[..., http.client.HTTPConnection]:
        class Watched(kind):  # type: ignore[valid-type, misc]  # one class for both kinds
            def __init__(self, *arguments: Any, **more: Any) -> None:
                super().__init__(*arguments, **more)
                self._create_connection = connect  # where http.client makes the socket, through a proxy as well

        return Watched

    class Http(urllib.request.HTTPHandler):
        def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            return self.do_open(watched(http.client.HTTPConnection), req)

    class Https(urllib.request.HTTPSHandler):
        def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
            made: Any = watched(http.client.HTTPSConnection)
            return self.do_open(made, req, context=ssl.create_default_context())

    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.UnknownHandler(),
        Http(),
        Https(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPRedirectHandler(),
        urllib.request.FileHandler(),
        urllib.request.HTTPErrorProcessor(),
    ):
        opener.add_handler(handler)
    return opener
