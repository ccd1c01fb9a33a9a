"""What the kernel refuses, and why."""

import errno
import os
import struct

import pytest

from tdprof.recorder.bpf import object_file
from tdprof.recorder.bpf.object_file import BpfObject, Compiler, LoadError, MapSpec, ObjectLoad, load_program

BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_RINGBUF = 2, 27


@pytest.mark.parametrize("kind", [BPF_MAP_TYPE_ARRAY, BPF_MAP_TYPE_RINGBUF])
@pytest.mark.parametrize(
    ("most_entries", "reason"),
    [(8192, "more locked memory than is permitted (ulimit -l unlimited)"), (0, "Operation not permitted")],
)
def test_a_table_that_is_too_large_for_locked_memory_says_so(
    monkeypatch: pytest.MonkeyPatch, kind: int, most_entries: int, reason: str
) -> None:
    def create(_command: int, attribute: bytearray) -> int:
        entries = struct.unpack_from("=7I", attribute)[3]
        if entries > most_entries:
            raise OSError(errno.EPERM, os.strerror(errno.EPERM))
        return os.open(os.devnull, os.O_RDONLY)

    monkeypatch.setattr(object_file, "bpf", create)
    found = BpfObject([MapSpec("rows", kind, 4, 8, 1 << 16, 0)], [], Compiler("bcc", "1", 0, 0))
    with pytest.raises(LoadError) as caught:
        ObjectLoad(found, {})
    assert str(caught.value) == f"map rows: {reason}"


@pytest.mark.parametrize("signals", [1, 4])
def test_a_program_is_loaded_though_signals_come_meanwhile(monkeypatch: pytest.MonkeyPatch, signals: int) -> None:
    left = [errno.EAGAIN] * signals

    def load(_command: int, _attribute: bytearray) -> int:
        if left:
            raise OSError(error := left.pop(), os.strerror(error))
        return 7

    monkeypatch.setattr(object_file, "bpf", load)
    assert load_program("walk", bytes(8)) == 7


def test_who_is_never_left_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def load(_command: int, _attribute: bytearray) -> int:
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    monkeypatch.setattr(object_file, "bpf", load)
    with pytest.raises(LoadError, match=r"^walk: Resource temporarily unavailable$"):
        load_program("walk", bytes(8))
