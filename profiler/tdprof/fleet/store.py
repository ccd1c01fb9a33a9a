"""The store: a folder, or a place in an object store, with roll-ups under names that lose nothing to a retry."""

import contextlib
import errno
import json
import posixpath
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.parquet as pq

from tdprof.capture.files import MANIFEST_FILE, STORE_MARKER, near_folder
from tdprof.errors import GoneError, TdprofError
from tdprof.fleet.identity import digest, name_of_part, path_part
from tdprof.fleet.schema import ALL_KINDS, KINDS, ROLLUP_VERSION, SUMS
from tdprof.fleet.shared_texts import in_plain_pieces
from tdprof.fleet.spans import Span, parse_span
from tdprof.fleet.storage import UNFINISHED, Files, open_place
from tdprof.fleet.stored_table import StoredTable
from tdprof.text import first_words, printable
from tdprof.values import dataclass

STORE_VERSION = 1
_ROLLUP, _SUMS, _REJECTED, _INCOMPLETE = "rollup", "sums", "rejected", "incomplete"
# In a file's name the place of a recording's identity, where it holds all of a host's day.
MANY = "day"
_MOST_MARKER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class Stem:
    """Where roll-ups lie, of one recording or of several of a host and day; each kind has a file of that name.

    Attributes:
        date, core, host: of the recording, as they stand in paths.
        recording: what was recorded; ``MANY`` of several.
        content: digest of what was made of it.
    """

    date: str
    core: str
    host: str
    recording: str
    content: str

    @property
    def folder(self) -> str:
        """The partition, below a kind's version."""
        return f"date={self.date}/core={self.core}/host={self.host}"

    @property
    def file(self) -> str:
        """The file's name."""
        return f"{self.recording}-{self.content}.parquet"

    @property
    def path(self) -> str:
        """The same for every kind, below its version."""
        return f"{self.folder}/{self.file}"

    @property
    def host_name(self) -> str:
        """The host's name, for people."""
        return name_of_part(self.host)

    @property
    def core_name(self) -> str:
        """The core kind, for people."""
        return name_of_part(self.core)


@dataclass(frozen=True, slots=True, order=True)
class Rejection:
    """A capture that was set aside, or a part of it, and why.

    Attributes:
        of: host and date of what the store has of it; empty: nothing.
    """

    source: str
    reason: str
    of: tuple[str, ...] = ()

    @property
    def shown(self) -> tuple[str, str]:
        """Both, printable: who named the capture may be anybody."""
        return printable(self.source), printable(self.reason)

    @property
    def told(self) -> dict[str, str]:
        """The same by name, for JSON."""
        source, reason = self.shown
        return {"source": source, "reason": reason}


