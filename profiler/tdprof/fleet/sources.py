"""Where captures lie: in folders, or as folders in an object store, from which they are brought here to be read."""

import contextlib
import fcntl
import os
import posixpath
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa

from tdprof.capture.files import MANIFEST_FILE, near_folder
from tdprof.capture.manifest import MOST_MANIFEST_BYTES, Manifest, read_manifest
from tdprof.capture.spool import SPOOL_FOLDER
from tdprof.errors import TdprofError
from tdprof.fleet.storage import Files, open_place
from tdprof.text import first_words

_CHUNK_BYTES = 1 << 20
_HINT = "name captures, or a folder of captures"
# Of one capture: a recording of days has a few hundred files of some hundred megabytes.
_MOST_FILES, _MOST_BYTES = 20_000, 16 << 30


def is_remote(place: str) -> bool:
    """Whether a place is in an object store."""
    return "://" in place


def find_captures(places: Sequence[str]) -> list[str]:
    """The captures that are meant: folders, or all that stand in a folder of captures; in order, each once.

    A segment that is still being recorded is none yet: as it is, it would count for what it is going to be. A place
    that has none is meant for one, which is damaged, where others have some; else it is a mistake.

    Raises:
        TdprofError: an object store cannot be read, a path is not there, or no capture is anywhere.
    """
    found: dict[str, None] = {}
    is_mistaken = True
    for place in places:
        inner = _captures_below(place) if is_remote(place) else _captures_in(Path(place))
        is_mistaken = is_mistaken and inner is None
        found |= dict.fromkeys([_whole(place)] if inner is None else inner)
    if places and is_mistaken:
        named = ", ".join(place.partition("?")[0] if is_remote(place) else place for place in places)
        raise TdprofError(f"no capture is at {named}, so nothing was added", hint=_HINT)
    return list(found)


def _whole(place: str) -> str:
    return place if is_remote(place) else str(Path(place).absolute())


def _captures_in(folder: Path) -> list[str] | None:
    """None: it is no capture, has none and is not where a recorder puts some."""
    if (folder / MANIFEST_FILE).exists():
        return [str(folder.absolute())]
    if not folder.exists():
        near = near_folder(folder, MANIFEST_FILE, f"*/{MANIFEST_FILE}")
        hint = f"did you mean {near}?" if near else _HINT
        raise TdprofError(f"nothing is at {folder}, so nothing was added", hint=hint)
    with contextlib.suppress(OSError):
        # Looked up first: what has its tables by then has them afterwards.
        is_recorded = _is_recorders(folder)
        inner = sorted(each for each in folder.iterdir() if (each / MANIFEST_FILE).is_file())
        if inner or is_recorded:
            left = [each for each in inner if not (is_recorded and (each / SPOOL_FOLDER).exists())]
            return [str(each.absolute()) for each in left]
    return None


def _is_recorders(folder: Path) -> bool:
    """Whether a recorder writes segments into a folder now: then it holds a lock on it (`SegmentFolder`)."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False


def _captures_below(uri: str) -> list[str] | None:
    files = open_place(uri)
    names = {path[len(files.root) :].strip("/") for path in _listed(files, uri)}
    inner = sorted(name.removesuffix(MANIFEST_FILE).rstrip("/") for name in names if _is_manifest(name))
    address, _, options = uri.partition("?")
    below = [f"{address.rstrip('/')}/{quote(name)}" if name else address for name in inner]
    return [f"{each}?{options}" if options else each for each in below] or None


def _is_manifest(name: str) -> bool:
    """Whether a path below a folder is a capture's manifest: that one's, or of a folder in it."""
    return name == MANIFEST_FILE or (name.count("/") == 1 and name.endswith(f"/{MANIFEST_FILE}"))


def _listed(files: Files, uri: str) -> list[str]:
    try:
        return files.below(files.root)
    except (OSError, pa.ArrowException) as error:
        raise _unreadable(uri, error) from error


def read_source_manifest(source: str) -> Manifest:
    """The manifest of a capture.

    Raises:
        TdprofError: it is none, or cannot be read.
    """
    with contextlib.ExitStack() as stack:
        folder = Path(source)
        if is_remote(source):
            files = open_place(source)
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tdprof-capture-")))
            with contextlib.suppress(FileNotFoundError):
                path = posixpath.join(files.root, MANIFEST_FILE)
                _fetch(files, path, folder / MANIFEST_FILE, MOST_MANIFEST_BYTES + 1, source)
        return read_manifest(folder)


@contextlib.contextmanager
def brought_here(source: str) -> Iterator[Path]:
    """A capture as a folder of this machine; a copy of one in an object store goes again at the end.

    Raises:
        UnreachableError: the object store does not answer.
        TdprofError: nothing is there, or more than any capture has.
    """
    if not is_remote(source):
        yield Path(source)
        return
    files = open_place(source)
    paths = _listed(files, source)
    if not paths:
        raise TdprofError(f"no capture at {source.partition('?')[0]}")
    if len(paths) > _MOST_FILES:
        raise TdprofError(f"it has {len(paths):,} files: no capture has that many")
    with tempfile.TemporaryDirectory(prefix="tdprof-capture-") as folder:
        left = _MOST_BYTES
        for path in paths:
            parts = path.removeprefix(f"{files.root}/").split("/")
            # Names of objects may be anything: one that leads elsewhere is no capture's file.
            if any(part in ("", ".", "..") or "\0" in part or len(part.encode()) > 255 for part in parts):
                continue
            target = Path(folder).joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            left -= _fetch(files, path, target, left, source)
        try:
            yield Path(folder)
        except TdprofError as error:  # what is wrong with it is the same wherever it was copied to
            raise TdprofError(error.message.replace(folder, source.partition("?")[0]), hint=error.hint) from error


def _fetch(files: Files, path: str, target: Path, most: int, source: str) -> int:
    """Copy an object, and return its bytes."""
    done = 0
    with target.open("xb") as file:
        try:
            with files.open(path) as stream:
                while chunk := stream.read(_CHUNK_BYTES):
                    done += len(chunk)
                    if done > most:
                        raise TdprofError("it is larger than any capture is")
                    file.write(chunk)
        except FileNotFoundError:
            raise
        except (OSError, pa.ArrowException) as error:
            raise _unreadable(source, error) from error
    return done


def _unreadable(place: str, error: Exception) -> TdprofError:
    words = first_words(error)
    return UnreachableError(
        f"cannot read {place.partition('?')[0]}: {words}", hint="run it again: what is done is kept"
    )


class UnreachableError(TdprofError):
    """An object store does not answer, or not with what is there: nothing that a capture is to blame for."""
