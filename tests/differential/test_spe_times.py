"""Whose record it is where times tell, in compiled code: against the same column by column in Python."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arm_spe import RecordDecoder, times
from arm_spe.native import load_native
from arm_spe.tally import Key
from builders import spe
from tdprof.decode.perf.auxtrace import TimeConversion
from tdprof.decode.spe.clock import Clock, clock_of, time_ns
from tdprof.decode.spe.row_sums import Counted, GroupBy, count_records
from tdprof.decode.spe.spans import AuxSpan, SpeInput
from tdprof.decode.spe.switches import SwitchesByCpu
from tdprof.model import spe as model
from tdprof.model.spe import NO_TID, Stages

pytestmark = pytest.mark.skipif(load_native() is None, reason="the compiled decoder is not built")
TIDS = (5, 6, 7, 2**32 - 1, NO_TID)
CLOCKS: tuple[Clock | None, ...] = (
    None,
    TimeConversion(0, 1, 0),
    TimeConversion(20, 0x123456, 2**64 - 12345),
    TimeConversion(10, 1 << 10, 77, time_cycles=1 << 41, time_mask=(1 << 16) - 1, is_short=True),
    TimeConversion(64, 3, 99),
    # What no timer does: a file may say anything.
    TimeConversion(8, 1 << 40, 5),
    TimeConversion(10, 1 << 10, 77, time_cycles=1 << 41, time_mask=0xFFF0FF, is_short=True),
    TimeConversion(32, (1 << 32) - 1, 2**64 - 1000),
    clock_of([(2**39, 10**12), (2**39 + 2**38, 10**12 + 10**11), (2**40, 2 * 10**12)]),
)


def numbers(counted: Counted, placed: dict[tuple[int, int], int]) -> dict[tuple[int, int], int]:
    """Records by group."""
    operations = counted.operations.tolist()
    return {group: operations[row] for group, row in placed.items()}


def counted_by_group(source: SpeInput, key: Key, *, in_python: bool) -> tuple[dict[tuple[int, int], int], Counted]:
    placed: dict[tuple[int, int], int] = {}

    def place(first: np.ndarray, second: np.ndarray) -> np.ndarray:
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        return np.array([placed.setdefault(pair, len(placed)) for pair in pairs], np.int32)

    also = (lambda *_: None) if in_python else None
    counted = count_records(source, GroupBy(key), place, workers=1, also=also)
    return numbers(counted, placed), counted


def switches(rng: np.random.Generator, seen: np.ndarray) -> SwitchesByCpu:
    """Of CPU 0 at some of the records' times, and in between; of CPU 1 none."""
    time_ns = np.sort(rng.choice(seen, min(len(seen), 9)) + rng.integers(0, 3, min(len(seen), 9)).astype(np.uint64))
    is_before = np.zeros(len(time_ns), bool)
    is_before[0] = rng.random() < 0.5
    return SwitchesByCpu.of_rows(
        np.zeros(len(time_ns), np.uint32), time_ns, rng.choice(TIDS, len(time_ns)).astype(np.uint64), is_before
    )


@given(
    seed=st.integers(0, 2**32),
    count=st.integers(1, 800),
    layout=st.sampled_from(["slots", "wide_slots", "packed"]),
    clock=st.sampled_from(CLOCKS),
    key=st.sampled_from([Key.CODE, Key.ADDRESS]),
    contexts=st.sampled_from([(4242,), (None,), (None, 5, 6)]),
    stamps=st.sampled_from([(True,), (False,), (True, True, False)]),
    owners=st.lists(st.sampled_from([(0, None), (1, None), (None, 6), (0, 7)]), min_size=1, max_size=3),
    turns=st.sets(st.tuples(st.sampled_from(TIDS), st.integers(0, 8)), max_size=6),
    has_switches=st.booleans(),
    names_threads=st.booleans(),
)
@settings(max_examples=40, deadline=None)
def test_threads_and_stages_are_those_of_a_column_at_a_time(
    seed: int,
    count: int,
    layout: str,
    clock: Clock | None,
    key: Key,
    contexts: Sequence[int | None],
    stamps: Sequence[bool],
    owners: Sequence[tuple[int | None, int | None]],
    turns: set[tuple[int, int]],
    has_switches: bool,
    names_threads: bool,
) -> None:
    rng = np.random.default_rng(seed)
    truths = [
        replace(
            truth,
            pc=0x80 << 56 | int(rng.integers(0, 6)) * 4,
            context_el2=contexts[int(rng.integers(len(contexts)))],
            timestamp=truth.timestamp if stamps[int(rng.integers(len(stamps)))] else None,
        )
        for truth in spe.program(count, seed)
    ]
    data, _ = spe.write_stream(truths, spe.LAYOUTS[layout])
    ticks = np.concatenate([batch["timestamp"].copy() for batch in RecordDecoder(data)])
    seen = np.sort(ticks if clock is None else time_ns(ticks, clock))
    at = [(tid, int(seen[len(seen) * place // 9])) for tid, place in sorted(turns)]
    stages = Stages(*(np.array(column, np.uint64) for column in zip(*sorted(set(at)), strict=True))) if at else None
    source = SpeInput(
        [AuxSpan(memoryview(data), cpu=cpu, tid=tid) for cpu, tid in owners],
        clock,
        contexts_name_threads=names_threads,
    )
    source = replace(source, switches=switches(rng, seen) if has_switches else source.switches)
    source = replace(source, stages=stages or source.stages)
    found, counted = counted_by_group(source, key, in_python=False)
    wanted, sums = counted_by_group(source, key, in_python=True)
    assert found == wanted
    assert counted.threads_from == sums.threads_from
    assert counted.counts == sums.counts


def test_both_packages_mean_the_same_numbers() -> None:
    assert times.NO_THREAD == NO_TID
    assert int(model._STAGE) == times.STAGE_BITS
