"""Perf's side-band records one by one, in Python: the reference of ``native/perf_side_band.c``."""

import struct
from typing import Any

from tdprof.decode.perf.columns import NOT_RECORDED, SIDE_BAND
from tdprof.decode.perf.cursor import Cursor
from tdprof.decode.perf.layout import MISC_MMAP_BUILD_ID, RecordLayout
from tdprof.linux.perf_abi import RecordType, SampleType

_SAMPLE_ID_FIELDS = (
    SampleType.TID | SampleType.TIME | SampleType.ID | SampleType.STREAM_ID | SampleType.CPU | SampleType.IDENTIFIER
)


def begin_row(type_: int, misc: int, event: int, layout: RecordLayout, c: Cursor) -> dict[str, Any]:
    """A row of ``SIDE_BAND`` with what every record has; cuts the ``struct sample_id`` off the record's end."""
    row: dict[str, Any] = dict.fromkeys(SIDE_BAND.names or (), 0)
    row |= dict.fromkeys(("pid", "tid", "ppid", "ptid", "cpu"), NOT_RECORDED)
    row |= {"type": type_, "misc": misc, "event": event, "build_id": [0] * 20, "pad2": [0] * 4}
    _take_sample_id(layout, c, row)
    return row


def fill_row(row: dict[str, Any], c: Cursor, *, asks_build_ids: bool) -> tuple[bool, bytes | None]:
    """The fields of the row's type; returns whether the type is known, and the bytes to keep (None: it has none)."""
    name: bytes | None = None
    match row["type"]:
        case RecordType.MMAP | RecordType.MMAP2:
            row["pid"], row["tid"] = c.u32(), c.u32()
            row["addr"], row["len"], row["pgoff"] = c.words(3)
            if row["type"] == RecordType.MMAP2:
                _take_identity(c, row, asks_build_ids=asks_build_ids)
            name = c.text()
        case RecordType.COMM:
            row["pid"], row["tid"] = c.u32(), c.u32()
            name = c.text()
        case RecordType.FORK | RecordType.EXIT:
            row["pid"], row["ppid"], row["tid"], row["ptid"] = c.u32(), c.u32(), c.u32(), c.u32()
            row["time_ns"] = (row["time_ns"], c.u64())[row["time_ns"] == 0]
        case RecordType.LOST:
            row["id"], row["value"] = c.words(2)
        case RecordType.THROTTLE | RecordType.UNTHROTTLE:
            time_ns, row["id"], _ = c.words(3)
            row["time_ns"] = row["time_ns"] or time_ns
        case RecordType.SWITCH:
            pass
        case RecordType.SWITCH_CPU_WIDE:
            row["ppid"], row["ptid"] = c.u32(), c.u32()
        case RecordType.AUX:
            row["addr"], row["len"], row["flags"] = c.words(3)
        case RecordType.ITRACE_START:
            row["pid"], row["tid"] = c.u32(), c.u32()
        case RecordType.NAMESPACES:
            row["pid"], row["tid"] = c.u32(), c.u32()
            row["value"] = c.u64()
            name = struct.pack(f"={2 * row['value']}Q", *c.words(2 * row["value"]))
        case RecordType.KSYMBOL:
            row["addr"], row["len"], row["value"], row["flags"] = c.u64(), c.u32(), c.u16(), c.u16()
            name = c.text()
        case RecordType.BPF_EVENT:
            row["flags"], row["prot"], row["value"] = c.u16(), c.u16(), c.u32()
            name = c.take(8)
        case RecordType.CGROUP:
            row["value"] = c.u64()
            name = c.text()
        case RecordType.TEXT_POKE:
            row["addr"], row["value"], row["len"] = c.u64(), c.u16(), c.u16()
            name = c.take(row["value"] + row["len"])
        case RecordType.LOST_SAMPLES | RecordType.AUX_OUTPUT_HW_ID:
            row["value"] = c.u64()
        case _:
            return False, None
    return True, name


def _take_sample_id(layout: RecordLayout, c: Cursor, row: dict[str, Any]) -> None:
    has = SampleType(layout.sample_type) & _SAMPLE_ID_FIELDS
    size = 8 * has.bit_count()
    if not layout.sample_id_all or size > c.left:
        return
    trailer = Cursor(c.data[len(c.data) - size :], "little" if c.order == "<" else "big")
    c.data = c.data[: len(c.data) - size]
    if SampleType.TID in has:
        row["pid"], row["tid"] = trailer.u32(), trailer.u32()
    if SampleType.TIME in has:
        row["time_ns"] = trailer.u64()
    if SampleType.ID in has:
        row["id"] = trailer.u64()
    if SampleType.STREAM_ID in has:
        trailer.u64()
    if SampleType.CPU in has:
        row["cpu"] = (trailer.u32(), trailer.u32())[0]
    if SampleType.IDENTIFIER in has:
        row["id"] = trailer.u64()


def _take_identity(c: Cursor, row: dict[str, Any], *, asks_build_ids: bool) -> None:
    # Where nobody asked the mark may have stayed from another recording's record.
    is_marked = bool(row["misc"] & MISC_MMAP_BUILD_ID) and c.left > 0
    if is_marked and (asks_build_ids or c.data[c.at] in (16, 20)):
        raw = c.take(24)
        if raw[0] <= 20:
            row["build_id_bytes"] = raw[0]
            row["build_id"] = list(raw[4 : 4 + raw[0]].ljust(20, b"\0"))
    else:
        row["maj"], row["min"] = c.u32(), c.u32()
        row["ino"], row["ino_generation"] = c.words(2)
    row["prot"], row["flags"] = c.u32(), c.u32()
