"""Of SPE records of whole CPUs those of some threads are kept, whoever starts them, and nothing of the others."""

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pytest

from arm_spe import RecordDecoder
from arm_spe.native import load_native as load_decoder
from builders import spe
from tdprof.errors import TdprofError
from tdprof.linux.perf_abi import RecordType
from tdprof.native.library import load_native
from tdprof.recorder import spe_threads
from tdprof.recorder.spe_threads import KeptThreads, choose_threads
from tdprof.recorder.targets import SamplingTarget

pytestmark = pytest.mark.skipif(load_native() is None or load_decoder() is None, reason="C parts are not built")
MINE, OTHERS = (11, 12), (98, 99)


def fork(tid: int, starter: int, time_ns: int) -> bytes:
    return struct.pack("<IHHIIIIQQ", RecordType.FORK, 0, 40, tid, starter, tid, starter, time_ns, 0)


def record(tid: int | None, level: int = 2, *, slot: bool = True) -> bytes:
    """A record of a thread, in a slot of 64 bytes as Neoverse cores write it, or as short as it can be."""
    named = b"" if tid is None else spe.context(level, tid)
    packets = [spe.address(spe.PC, 0x4000), named, spe.operation(1, 0), spe.events(2, 2), spe.counter(spe.TOTAL, 9)]
    data = b"".join(packets)
    closing = spe.timestamp(len(data))
    return data + bytes(64 - len(data) - len(closing) if slot else 0) + closing


def threads_in(data: bytes) -> list[int]:
    return [
        int(first or second)
        for batch in RecordDecoder(data)
        for first, second in zip(batch["context_el2"], batch["context_el1"], strict=True)
    ]


@pytest.mark.parametrize("slot", [True, False])
@pytest.mark.parametrize("level", [1, 2])
def test_records_of_others_become_padding(level: int, *, slot: bool) -> None:
    rng = random.Random(level)
    tids = [rng.choice([*MINE, *OTHERS, None]) for _ in range(500)]
    data = bytearray(bytes(64) + b"".join(record(tid, level, slot=slot) for tid in tids))
    size, threads = len(data), KeptThreads([], MINE)
    threads.keep(data)
    assert len(data) == size
    mine = [tid for tid in tids if tid in MINE]
    assert threads_in(bytes(data)) == mine
    assert (threads.kept, threads.others) == (len(mine), len(tids) - len(mine))
    assert all(record(tid, level, slot=slot) not in data for tid in (*OTHERS, None))


def test_what_cannot_be_read_is_not_kept() -> None:
    data = bytearray(b"\x02\x03" + bytes(62) + 8 * record(MINE[0]) + record(OTHERS[0])[:30])
    readable = threads_in(bytes(data))
    KeptThreads([], MINE).keep(data)
    assert threads_in(bytes(data)) == readable == [MINE[0]] * len(readable)
    assert not any(data[:64])
    assert spe.context(2, OTHERS[0]) not in data


