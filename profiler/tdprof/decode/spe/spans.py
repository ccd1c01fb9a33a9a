"""Where SPE's bytes are: spans of AUX data that the hardware wrote without a loss in between."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from pathlib import Path
from typing import IO

from tdprof.decode.mapped_files import MappedFiles
from tdprof.decode.spe.clock import Clock
from tdprof.decode.spe.losses import AuxLosses
from tdprof.decode.spe.switches import SwitchesByCpu, no_switches
from tdprof.errors import TdprofError
from tdprof.linux.file_bytes import open_regular
from tdprof.model.spe import ONE_STAGE, Stages
from tdprof.values import dataclass

# PERF_AUX_FLAG_*, include/uapi/linux/perf_event.h
TRUNCATED, PARTIAL, COLLISION = 0x01, 0x04, 0x08
SHORTEST_SPAN_BYTES = 64
"""What a driver hands over at least: the slot of a record that has all packets."""
_MANY_SPANS = 1 << 13  # fewer cost nothing worth mentioning, whatever they hold
MOST_WORKERS = 8
"""Threads that decode spans: they read a gigabyte in a fifth of a second; more would need memory and bring little."""


@dataclass(frozen=True, slots=True)
class AuxSpan:
    """One span.

    Attributes:
        data: its bytes, mapped.
        aux_offset: of the first byte in the stream of its mapping.
        cpu: that wrote it, None if the recording does not tell.
        tid: thread that the mapping belongs to, None for a CPU's.
        midr: MIDR_EL1 of the CPU, None if not known.
    """

    data: memoryview
    aux_offset: int = 0
    cpu: int | None = None
    tid: int | None = None
    midr: int | None = None


@dataclass(frozen=True, slots=True)
class SpeInput:
    """All SPE data of one input.

    Attributes:
        spans: in file order.
        time_conversion: timer ticks to perf's clock; None if the input has none.
        losses: what the kernel said.
        switches: context switches by CPU, in perf's clock; empty if they were not recorded.
        files: where the spans lie; to be checked before what was made of them is shown.
        contexts_name_threads: context packets hold the ids by which the recording knows threads.
        page_bytes: of the recorded machine, None if the input does not tell.
        stages: of the threads, by which records of the same address are told apart; needs ``time_conversion``.
        side_band_lost: records that the kernel had no room for where it tells context switches.
    """

    spans: Sequence[AuxSpan]
    time_conversion: Clock | None = None
    losses: AuxLosses = field(default_factory=AuxLosses)
    switches: SwitchesByCpu = field(default_factory=no_switches)
    files: MappedFiles = field(default_factory=MappedFiles)
    contexts_name_threads: bool = True
    page_bytes: int | None = None
    stages: Stages = ONE_STAGE
    side_band_lost: int = 0

    @property
    def total_bytes(self) -> int:
        """Bytes in all spans."""
        return sum(len(span.data) for span in self.spans)


@contextlib.contextmanager
def open_raw(path: str | Path, *, cpu: int | None = None, midr: int | None = None) -> Iterator[SpeInput]:
    """A file of AUX bytes alone as one span; ``-`` is standard input.

    Raises:
        TdprofError: it cannot be read.
    """
    try:
        if str(path) == "-":
            # Put into a nameless file: it is mapped, and must not fill memory.
            file: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
            shutil.copyfileobj(sys.stdin.buffer, file, 1 << 20)
            file.flush()
        else:
            file = os.fdopen(open_regular(path), "rb")
    except OSError as error:
        raise TdprofError(f"cannot read {path}: {error.strerror}") from error
    with file, open_raw_file(file, str(path), cpu=cpu, midr=midr) as source:
        yield source


@contextlib.contextmanager
def open_raw_file(file: IO[bytes], name: str, *, cpu: int | None = None, midr: int | None = None) -> Iterator[SpeInput]:
    """The same of an open file; ``name`` is for people."""
    files = MappedFiles()
    try:
        data = memoryview(files.add(file, name))
    except OSError as error:
        raise TdprofError(f"cannot read {name}: {error.strerror}") from error
    with files.checked():
        yield SpeInput([AuxSpan(data, cpu=cpu, midr=midr)] if data else [], files=files)


def worth_decoding(spans: Iterable[AuxSpan], losses: AuxLosses) -> list[AuxSpan]:
    """The spans; where there are very many, without those that are shorter than any that is handed over.

    Args:
        spans: of an input; taken one by one, and those that are left out are not kept meanwhile.
        losses: counts those that are left out.
    """
    kept, left_out, are_many = list[AuxSpan](), 0, False
    for span in spans:
        if are_many and len(span.data) < SHORTEST_SPAN_BYTES:
            left_out += 1
            continue
        kept.append(span)
        if not are_many and len(kept) > _MANY_SPANS:
            are_many = True
            long = [span for span in kept if len(span.data) >= SHORTEST_SPAN_BYTES]
            left_out, kept = len(kept) - len(long), long
    losses.too_short += left_out
    return kept