class Store:
    """A store that is there; `create` makes one.

    Args:
        place: a folder's path, or a URI such as ``s3://bucket/prefix`` or ``gs://…``.

    Raises:
        TdprofError: it is none, cannot be reached, or is of a newer version.
    """

    def __init__(self, place: str) -> None:
        self.place = place
        self._files = open_place(place)
        self._check_marker()

    @classmethod
    def create(cls, place: str) -> Self:
        """The store at that place, made if nothing is there yet."""
        files = open_place(place)
        with _naming(place):
            if files.is_empty():
                try:
                    files.make()
                except FileNotFoundError as error:  # where none can be made, as in /proc
                    raise _unusable(place, error) from error
                text = json.dumps({"store_version": STORE_VERSION}, indent=1) + "\n"
                files.write(posixpath.join(files.root, STORE_MARKER), text.encode())
        return cls(place)

    def _check_marker(self) -> None:
        hint = f"tdprof fleet add {shlex.quote(self.place)} CAPTURE… makes one"
        try:
            with _naming(self.place):
                text = _start_of(self._files, self._path(STORE_MARKER))
        except FileNotFoundError as error:
            if (Path(self.place) / MANIFEST_FILE).is_file():
                hint = f"it is a capture, which tdprof fleet add STORE {shlex.quote(self.place)} puts into one"
            elif near := near_folder(Path(self.place), STORE_MARKER):
                hint = f"{near}, which is one"
            elif Path(self.place).is_dir():
                hint = "tdprof fleet add STORE CAPTURE… makes one of a folder that is empty or not there yet"
            raise TdprofError(f"{self.place} is no store: it has no {STORE_MARKER}", hint=hint, status=2) from error
        try:
            version = json.loads(text)["store_version"]
            if not isinstance(version, int):
                raise TypeError
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise TdprofError(f"{self.place} is no store: its {STORE_MARKER} is damaged", hint=hint) from error
        if version > STORE_VERSION:
            raise TdprofError(
                f"{self.place} has store version {version}; this tdprof reads up to {STORE_VERSION}",
                hint="pip install --upgrade tdprof",
            )

    def stems(self) -> Iterator[Stem]:
        """All recordings of which every kind of roll-up is whole, in the order of their paths; some may stand twice."""
        # The kinds are written in another order than this one is read in: what is here is complete.
        yield from sorted(self._stems_of("recordings"))

    def _stems_of(self, kind: str) -> Iterator[Stem]:
        base = self._path(_ROLLUP, kind, f"v={ROLLUP_VERSION}")
        with _naming(self.place):
            for path in self._files.below(base):
                if stem := _stem(path[len(base) + 1 :]):
                    yield stem

    def unfinished(self) -> list[str]:
        """Files that a writer left behind when it was killed."""
        return [
            path
            for folder in (_ROLLUP, _SUMS)
            for path in self._paths_below(folder)
            if posixpath.basename(path).startswith(UNFINISHED)
        ]

    def _paths_below(self, folder: str) -> list[str]:
        with _naming(self.place):
            return self._files.below(self._path(folder))

    def orphans(self) -> list[tuple[str, Stem]]:
        """Roll-ups of a kind without the file that says they are whole: what a killed writer had done."""
        whole = set(self._stems_of("recordings"))
        kinds = [kind for kind in ALL_KINDS if kind != "recordings"]
        return sorted((kind, stem) for kind in kinds for stem in set(self._stems_of(kind)) - whole)

    def stems_with(self, kind: str) -> set[Stem]:
        """The recordings that have a kind of roll-up which not all have."""
        return set(self._stems_of(kind))

    def missing(self) -> list[tuple[str, Stem]]:
        """Kinds that a recording lacks whose roll-ups should be whole: somebody removed them."""
        whole = set(self._stems_of("recordings"))
        kinds = [kind for kind in KINDS if kind != "recordings"]
        return sorted((kind, stem) for kind in kinds for stem in whole - set(self._stems_of(kind)))

    def write(self, stem: Stem, tables: Mapping[str, pa.Table]) -> None:
        """Put a recording's roll-ups; done again it writes the same names with the same bytes.

        The kind that `stems` looks for is written last: where it is, the others are whole.
        """
        with _naming(self.place):
            for kind in sorted(tables, key=lambda kind: kind == "recordings"):
                path = self._path(_ROLLUP, kind, f"v={ROLLUP_VERSION}", stem.folder, stem.file)
                self._files.write(path, to_parquet(tables[kind], ALL_KINDS[kind]))

    def read(self, kind: str, stem: Stem, columns: list[str] | None = None) -> pa.Table:
        """One roll-up of a recording, with text columns as they are stored: each text once.

        Raises:
            TdprofError: it is missing or damaged.
        """
        path = self._path(_ROLLUP, kind, f"v={ROLLUP_VERSION}", stem.folder, stem.file)
        schema = ALL_KINDS[kind]
        columns = columns or schema.names
        with self._opened(path, pa.schema([_each_text_once(schema.field(name)) for name in columns])) as stored:
            return stored.read()

    @contextlib.contextmanager
    def _opened(self, path: str, schema: pa.Schema) -> Iterator[StoredTable]:
        hint = f"tdprof fleet check {shlex.quote(self.place)} says what is missing"
        with contextlib.ExitStack() as opened:
            try:
                file = opened.enter_context(self._files.open(path))
            except (OSError, pa.ArrowException) as error:
                kind = GoneError if isinstance(error, FileNotFoundError) else TdprofError
                raise kind(f"cannot read {path}: {first_words(error)}", hint=hint) from error
            yield StoredTable(file, path, hint, schema)

    def sums(self) -> set[tuple[Span, str]]:
        """The spans of days whose sums are whole, and the digests of what they add up."""
        # The hosts are written last.
        return {(span, name) for path in self._paths_below(_SUMS) for span, name, kind in _sum(path) if kind == "hosts"}

    def write_sums(self, kind: str, span: Span, name: str, content: bytes) -> None:
        """Put one kind of a span's sums, a Parquet file."""
        with _naming(self.place):
            self._files.write(self._sums_path(kind, span, name), content)

    @contextlib.contextmanager
    def open_sums(self, kind: str, span: Span, name: str) -> Iterator[StoredTable]:
        """One kind of a span's sums, to be read.

        Raises:
            TdprofError: it is missing or damaged, also while it is read.
        """
        with self._opened(self._sums_path(kind, span, name), SUMS[kind]) as stored:
            yield stored

    def remove_sums(self, kept: Collection[tuple[Span, str]]) -> list[str]:
        """Take out all sums but some, and return their paths."""
        gone = [path for path in self._paths_below(_SUMS) for span, name, _ in _sum(path) if (span, name) not in kept]
        # First what makes them count.
        for path in sorted(gone, key=lambda path: (not path.endswith("-hosts.parquet"), path)):
            self.remove_file(path)
        return gone

    def _sums_path(self, kind: str, span: Span, name: str) -> str:
        return self._path(_SUMS, f"v={ROLLUP_VERSION}", span.name, f"{name}-{kind}.parquet")

    def remove(self, stem: Stem) -> None:
        """Take a recording's roll-ups out, first what makes them count."""
        for kind in sorted(ALL_KINDS, key=lambda kind: kind != "recordings"):
            self.remove_kind(kind, stem)

    def remove_kind(self, kind: str, stem: Stem) -> None:
        """Take one roll-up out, if it is there."""
        self.remove_file(self._path(_ROLLUP, kind, f"v={ROLLUP_VERSION}", stem.folder, stem.file))

    def remove_file(self, path: str) -> None:
        """Take out one of the store's files, by its whole path, if it is there."""
        with _naming(self.place):
            self._files.remove(path)

    def reject(self, rejection: Rejection) -> None:
        """Note that a capture was set aside, or that something of it is not in the store though the rest is."""
        text = json.dumps(asdict(rejection), indent=1) + "\n"
        with _naming(self.place):
            self._files.write(
                self._noted_path(_INCOMPLETE if rejection.of else _REJECTED, rejection.source), text.encode()
            )

    def accept(self, source: str) -> None:
        """Take back that a capture was set aside or was not whole, now that it is in."""
        self.remove_file(self._noted_path(_REJECTED, source))
        self.remove_file(self._noted_path(_INCOMPLETE, source))

    def rejections(self) -> list[Rejection]:
        """The captures that were set aside, by name."""
        return self._noted(_REJECTED)

    def incomplete(self, stems: Iterable[Stem]) -> list[Rejection]:
        """Of the captures that these files are of, those of which something could not be read, by name."""
        there = {(stem.host_name, stem.date) for stem in stems}
        return [each for each in self._noted(_INCOMPLETE) if each.of in there]

    def _noted(self, kind: str) -> list[Rejection]:
        with _naming(self.place):
            paths = [path for path in self._files.below(self._path(kind)) if path.endswith(".json")]
            found = [_rejection(_start_of(self._files, path), path) for path in paths]
        return sorted(found)

    def _noted_path(self, kind: str, source: str) -> str:
        return self._path(kind, f"{digest(source.encode('utf-8', 'surrogateescape'))}.json")

    def _path(self, *parts: str) -> str:
        return posixpath.join(self._files.root, *parts)


