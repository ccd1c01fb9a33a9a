"""perf.data in its file, pipe and directory forms: header, events, features, and the records as columns.

Format: the perf tool's ``Documentation/perf.data-file-format.txt`` and ``lib/perf/include/perf/event.h``.
"""

from __future__ import annotations

import contextlib
import mmap
import struct
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from tdprof.decode.mapped_files import MappedFiles, WatchedMap
from tdprof.decode.perf.attr import SMALLEST_ATTR, Attr, default_name, parse_attr
from tdprof.decode.perf.auxtrace import (
    AuxBuffer,
    AuxtraceInfo,
    TimeConversion,
    parse_auxtrace,
    parse_auxtrace_info,
    parse_time_conversion,
)
from tdprof.decode.perf.columns import Batch, Chains, RecordLosses, RecordStream, take_batch
from tdprof.decode.perf.compressed import Inflater
from tdprof.decode.perf.features import FEATURE_BITS, Features, add_build_id, add_feature, is_wanted
from tdprof.decode.perf.files import FileLosses, open_files
from tdprof.decode.perf.layout import MISC_CPUMODE_MASK, copied_words
from tdprof.decode.perf.records import ByteOrder, CompiledRecordDecoder, open_record_stream
from tdprof.decode.perf.tool_records import EVENT_UPDATE_NAME, IGNORED_TOOL_RECORDS, ToolRecord
from tdprof.decode.perf.windows import Window, WindowsAhead
from tdprof.errors import TdprofError
from tdprof.model.events import MOST_EVENTS
from tdprof.native.library import load_native

_MAGIC = {b"PERFILE2": "little", b"2ELIFREP": "big"}
_FILE_HEADER_BYTES, _PIPE_HEADER_BYTES = 104, 16
_WINDOW_BYTES = 2 << 20  # of records decoded into one batch
_COPIES_WINDOW_BYTES = 8 << 20  # with copied stacks, of which 2 MiB are some hundred samples
_MOST_THREADS = 3  # that decode: one adds up what they make, and takes half as long for that as one of them
_SECTION_BYTES = 64 << 20  # of a header feature; a build-id list of 100,000 files has 10 MB
_NOT_PERF_DATA = "perf record -o perf.data -- CMD, or tdprof record -o DIR -- CMD"


