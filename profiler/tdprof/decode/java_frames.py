"""Methods of JVMs: reads what the BPF programs sent of them, tables where they were sampled as they were interpreted,
and tells which code is of those that are compiled.

Layouts: bpf/java_frames.h.
"""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from tdprof.capture.java_code import JavaMethod
from tdprof.capture.java_methods import BytecodeLines, external_name, source_file
from tdprof.capture.named_code import MethodCode
from tdprof.capture.spool import METHODS_FILE
from tdprof.decode.bpf_aggregates import StackBatch, read_ring_file, ring_records
from tdprof.decode.interpreted import place_addresses, place_mappings, place_symbols
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.model.addresses import DELETED, INTERPRETED_ADDRESS, JAVA
from tdprof.model.runtimes import JAVA_LANGUAGE, runtimes_of
from tdprof.text import plural
from tdprof.values import dataclass

METHOD = np.dtype(
    [
        ("identity", "<u8"),
        ("pid", "<u4"),
        ("class_bytes", "<u2"),
        ("name_bytes", "<u2"),
        ("signature_bytes", "<u2"),
        ("file_bytes", "<u2"),
        ("line_bytes", "<u2"),
        ("lowest_byte", "<u2"),
        ("class_name", "u1", 256),
        ("name", "u1", 128),
        ("signature", "u1", 512),
        ("file", "u1", 64),
    ]
)
CODE = np.dtype(
    [("method", "<u8"), ("begin", "<u8"), ("end", "<u8"), ("time_ns", "<u8"), ("pid", "<u4"), ("reserved", "<u4")]
)
MOST_LINE_BYTES = 4096
INDEX_BITS = 16
# JAVA_FRAME: of addresses, which are of 64 bits, the two highest.
_FRAME, _WHICH = np.uint64(1 << 62), np.uint64(3 << 62)
_FIRST_ADDRESS = INTERPRETED_ADDRESS + np.uint64(1 << 55)  # Python's are below
_CHUNK_BYTES = 8 << 20
_MOST_CODES = 1 << 20  # of all JVMs; one has some 10,000
_NO_NAME = "[method not read]"
_CUT = "…".encode()
_FIRST_PRINTABLE = 0x20


@dataclass(frozen=True, slots=True)
class _Method:
    """What a method said of itself.

    Attributes:
        own: all of that.
        is_whole: whether none of its texts was cut, or would break a line.
        name: as a JVM's map has it.
        lines: of its bytecodes.
        lowest_byte: of numbers in its tables.
    """

    own: JavaMethod
    is_whole: bool
    name: str
    lines: BytecodeLines
    lowest_byte: int


class JavaFrames:
    """The Java frames of a spool.

    Args:
        spool: the folder.
        damage: counts what cannot be read.

    Attributes:
        unnamed: places in methods that were not read in time.
    """

    def __init__(self, spool: Path, damage: SpoolDamage) -> None:
        self._methods: dict[int, _Method] = {}
        self._codes: list[bytes] = []
        self._pids: set[int] = set()
        self._numbers: dict[int, int] = {}  # of places, as they come
        self.unnamed = 0
        for records in read_ring_file(spool / METHODS_FILE, damage, ring_records, _CHUNK_BYTES):
            for record in records:
                if METHOD.itemsize <= len(record) <= METHOD.itemsize + MOST_LINE_BYTES:
                    self._add(record)
                elif len(record) == CODE.itemsize:
                    self._codes += [record] if len(self._codes) < _MOST_CODES else []
                else:
                    damage.stacks += 1

    def _add(self, record: bytes) -> None:
        head = np.frombuffer(record, METHOD, 1)[0]

        def text(field: str, bytes_field: str) -> bytes:
            found: bytes = head[field].tobytes()
            length = int(head[bytes_field])
            return found[:length] if length <= len(found) else found + _CUT

        holder, name, signature, file = (
            text(*fields)
            for fields in (
                ("class_name", "class_bytes"),
                ("name", "name_bytes"),
                ("signature", "signature_bytes"),
                ("file", "file_bytes"),
            )
        )
        method = JavaMethod(holder, name, signature, file, record[METHOD.itemsize :])
        lowest_byte = int(head["lowest_byte"])
        texts = holder + name + signature + file
        self._methods[int(head["identity"])] = _Method(
            method,
            _CUT not in texts and min(texts, default=0) >= _FIRST_PRINTABLE,
            external_name(method),
            BytecodeLines(method.lines, lowest_byte),
            lowest_byte,
        )
        self._pids.add(int(head["pid"]))

    def __bool__(self) -> bool:
        """Whether a stack has any of them."""
        return bool(self._numbers)

    def merge(self, batch: StackBatch) -> StackBatch:
        """The stacks with places in methods where the programs had these; each has a number from then on."""
        if not self._methods:  # along frame pointers anything may come, such as a floating-point number
            return batch
        is_frame = (batch.address & _WHICH) == _FRAME
        is_frame &= np.repeat(batch.walk["is_kernel"] == 0, np.diff(batch.start).astype(np.int64))
        if not is_frame.any():
            return batch
        places, row = np.unique(batch.address[is_frame], return_inverse=True)
        numbers = [self._numbers.setdefault(place, len(self._numbers)) for place in places.tolist()]
        address = batch.address.copy()
        address[is_frame] = place_addresses(_FIRST_ADDRESS, np.array(numbers, np.uint64)[row.reshape(-1)])
        return replace(batch, address=address)

    def symbols(self) -> pa.Table:
        """The capture's table of them: where in the source each place is."""
        return place_symbols(JAVA, [self._symbol(place) for place in self._numbers])

    def _symbol(self, place: int) -> dict[str, object]:
        method = self._methods.get((place & int(_FRAME) - 1) >> INDEX_BITS)
        if method is None:
            self.unnamed += 1
            return {"function": _NO_NAME, "file": None, "line": 0}
        line = method.lines.line(place & (1 << INDEX_BITS) - 1)
        return {"function": method.name, "file": source_file(method.own) or None, "line": line}

    def compiled(self) -> dict[int, list[MethodCode]]:
        """By process what methods were compiled to, as far as stacks had it and these could be read."""
        found: defaultdict[int, list[MethodCode]] = defaultdict(list)
        for code in np.frombuffer(b"".join(self._codes), CODE).tolist():
            identity, begin, end, time_ns, pid, _ = code
            method = self._methods.get(identity)
            if method and method.is_whole and begin < end:
                found[pid].append(MethodCode(begin, end, time_ns, method.own, method.lowest_byte))
        return found

    def notes(self) -> Iterator[str]:
        """What the user should know."""
        if self.unnamed:
            yield f"{plural(self.unnamed, 'place', 's')} in interpreted Java methods without a name: none could be read"

    def mappings(self, mapped: pa.Table) -> pa.Table:
        """Rows for the capture's table of mappings: where the places are, of each process since it had a JVM.

        Args:
            mapped: the table so far.
        """
        paths = mapped["path"].combine_chunks().dictionary_encode()
        names = paths.dictionary.to_pylist()
        of_path = [
            JAVA_LANGUAGE in {each.language for each in runtimes_of(path.removesuffix(DELETED))} for path in names
        ]
        rows = np.flatnonzero(np.array([*of_path, False])[paths.indices.fill_null(-1)])
        pids, times = (mapped[name].to_numpy()[rows].tolist() for name in ("pid", "time_ns"))
        since = {(pid, time_ns) for pid, time_ns in zip(pids, times, strict=True) if pid in self._pids}
        return place_mappings(JAVA, _FIRST_ADDRESS, len(self._numbers), sorted(since))
