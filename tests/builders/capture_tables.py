"""Capture tables from short lists of tuples."""

from collections.abc import Sequence

import pyarrow as pa

from tdprof.capture.schema import MAPPINGS, PROCESSES, SAMPLES, STACKS


def table(schema: pa.Schema, rows: Sequence[tuple]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [() for _ in schema]
    plain = [field.type.value_type if pa.types.is_dictionary(field.type) else field.type for field in schema]
    arrays = [pa.array(column, kind) for column, kind in zip(columns, plain, strict=True)]
    return pa.table(arrays, names=schema.names).cast(schema)


def mappings(*rows: tuple) -> pa.Table:
    """(time_ns, pid, address, length, file_offset, path, build_id) each."""
    return table(MAPPINGS, rows)


def processes(*rows: tuple) -> pa.Table:
    """(time_ns, kind, pid, tid, parent_pid, parent_tid, name) each."""
    return table(PROCESSES, rows)


def stacks(*rows: tuple) -> pa.Table:
    """(stack, is_kernel, addresses) each."""
    return table(STACKS, rows)


def samples(*rows: tuple) -> pa.Table:
    """(time_ns, event, pid, tid, thread_name, user_stack, kernel_stack, count, weight) each."""
    return table(SAMPLES, rows)