@pytest.mark.parametrize("start", [0, 5 * 4096 + 64])
def test_a_file_has_holes_where_others_ran(tmp_path: Path, start: int) -> None:
    part = 200 * record(OTHERS[0]) + 70 * record(MINE[0]) + 300 * record(OTHERS[1]) + 3 * record(MINE[1])
    ring = bytearray(1 << 16)
    for at, octet in enumerate(part, start):
        ring[at % len(ring)] = octet
    expected = bytearray(part)
    KeptThreads([], MINE).keep(expected)
    fd = os.open(tmp_path / "aux", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    threads = KeptThreads([], MINE)
    for _ in range(2):
        threads.write(fd, memoryview(ring), start, len(part))
        threads.write(fd, memoryview(ring), start, 64)
    os.close(fd)
    assert (tmp_path / "aux").read_bytes() == 2 * bytes(expected + bytes(64))
    assert threads.kept == 2 * 73


def kept_by(threads: KeptThreads, tids: tuple[int, ...]) -> list[int]:
    data = bytearray(b"".join(record(tid) for tid in tids))
    threads.keep(data)
    return threads_in(bytes(data))


def test_threads_are_followed_in_whatever_ring_they_are_told() -> None:
    threads = KeptThreads([], [1])
    other = struct.pack("<IHH8x", RecordType.SWITCH, 0, 16)
    # 1 starts 2, 2 starts 3, 3 starts 4, and a stranger starts 9, which starts 8.
    threads.hear([other + fork(3, 2, 20), fork(9, 7, 5) + fork(2, 1, 10) + other, fork(8, 9, 30) + fork(4, 3, 30)])
    assert kept_by(threads, (1, 2, 3, 4, 7, 8, 9)) == [1, 2, 3, 4]
    # Who started it is told by a ring that was looked at before.
    threads.hear([fork(6, 5, 50)])
    threads.hear([fork(5, 4, 40)])
    assert kept_by(threads, (5, 6, 9)) == [5, 6]
    # A number that another's thread has now.
    threads.hear([fork(2, 7, 60)])
    assert kept_by(threads, (1, 2, 3)) == [1, 3]
    # And one that was another's and is ours before the next look.
    threads.hear([fork(10, 7, 70) + fork(10, 1, 80)])
    threads.hear([])
    assert kept_by(threads, (1, 10)) == [1, 10]


def test_where_records_were_lost_it_is_looked_for_what_was_started(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(spe_threads, "tasks_of", lambda pids: (asked.append(pids), (pids, [1, 20, 21]))[1])
    threads = KeptThreads([1], [1])
    threads.hear([fork(19, 7, 5)])
    assert (asked, kept_by(threads, (1, 20))) == ([], [1])
    threads.hear([struct.pack("<IHH16x", RecordType.LOST, 0, 24)])
    assert (asked, kept_by(threads, (1, 20, 21, 22))) == ([[1]], [1, 20, 21])


def test_of_many_threads_those_that_have_ended_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spe_threads, "_FEW_THREADS", 10)
    ended = [2**31 - number for number in range(1, 40)]
    threads = KeptThreads([], [os.getpid(), *ended])
    threads.drained()
    # What it did until it ended may be in what is drained next.
    assert len(kept_by(threads, tuple(ended))) == len(ended)
    threads.hear([fork(2**31 - 100 - number, os.getpid(), number) for number in range(40)])
    threads.drained()
    assert kept_by(threads, (os.getpid(), *ended)) == [os.getpid()]


TARGET = SamplingTarget(range(100, 600), [100])


@pytest.fixture
def able(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, bool], None]:
    """A machine where whole CPUs can be sampled; what of that is taken away again."""
    answers = {"is_in_initial_pid_namespace": True, "_do_records_name_threads": True}

    def say(name: str, answer: bool) -> None:
        monkeypatch.setattr(spe_threads, name, lambda: answer)

    for name, answer in answers.items():
        say(name, answer)
    monkeypatch.setattr(spe_threads, "_available_bytes", lambda: 8 << 30)
    return say


def chosen(**changes: bool) -> tuple[KeptThreads | None, list[str]]:
    conditions = {"is_told_per_cpu": True, "takes_turns": False} | changes
    return choose_threads(TARGET, range(192), [100], **conditions)


def test_many_threads_share_the_events_of_cpus(able: Callable[[str, bool], None]) -> None:
    threads, [note] = chosen()
    assert threads is not None
    assert kept_by(threads, (99, 100, 599, 600)) == [100, 599]
    assert "instead of 96,000 SPE events (500 threads on 192 CPUs)" in note


@pytest.mark.parametrize(
    ("change", "reason", "megabytes"),
    [
        ({"is_told_per_cpu": False}, "without BPF", 252),  # each with one that tells switches
        ({"takes_turns": True}, "by turns", 126),
        ({"is_in_initial_pid_namespace": False}, "PID namespace", 126),
        ({"_do_records_name_threads": False}, "CONFIG_PID_IN_CONTEXTIDR", 126),
    ],
)
def test_where_they_cannot_it_is_said_why_and_what_it_takes(
    able: Callable[[str, bool], None],
    monkeypatch: pytest.MonkeyPatch,
    change: dict[str, bool],
    reason: str,
    megabytes: int,
) -> None:
    [(name, answer)] = change.items()
    is_argument = not hasattr(spe_threads, name)
    if not is_argument:
        able(name, answer)
    threads, [note] = chosen(**change if is_argument else {})
    assert threads is None
    assert f"{megabytes} MB of the kernel's memory" in note
    assert reason in note
    monkeypatch.setattr(spe_threads, "_available_bytes", lambda: 400 << 20)
    with pytest.raises(TdprofError, match=rf"96,000 SPE events .* would take {megabytes} MB") as refused:
        chosen(**change if is_argument else {})
    assert reason in refused.value.message
