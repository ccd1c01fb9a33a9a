"""Fetching debug data and executables by build-id from the servers that the user's environment names.

Protocol, variables and layout of the local copies: elfutils, debuginfod(8) and debuginfod_find_debuginfo(3); the copies
are shared with gdb and every other client. Without ``DEBUGINFOD_URLS`` nothing is ever contacted.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from tdprof.linux.elf import ElfError, is_build_id, open_elf
from tdprof.linux.own_folder import OwnFolder
from tdprof.linux.user_cache import CacheFolder, cache_home
from tdprof.values import dataclass

Kind = Literal["debuginfo", "executable"]

_MISS_LASTS_S = 600  # how long a server's "not found" is believed: an empty copy stands for it
_TIMEOUT_S = 90
_LARGEST_BYTES = 4 << 30


@dataclass(slots=True)
class Debuginfod:
    """The user's debuginfod servers.

    Attributes:
        urls: of the servers, asked in this order.
        folder: of the local copies.
        timeout_s: how long a server may take for each 100 KiB (``DEBUGINFOD_TIMEOUT``, default 90), 0 for ever.
        longest_s: how long one download may take (``DEBUGINFOD_MAXTIME``), 0 for ever.
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
        return cls(
            urls,
            Path(environment.get("DEBUGINFOD_CACHE_PATH") or cache_home() / "debuginfod_client"),
            timeout_s=_number(environment.get("DEBUGINFOD_TIMEOUT"), _TIMEOUT_S),
            longest_s=_number(environment.get("DEBUGINFOD_MAXTIME"), 0),
            largest_bytes=int(_number(environment.get("DEBUGINFOD_MAXSIZE"), _LARGEST_BYTES)),
            progress=progress,
        )

    def find(self, build_id: str, kind: Kind) -> Path | None:
        """The local copy of a file, fetched if need be; None if no server has it."""
        if not is_build_id(build_id):
            return None
        path = self.folder / build_id / kind
        if why := CacheFolder(self.folder).refusal():
            self.failures |= dict.fromkeys(self.urls, f"not asked, as what it sends would not be safe: {why}")
            return None
        with contextlib.suppress(OSError), self._copies(build_id) as copies, copies.open_file(kind) as file:
            status = os.fstat(file.fileno())
            # Other clients keep whatever a server sent: what is another file here is fetched anew.
            if status.st_size and not _what_is_wrong(path, build_id):
                return path
            if not status.st_size and time.time() - status.st_mtime < _MISS_LASTS_S:
                return None
        import http.client  # slow to load, as what fetching needs is, and most runs fetch nothing
        import urllib.error

        is_certain = True
        for url in self.urls:
            if url in self.failures:
                is_certain = False
                continue
            try:
                self._fetch(f"{url.rstrip('/')}/buildid/{build_id}/{kind}", kind, build_id)
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
            with (
                contextlib.suppress(OSError),
                self._copies(build_id, make=True) as copies,
                copies.replacing(kind),
            ):
                pass
        return None

    @contextlib.contextmanager
    def _copies(self, build_id: str, *, make: bool = False) -> Iterator[OwnFolder]:
        """The folder of one build-id's copies. Whoever could change a name in it or on the way to it is this user."""
        with CacheFolder(self.folder).opened(make=make) as folder, folder.subfolder(build_id, make=make) as copies:
            yield copies

    def _fetch(self, url: str, kind: Kind, build_id: str) -> None:
        """Download a copy, which appears only when it is whole and the file that was asked for."""
        from tdprof.symbolize.download import DownloadError, Limits, download

        def say(size: int, total: int) -> None:
            of_total = f" of {total >> 20}" if total else ""
            self.progress(f"fetching {url}: {size >> 20}{of_total} MiB")

        with self._copies(build_id, make=True) as copies, copies.replacing(kind) as file:
            download(url, file, Limits(self.timeout_s, self.longest_s, self.largest_bytes), say)
            file.flush()
            if why := _what_is_wrong(Path(f"/proc/self/fd/{file.fileno()}"), build_id):
                raise DownloadError(why)


def _what_is_wrong(path: Path, build_id: str) -> str:
    """Why a file is not the one that was asked for; empty if it is."""
    try:
        file = open_elf(path)
    except ElfError as error:
        return f"its answer is no ELF file ({error}); is there a login or an error page before it?"
    if (found := file.build_id) != build_id:
        return f"it sent a file with build-id {found or 'none'} for {build_id}"
    # A server that announces no length may break off without a word.
    return "it sent a part of the file" if file.is_cut else ""


def _number(text: str | None, default: float) -> float:
    try:
        number = float(text) if text else default
    except ValueError:
        return default
    return number if math.isfinite(number) else default
