"""Fetching debug data and executables by build-id from the servers that the user's environment names.

Protocol, variables and layout of the local copies: elfutils, debuginfod(8) and debuginfod_find_debuginfo(3); the copies
are shared with gdb and every other client. Without ``DEBUGINFOD_URLS`` nothing is ever contacted.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

Kind = Literal["debuginfo", "executable"]

_CHUNK_BYTES = 1 << 20
_MISS_LASTS_S = 600  # how long a server's "not found" is believed: an empty copy stands for it
_TIMEOUT_S = 90
_LARGEST_BYTES = 4 << 30


@dataclass(slots=True)
class Debuginfod:
    """The user's debuginfod servers.

    Attributes:
        urls: of the servers, asked in this order.
        folder: of the local copies.
        timeout_s: how long to wait for a server's next bytes (``DEBUGINFOD_TIMEOUT``, default 90).
        longest_s: how long one download may take, 0 for ever (``DEBUGINFOD_MAXTIME``).
        largest_bytes: what is larger is not fetched (``DEBUGINFOD_MAXSIZE``, default 4 GiB).
        progress: told what is being fetched.
        failures: what went wrong, one line for each server; it is not asked again.
    """

    urls: list[str]
    folder: Path
    timeout_s: float = _TIMEOUT_S
    longest_s: float = 0
    largest_bytes: int = _LARGEST_BYTES
    progress: Callable[[str], None] = lambda text: None
    failures: dict[str, str] = field(default_factory=dict)

    @classmethod
    def from_environment(
        cls, environment: Mapping[str, str] = os.environ, progress: Callable[[str], None] = lambda text: None
    ) -> "Debuginfod | None":
        """As the environment says; None if it names no server."""
        urls = [url for url in environment.get("DEBUGINFOD_URLS", "").split() if "://" in url]
        if not urls:
            return None
        home = Path(environment.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cls(
            urls,
            Path(environment.get("DEBUGINFOD_CACHE_PATH") or home / "debuginfod_client"),
            timeout_s=_number(environment.get("DEBUGINFOD_TIMEOUT"), _TIMEOUT_S),
            longest_s=_number(environment.get("DEBUGINFOD_MAXTIME"), 0),
            largest_bytes=int(_number(environment.get("DEBUGINFOD_MAXSIZE"), _LARGEST_BYTES)),
            progress=progress,
        )

    def find(self, build_id: str, kind: Kind) -> Path | None:
        """The local copy of a file, fetched if need be; None if no server has it."""
        if not build_id:
            return None
        path = self.folder / build_id / kind
        with contextlib.suppress(OSError):
            status = path.stat()
            if status.st_size:
                return path
            if time.time() - status.st_mtime < _MISS_LASTS_S:
                return None
        import http.client  # slow to load, as what fetching needs is, and most runs fetch nothing
        import urllib.error

        is_certain = True
        for url in self.urls:
            if url in self.failures:
                is_certain = False
                continue
            try:
                self._fetch(f"{url.rstrip('/')}/buildid/{build_id}/{kind}", path)
                return path
            except urllib.error.HTTPError as error:
                error.close()
                if error.code != http.HTTPStatus.NOT_FOUND:
                    self.failures[url] = f"HTTP status {error.code}"
                    is_certain = False
            except (OSError, ValueError, http.client.HTTPException) as error:
                self.failures[url] = str(getattr(error, "reason", error)) or type(error).__name__
                is_certain = False
        if is_certain:
            with contextlib.suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(b"")
        return None

    def _fetch(self, url: str, path: Path) -> None:
        """Download to ``path``, which appears only when it is whole."""
        import tempfile
        import urllib.request

        began = time.monotonic()
        request = urllib.request.Request(url, headers={"User-Agent": "tdprof"})
        with urllib.request.urlopen(request, timeout=self.timeout_s) as response:
            total = int(response.headers.get("Content-Length") or 0)
            if total > self.largest_bytes:
                raise ValueError(f"{total} bytes are more than DEBUGINFOD_MAXSIZE allows")
            path.parent.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
                try:
                    size = 0
                    while chunk := response.read(_CHUNK_BYTES):
                        size += len(chunk)
                        if size > self.largest_bytes:
                            raise ValueError("it is larger than DEBUGINFOD_MAXSIZE allows")
                        if self.longest_s and time.monotonic() - began > self.longest_s:
                            raise ValueError("it takes longer than DEBUGINFOD_MAXTIME allows")
                        file.write(chunk)
                        of_total = f" of {total >> 20}" if total else ""
                        self.progress(f"fetching {url}: {size >> 20}{of_total} MiB")
                    if total and size != total:
                        raise ValueError("the server sent less than it announced")
                    file.close()
                    os.replace(file.name, path)
                except BaseException:  # Ctrl-C as well must not leave a part behind
                    Path(file.name).unlink(missing_ok=True)
                    raise


def _number(text: str | None, default: float) -> float:
    try:
        return float(text) if text else default
    except ValueError:
        return default
