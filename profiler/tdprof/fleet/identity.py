"""Names that captures bring, made safe for paths; what identifies a recording; which core kind a host is of."""

import functools
import hashlib
import io
import json
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from tdprof.capture.manifest import Host, Manifest
from tdprof.catalog.choose import find_by_midr
from tdprof.catalog.midr import Midr
from tdprof.errors import TdprofError
from tdprof.text import all_printable, printable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"  # what engines take for no value at all
_LONGEST_PART = 120  # bytes, of the 255 that a file's name may have
_LONGEST_TEXT = 2000  # characters: longer names are those of no program that anybody reads
_DIGEST_CHARACTERS = 32
_NS = 1_000_000_000


def digest(*parts: bytes) -> str:
    """32 hexadecimal digits that identify some bytes."""
    told = Digest()
    for part in parts:
        told.begin(len(part))
        told.write(part)
    return told.digits()


class Digest(io.RawIOBase):
    """The same of parts that are written to it piece by piece."""

    def __init__(self) -> None:
        self._hashed = hashlib.sha256()

    def begin(self, size_bytes: int) -> None:
        """What is written from now on is a part of that size."""
        self._hashed.update(size_bytes.to_bytes(8, "little"))

    def writable(self) -> bool:
        """See `io.IOBase`."""
        return True

    def write(self, data: "ReadableBuffer") -> int:
        """See `io.RawIOBase`."""
        with memoryview(data) as view:
            self._hashed.update(view)
            return view.nbytes

    def digits(self) -> str:
        """The digest of all parts, as `digest` has it."""
        return self._hashed.hexdigest()[:_DIGEST_CHARACTERS]


def path_part(name: str) -> str:
    """A name as one part of a path, whatever it holds: encoded as Hive does.

    One that is too long is cut. That, one that cannot be shown and the one that engines read as no value end with a
    digest, so that others like it are others.
    """
    shown = printable(name)
    part = quote(shown, safe="") or "unknown"
    if len(part) <= _LONGEST_PART and shown == name != _HIVE_NULL:
        return part
    end = _LONGEST_PART - len("~") - _DIGEST_CHARACTERS
    whole = re.sub(r"%.?$", "", part[:end])  # no half of an escape
    return f"{whole}~{digest(name.encode('utf-8', 'surrogatepass'))}"


def name_of_part(part: str) -> str:
    """The name in a part of a path."""
    return printable(unquote(part))


def bounded(text: str) -> str:
    """Printable text that is not too long for a table; what is cut off has a digest in its place."""
    shown = printable(text)
    if len(shown) <= _LONGEST_TEXT:
        return shown
    return f"{shown[: _LONGEST_TEXT - _DIGEST_CHARACTERS - 1]}…{digest(shown.encode())}"


def all_bounded(texts: Sequence[str]) -> Sequence[str]:
    """`bounded` of each."""
    shown = all_printable(texts)
    return shown if max(map(len, shown), default=0) <= _LONGEST_TEXT else [*map(bounded, shown)]


def recording_id(manifest: Manifest, content: Callable[[], bytes]) -> str:
    """What identifies a recording, however often it is copied, archived or finished.

    Args:
        content: makes something of what was recorded, asked for where neither boot nor clock tell recordings apart.
    """
    host = manifest.host
    moment = [manifest.start_realtime_ns, manifest.start_monotonic_ns]
    known = [host.hostname, host.boot_id, *moment]
    return digest(json.dumps(known).encode(), b"" if host.boot_id else content())


def recorded_date(manifest: Manifest) -> str:
    """The day on which a recording began, in UTC.

    Raises:
        TdprofError: its clock was set to no time that a table can hold.
    """
    seconds = manifest.start_realtime_ns // _NS
    if not 0 <= seconds < 1 << 33:
        raise TdprofError("its time of recording is none that a clock of today can show")
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d")


def core_kind(host: Host) -> str:
    """The kinds of core that a host has, by which hosts are told apart: names of catalogs, or what it says itself.

    Of Arm's cores, implementer and part decide; two kinds in one host are joined by "+".
    """
    kinds = sorted(set(map(_arm_core, host.midr_el1.values())))
    return "+".join(kinds) or " ".join([host.machine, host.cpu_model]).strip() or "unknown"


@functools.lru_cache(maxsize=256)  # finding it reads catalogs, and hosts are of few kinds
def _arm_core(register: str) -> str:
    try:
        midr = Midr.from_register(int(register, 16))
    except ValueError:
        return "unknown"
    catalog = find_by_midr(midr)
    return catalog.name if catalog else f"arm-{midr.implementer:02x}-{midr.part:03x}"