def _each_text_once(column: pa.Field) -> pa.Field:
    is_text = column.type == pa.string()
    return column.with_type(pa.dictionary(pa.int32(), pa.string())) if is_text else column


def _rejection(text: bytes, path: str) -> Rejection:
    try:
        told = json.loads(text)
        return Rejection(str(told["source"]), str(told["reason"]), tuple(map(str, told.get("of", ()))))
    except (ValueError, KeyError, TypeError, RecursionError):
        return Rejection(path, "what says why cannot be read")


def make_stem(date: str, core: str, host: str, recording: str, content: str) -> Stem:
    """Where the roll-ups of a recording go, whatever its host and core are called."""
    return Stem(date, path_part(core), path_part(host), recording, content)


def _stem(path: str) -> Stem | None:
    """The recording whose roll-up has this path below its kind; None for any other file."""
    parts = path.split("/")
    if len(parts) != 4 or not parts[3].endswith(".parquet") or parts[3].startswith("."):
        return None
    values = [part.partition("=") for part in parts[:3]]
    recording, _, content = parts[3].removesuffix(".parquet").partition("-")
    if [key for key, _, _ in values] != ["date", "core", "host"] or not content:
        return None
    date, core, host = (value for _, _, value in values)
    return Stem(date, core, host, recording, content)


@contextlib.contextmanager
def _naming(place: str) -> Iterator[None]:
    """Failures of the file system within, as ours: they name the place. That a file is not there stays as it is."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _unusable(place, error) from error


def _unusable(place: str, error: OSError) -> TdprofError:
    is_full = error.errno in (errno.ENOSPC, errno.EDQUOT)
    hint = "free some space, and run it again: what is done is kept" if is_full else "is it there, and may it be used?"
    return TdprofError(f"cannot use the store {place}: {first_words(error)}", hint=hint)


def _sum(path: str) -> Iterator[tuple[Span, str, str]]:
    """The span, digest and kind of a file of sums, from its path; nothing for any other file."""
    folder, file = posixpath.split(path)
    name, _, kind = file.removesuffix(".parquet").partition("-")
    span = parse_span(posixpath.basename(folder))
    if span and kind in SUMS and file.endswith(".parquet") and not file.startswith("."):
        yield span, name, kind


def _start_of(files: Files, path: str) -> bytes:
    with files.open(path) as file:
        text: bytes = file.read(_MOST_MARKER_BYTES)
    return text


def to_parquet(table: pa.Table, schema: pa.Schema) -> bytes:
    """A table, of which texts may be dictionaries, as a Parquet file: the same bytes for the same rows."""
    sink = pa.BufferOutputStream()
    schema = schema.with_metadata(table.schema.metadata)
    with pq.ParquetWriter(sink, schema, compression="zstd", write_page_checksum=True) as writer:
        for piece in in_plain_pieces(table, schema):
            writer.write_table(piece, row_group_size=1 << 20)
    content: bytes = sink.getvalue().to_pybytes()
    return content