class PerfData:
    """An opened recording of perf; a context manager, which raises TdprofError if the file was cut short meanwhile.

    The file is mapped, not read: AUX buffers are offsets into it, and memory does not grow with its size. Attributes
    other than ``attrs`` and ``features`` are complete only after ``batches`` was run through.

    Args:
        path: a file, a directory (``perf record --threads``), or ``-`` for standard input.
        keep_branches: whether branch stacks are wanted.
        keep_copies: whether copied user stacks are.

    Attributes:
        attrs: the events, in the order that ``Samples.event`` numbers.
        byteorder: of the recorded machine.
        files: what is mapped of it; checked when records were read, and when the context ends.
        is_pipe: made by ``perf record -o -``.
        size_bytes, position: of the record data, for progress.
    """

    def __init__(self, path: str | Path, *, keep_branches: bool = False, keep_copies: bool = False) -> None:
        self.path = Path(path)
        self.attrs: list[Attr] = []
        self.features = Features()
        self.aux_buffers: list[AuxBuffer] = []
        self.auxtrace_info: AuxtraceInfo | None = None
        self.time_conversion: TimeConversion | None = None
        self.losses = FileLosses()
        self.position = 0
        self._keep_branches = keep_branches
        self._keep_copies = keep_copies
        self._copy = True
        self._prologue_bytes = 0
        self._windows: dict[int, list[Window]] = {}  # by file, as the pass before found them
        self._names_by_id: dict[int, str] = {}
        self.files = MappedFiles()
        self._files = open_files(path)
        try:
            self._maps = [self.files.add(file, str(path)) for file in self._files]
            with self.files.checked():
                self._read_header()
            self._stream = self._open_stream()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> PerfData:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self.files.check()

    def close(self) -> None:
        """Close the file; columns already taken stay valid."""
        for file in self._files:
            file.close()

    # --- header

    def _read_header(self) -> None:
        data = self._maps[0]
        byteorder = _MAGIC.get(bytes(data[:8]))
        if byteorder is None:
            what = "is empty: no perf.data" if not data else "is not a perf.data file"
            raise TdprofError(f"{self.path} {what} and no capture, which is a folder", hint=_NOT_PERF_DATA)
        self.byteorder: ByteOrder = "little" if byteorder == "little" else "big"
        self._order = "<" if byteorder == "little" else ">"
        if len(data) < _PIPE_HEADER_BYTES:
            raise TdprofError(f"{self.path} ends within its header", hint=_NOT_PERF_DATA)
        (header_bytes,) = self._unpack("Q", 8)
        self.is_pipe = header_bytes == _PIPE_HEADER_BYTES
        if self.is_pipe:
            self._start, self._end = _PIPE_HEADER_BYTES, len(data)
            self._read_pipe_prologue()
        elif header_bytes < _FILE_HEADER_BYTES or len(data) < _FILE_HEADER_BYTES:
            raise TdprofError(f"{self.path} ends within its header", hint=_NOT_PERF_DATA)
        else:
            self._read_file_header()
        if not self.attrs:
            raise TdprofError(f"{self.path} describes no event", hint="record again: perf record -- CMD")
        self.size_bytes = sum(len(area) for area in self._record_areas())

    def _unpack(self, format_: str, offset: int) -> tuple[int, ...]:
        return struct.unpack_from(self._order + format_, self._maps[0], offset)

    def _read_file_header(self) -> None:
        attr_bytes, attrs_at, attrs_bytes, self._start, data_bytes = self._unpack("QQQQQ", 16)
        features = self._unpack("4Q", 72)
        size = len(self._maps[0])
        if self._start > size:
            self.losses.cut_bytes += data_bytes
            self._start, self._end = size, size
        elif data_bytes == 0:  # perf writes the size when it ends: it was killed, and there are no features
            self._end = size
            features = (0, 0, 0, 0)
        else:
            self._end = min(size, self._start + data_bytes)
            self.losses.cut_bytes += self._start + data_bytes - self._end
        if attr_bytes < SMALLEST_ATTR + 16 or attrs_at > size:
            raise TdprofError(f"{self.path} has a damaged list of events", hint="record again: perf record -- CMD")
        id_bytes_left = size
        for at in range(attrs_at, min(size, attrs_at + attrs_bytes) - attr_bytes + 1, attr_bytes):
            ids_at, ids_bytes = self._unpack("QQ", at + attr_bytes - 16)
            ids: tuple[int, ...] = ()
            # Lists of ids lie side by side; those of a damaged file may not add up to more than it holds.
            if ids_at <= size and ids_bytes <= min(size - ids_at, id_bytes_left):
                ids = self._unpack(f"{ids_bytes // 8}Q", ids_at)
                id_bytes_left -= ids_bytes
            self._add_event(parse_attr(bytes(self._maps[0][at : at + attr_bytes - 16]), self.byteorder), ids)
        self._read_features(features)

    def _add_event(self, attr: Attr, ids: tuple[int, ...]) -> None:
        if len(self.attrs) == MOST_EVENTS:
            raise TdprofError(f"{self.path} is not read: it describes more than {MOST_EVENTS:,} events")
        self.attrs.append(replace(attr, ids=ids, name=default_name(attr)))

    def _read_features(self, words: tuple[int, ...]) -> None:
        bits = [bit for bit in range(FEATURE_BITS) if words[bit // 64] >> bit % 64 & 1]
        for index, bit in enumerate(bits):
            entry = self._start + (self._end - self._start) + 16 * index
            # A section whose entry is cut off is read as empty, and so named as one that cannot be read.
            offset, size = self._unpack("QQ", entry) if entry + 16 <= len(self._maps[0]) else (0, 0)
            if is_wanted(bit):
                section = bytes(self._maps[0][offset : offset + min(size, _SECTION_BYTES)])
                self.features = add_feature(self.features, bit, section, self.byteorder)
        self._name_events()

    def _name_events(self) -> None:
        """Names by the events' ids; where the file has none (one event, old perf) by their order."""
        described = self.features.events
        for event in described:
            self._names_by_id |= dict.fromkeys(event.ids, event.name)
        for number, attr in enumerate(self.attrs):
            name = next((self._names_by_id[id_] for id_ in attr.ids if id_ in self._names_by_id), "")
            if not attr.ids and len(described) == len(self.attrs):
                name = described[number].name
            if name:
                self.attrs[number] = replace(attr, name=name)

    def _read_pipe_prologue(self) -> None:
        """Everything in front of the first kernel record: events, their names, features."""
        at = self._start
        while at + 8 <= self._end:
            type_, misc, size = self._unpack("IHH", at)
            if type_ < ToolRecord.HEADER_ATTR or type_ in (ToolRecord.COMPRESSED, ToolRecord.COMPRESSED2):
                break
            if size < 8 or at + size > self._end:
                break
            self._take_description(type_, misc, bytes(self._maps[0][at + 8 : at + size]))
            at += size
        self._prologue_bytes = at - self._start
        self._name_events()

    def _take_description(self, type_: int, misc: int, body: bytes) -> bool:
        """A tool record that describes the recording; False if it is none of these."""
        if type_ == ToolRecord.HEADER_ATTR and len(body) >= SMALLEST_ATTR:
            attr_bytes = struct.unpack_from(f"{self._order}I", body, 4)[0] or SMALLEST_ATTR
            if SMALLEST_ATTR <= attr_bytes <= len(body):
                attr = parse_attr(body[:attr_bytes], self.byteorder)
                ids = struct.unpack_from(f"{self._order}{(len(body) - attr_bytes) // 8}Q", body, attr_bytes)
                self._add_event(attr, ids)
        elif type_ == ToolRecord.EVENT_UPDATE and len(body) > 16:
            kind, id_ = struct.unpack_from(f"{self._order}QQ", body)
            name = body[16:].split(b"\0", 1)[0].decode(errors="replace")
            if kind == EVENT_UPDATE_NAME and name:
                self._names_by_id[id_] = name
        elif type_ == ToolRecord.HEADER_FEATURE and len(body) >= 8:
            (bit,) = struct.unpack_from(f"{self._order}Q", body)
            self.features = add_feature(self.features, bit, body[8:], self.byteorder)
        elif type_ == ToolRecord.HEADER_BUILD_ID and len(body) >= 28:
            add_build_id(self.features.build_ids, misc, body[4:28], body[28:])
        elif type_ == ToolRecord.AUXTRACE_INFO:
            self.auxtrace_info = parse_auxtrace_info(body, self.byteorder)
        elif type_ == ToolRecord.TIME_CONV:
            self.time_conversion = parse_time_conversion(body, self.byteorder)
        else:
            return False
        return True

    # --- records

    def _open_stream(self, *, skip_samples: bool = False) -> RecordStream:
        layouts = [attr.layout(self.features.arch) for attr in self.attrs]
        return open_record_stream(
            layouts,
            self.byteorder,
            keep_branches=self._keep_branches,
            keep_copies=self._keep_copies,
            skip_samples=skip_samples,
        )

    @property
    def record_losses(self) -> RecordLosses:
        """What of the records did not become rows so far."""
        return self._stream.losses

    @property
    def has_copies(self) -> bool:
        """Whether user stacks come as memory with the registers that a walk needs, and were asked for."""
        layouts = [attr.layout(self.features.arch) for attr in self.attrs]
        return self._keep_copies and load_native() is not None and copied_words(layouts, self.byteorder) > 0

    def chains(self, first: int = 0) -> Chains:
        """The distinct call chains so far, from number ``first`` on."""
        return self._stream.chains(first)

    def batches(self, *, skip_samples: bool = False, copy: bool = True, threads: int = 1) -> Iterator[Batch]:
        """The records in file order, some megabytes at a time; every call reads the file anew.

        Records of one CPU are in time order, records of different CPUs are not.

        Args:
            skip_samples: whether only the side-band is wanted.
            copy: False where a batch's samples need to stay only until the next is asked for.
            threads: that decode, where samples need not stay and there was a pass before.

        Raises:
            TdprofError: the file was cut short meanwhile.
        """
        self._copy = copy
        self._stream = self._open_stream(skip_samples=skip_samples)
        self.losses = FileLosses(cut_bytes=self.losses.cut_bytes)
        self.aux_buffers = []
        self.position = 0
        with self.files.checked():
            for number, data in enumerate(self._record_areas()):
                windows = self._windows.pop(number, [])
                with contextlib.ExitStack() as stack:
                    ahead = None
                    # Copied stacks, too, would have to stay.
                    if threads > 1 and not copy and not self.has_copies and len(windows) > 1:
                        ahead = stack.enter_context(self._decode_ahead(data, windows, threads))
                    yield from self._batches_of(number, data, ahead)

    def aux_data(self, buffer: AuxBuffer) -> memoryview:
        """The bytes of an AUX buffer, mapped, not copied."""
        return memoryview(self._maps[buffer.file])[buffer.file_offset : buffer.file_offset + buffer.size_bytes]

    def _record_areas(self) -> list[memoryview]:
        first, *extra = self._maps
        return [memoryview(first)[self._start : self._end], *(memoryview(data) for data in extra)]

    def _decode_ahead(self, data: memoryview, windows: list[Window], threads: int) -> WindowsAhead:
        def open_stream() -> CompiledRecordDecoder:
            stream = self._open_stream()
            assert isinstance(stream, CompiledRecordDecoder)  # of another there are no windows
            return stream

        assert isinstance(self._stream, CompiledRecordDecoder)
        return WindowsAhead(self._stream, open_stream, self._order, data, windows, min(threads, _MOST_THREADS))

    def _batches_of(self, file: int, data: memoryview, ahead: WindowsAhead | None) -> Iterator[Batch]:
        window_bytes = _COPIES_WINDOW_BYTES if self.has_copies else _WINDOW_BYTES
        stream, inflater = self._stream, Inflater(self._stream, self.losses, window_bytes)
        windows = self._windows[file] = []
        at = taken = read = 0
        is_plain = True
        before = self.position
        while len(data) - at >= 8:
            if ahead and at == taken and (found := ahead.take(at)):
                end, batch = found
                self._drop_pages(file, at, end)
                at = taken = end
                self.position = before + at
                yield batch
                continue
            window = data[at : at + window_bytes]
            used = stream.feed(window, final=at + len(window) == len(data))
            at += used
            read += used
            if stream.tool_record:
                type_, misc, size = struct.unpack_from(f"{self._order}IHH", data, at)
                if size > len(data) - at:
                    break
                body = data[at + 8 : at + size]
                if type_ in (ToolRecord.COMPRESSED, ToolRecord.COMPRESSED2):
                    for _ in inflater.feed(self._compressed_part(type_, body)):
                        batch = take_batch(self._stream, copy=self._copy)
                        inflater.keep(batch)
                        yield batch
                is_plain &= _says_nothing(type_, misc)
                payload_bytes = self._take_tool_record(type_, misc, body, file, data, at + size)
                stream.skip(size + payload_bytes)
                at += size + payload_bytes
                read += size  # not the payload: a batch for each AUX buffer would cost more than its records
            elif used == 0:
                break
            self.position = before + at
            if read >= window_bytes:
                self._drop_pages(file, taken, at)
                if is_plain and isinstance(stream, CompiledRecordDecoder) and stream.has_no_damage:
                    windows.append(Window(taken, at))
                taken, read, is_plain = at, 0, True
                yield take_batch(self._stream, copy=self._copy)
        inflater.finish()
        self.losses.unreadable_bytes += len(data) - at
        self.position = before + len(data)
        yield take_batch(self._stream, copy=self._copy)

    def _drop_pages(self, file: int, start: int, end: int) -> None:
        """Let go of the pages that were read, so that a file's size never counts as this process's memory."""
        data, offset = self._maps[file], self._start if file == 0 else 0
        if isinstance(data, WatchedMap):
            first = (offset + start) // mmap.PAGESIZE * mmap.PAGESIZE
            data.madvise(mmap.MADV_DONTNEED, first, offset + end - first)

    def _compressed_part(self, type_: int, body: memoryview) -> memoryview:
        if type_ == ToolRecord.COMPRESSED or len(body) < 8:
            return body
        (size,) = struct.unpack_from(f"{self._order}Q", body)  # COMPRESSED2 is padded to 8
        return body[8 : 8 + size]

    def _take_tool_record(
        self, type_: int, misc: int, body: memoryview, file: int, data: memoryview, payload_at: int
    ) -> int:
        """Note what a record of the perf tool says; returns the size of the payload behind it, in bytes."""
        if type_ == ToolRecord.AUXTRACE and len(body) >= 40:
            start = payload_at + (self._start if file == 0 else 0)
            buffer = parse_auxtrace(bytes(body), self.byteorder, file, start, len(data) - payload_at)
            self.aux_buffers.append(buffer)
            self.losses.truncated_aux_buffers += buffer.is_cut
            return buffer.size_bytes
        described = type_ in (ToolRecord.HEADER_ATTR, ToolRecord.EVENT_UPDATE, ToolRecord.HEADER_FEATURE)
        if described and self.is_pipe and payload_at <= self._prologue_bytes:
            return 0
        if type_ in (ToolRecord.COMPRESSED, ToolRecord.COMPRESSED2):
            return 0
        if _says_nothing(type_, misc):
            return 0
        if type_ == ToolRecord.HEADER_ATTR or not self._take_description(type_, misc, bytes(body)):
            self.losses.unknown_tool_records[type_] += 1
        return 0


def _says_nothing(type_: int, misc: int) -> bool:
    """Whether a record of the perf tool is one that nobody here reads."""
    # The tool sets no CPU mode: a record that has one is a damaged kernel record, and must not pass unseen.
    return type_ in IGNORED_TOOL_RECORDS and not misc & MISC_CPUMODE_MASK
