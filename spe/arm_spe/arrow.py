"""A batch of records as an Arrow record batch: the decoder's arrays without copies, nulls where a packet is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from arm_spe.columns import RecordBatch
from arm_spe.native import validity_bitmaps
from arm_spe.packet import Kind
from arm_spe.text import describe_operation

OP_CLASSES = ("other", "load", "store", "branch")
SECURITY_STATES = ("secure", "non-secure", "root", "realm")
OTHER_PACKETS = pa.list_(pa.struct([("header", pa.uint16()), ("payload", pa.uint64())]))

_NEVER_SAMPLED = 3  # exception level

Bitmap = NDArray[np.uint8]


@functools.cache
def _operation_codes() -> tuple[NDArray[np.int8], NDArray[np.int16], list[str]]:
    """By ``class << 8 | payload``: index into OP_CLASSES, index into the subclasses, and these."""
    classes = np.zeros(4 * 256, np.int8)
    subclasses = np.zeros(4 * 256, np.int16)
    words: dict[str, int] = {}
    for op_class in range(3):
        for payload in range(256):
            code = op_class << 8 | payload
            classes[code] = (0, 1 + (payload & 1), 3)[op_class]
            first, _, rest = describe_operation(op_class, payload).partition(" ")
            # "SVE-OTHER" and "SME-OTHER" are kinds of the class; a plain "B" is a direct branch.
            word = f"{first} {rest}" if first.startswith(("SVE", "SME")) else rest or "DIRECT"
            subclasses[code] = words.setdefault(word, len(words))
    return classes, subclasses, list(words)


@functools.cache
def _levels() -> tuple[NDArray[np.uint8], NDArray[np.int8]]:
    """By the top byte of an instruction address: exception level, index into SECURITY_STATES."""
    top = np.arange(256)
    return (top >> 5 & 3).astype(np.uint8), (top >> 7 | (top >> 4 & 1) << 1).astype(np.int8)


def _array(type_: pa.DataType, values: NDArray[np.generic], valid: Bitmap | None) -> pa.Array:
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(values)]
    return pa.Array.from_buffers(type_, len(values), buffers)


def _dictionary(codes: NDArray[np.generic], valid: Bitmap, words: tuple[str, ...] | list[str]) -> pa.Array:
    indices = _array(pa.from_numpy_dtype(codes.dtype), codes, valid)
    return pa.DictionaryArray.from_arrays(indices, pa.array(words))


def _other_packets(batch: RecordBatch) -> pa.Array:
    rows = batch["other_record"]
    if not len(rows):
        return pa.nulls(len(batch), OTHER_PACKETS)
    starts = np.searchsorted(rows, np.arange(len(batch) + 1)).astype(np.int32)
    packets = pa.StructArray.from_arrays(
        [pa.array(batch["other_header"]), pa.array(batch["other_payload"])], names=["header", "payload"]
    )
    return pa.ListArray.from_arrays(pa.array(starts), packets, mask=pa.array(starts[1:] == starts[:-1]))


def record_schema() -> pa.Schema:
    """Names and types of `to_arrow`'s columns."""
    types: dict[str, pa.DataType] = {
        "offset": pa.uint64(),  # of the record in its span of AUX bytes
        "pc": pa.uint64(),
        "el": pa.uint8(),  # null for 3, which SPE never samples: the record is of a model, or damaged
        "security": pa.dictionary(pa.int8(), pa.string()),
        "op_class": pa.dictionary(pa.int8(), pa.string()),
        "op_subclass": pa.dictionary(pa.int16(), pa.string()),
        "op": pa.uint8(),  # payload of the operation packet
        "events": pa.uint64(),  # bit set
        "total_latency": pa.uint16(),  # cycles; the largest value means "or more"
        "issue_latency": pa.uint16(),
        "translation_latency": pa.uint16(),
        "alt_issue_latency": pa.uint16(),
        "va": pa.uint64(),
        "va_tag": pa.uint8(),
        "pa": pa.uint64(),
        "branch_target": pa.uint64(),
        "previous_branch_target": pa.uint64(),
        "context": pa.uint32(),  # CONTEXTIDR_EL2 if the record has it, else EL1's
        "context_el1": pa.uint32(),
        "context_el2": pa.uint32(),
        "data_source": pa.uint16(),  # as the core wrote it
        "timestamp": pa.uint64(),  # ticks of the generic timer
        "other_packets": OTHER_PACKETS,
    }
    return pa.schema(list(types.items()))


def to_arrow(batch: RecordBatch) -> pa.RecordBatch:
    """The records as an Arrow record batch of `record_schema`; it shares the batch's memory."""
    present: NDArray[np.uint32] = batch["present"].view(np.uint32)
    valid = validity_bitmaps(present)
    levels, securities = _levels()
    classes, subclasses, subclass_words = _operation_codes()
    operation = batch["op_class"].astype(np.uint16) << 8 | batch["op"].astype(np.uint16)
    level = levels[batch["pc_top"]]
    level_valid = valid[Kind.PC]
    if (level == _NEVER_SAMPLED).any():
        packed = np.packbits(level != _NEVER_SAMPLED, bitorder="little")
        level_valid = level_valid[: len(packed)] & packed
    context = np.where(batch.has(Kind.CTX2), batch["context_el2"], batch["context_el1"])
    derived: dict[str, Callable[[], pa.Array]] = {
        "offset": lambda: _array(pa.uint64(), batch["offset"], None),
        "el": lambda: _array(pa.uint8(), level, level_valid),
        "security": lambda: _dictionary(securities[batch["pc_top"]], valid[Kind.PC], SECURITY_STATES),
        "op_class": lambda: _dictionary(classes[operation], valid[Kind.OP], OP_CLASSES),
        "op_subclass": lambda: _dictionary(subclasses[operation], valid[Kind.OP], subclass_words),
        "op": lambda: _array(pa.uint8(), batch["op"], valid[Kind.OP]),
        "va_tag": lambda: _array(pa.uint8(), batch["va_top"], valid[Kind.VA]),
        "context": lambda: _array(pa.uint32(), context, valid[Kind.CTX1] | valid[Kind.CTX2]),
        "other_packets": lambda: _other_packets(batch),
    }
    kinds = {
        "pc": Kind.PC,
        "events": Kind.EVENTS,
        "total_latency": Kind.TOT,
        "issue_latency": Kind.ISSUE,
        "translation_latency": Kind.XLAT,
        "alt_issue_latency": Kind.ALT,
        "va": Kind.VA,
        "pa": Kind.PA,
        "branch_target": Kind.TGT,
        "previous_branch_target": Kind.PBT,
        "context_el1": Kind.CTX1,
        "context_el2": Kind.CTX2,
        "data_source": Kind.SOURCE,
        "timestamp": Kind.TS,
    }
    schema = record_schema()
    arrays = [
        derived[field.name]()
        if field.name in derived
        else _array(field.type, batch[field.name], valid[kinds[field.name]])
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
