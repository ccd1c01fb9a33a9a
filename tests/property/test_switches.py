"""Who ran on a CPU, by the kernel's rules of what it tells of the threads whose events it has: never a wrong thread."""

from collections.abc import Sequence

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.switch_records import rows
from tdprof.decode.perf.columns import NOT_RECORDED
from tdprof.decode.perf.layout import MISC_SWITCH_OUT
from tdprof.decode.spe.switches import switches_of
from tdprof.linux.perf_abi import RecordType
from tdprof.model.spe import NO_TID

RECORDED, OTHERS = (11, 12, 13), (0, 91)
OUT, IN = MISC_SWITCH_OUT, 0
Told = tuple[int, RecordType, int, int, int]  # time, type, misc, thread, the other one
Ran = tuple[int, int]  # when and which thread
# Who runs next, whether it ends in that, and the threads whose events are begun meanwhile.
runs = st.lists(
    st.tuples(st.sampled_from(RECORDED + OTHERS), st.booleans(), st.sets(st.sampled_from(RECORDED))), max_size=14
)


def of_tasks(steps: Sequence[tuple[int, bool, set[int]]]) -> tuple[list[Told], list[Ran]]:
    """What is told where events are of tasks, and the operations that SPE records once all events are begun.

    A record comes before a thread's events are taken off the CPU and after they are put on it, also where two threads
    swap theirs; one that ends tells that instead of going, and of one whose events were begun while it ran only how it
    left is told.
    """
    told, ran, begun, ended = list[Told](), list[Ran](), set[int](), set[int]()
    for number, (tid, ends, begins) in enumerate(steps):
        time = 1000 * number
        if tid in ended:
            continue
        if tid in begun:
            told.append((time, RecordType.SWITCH, IN, tid, 0))
        if tid in RECORDED and begun >= {*RECORDED}:
            ran.append((time + 100, tid))
        begun |= begins
        if tid in RECORDED and begun >= {*RECORDED}:
            ran.append((time + 800, tid))
        if ends:
            ended.add(tid)
        if ends and tid in begun:
            told.append((time + 900, RecordType.EXIT, 0, tid, 0))
        elif tid in begun:
            told.append((time + 900, RecordType.SWITCH, OUT, tid, 0))
    return told, ran


def of_cpus(steps: Sequence[tuple[int, bool, set[int]]]) -> tuple[list[Told], list[Ran]]:
    """The same of events of a CPU: both threads are told, without its number who has ended and was waited for."""
    told, ran = list[Told](), list[Ran]()
    last, name = 0, 0
    for number, (tid, ends, _) in enumerate(steps):
        if tid != last:
            told.append((1000 * number, RecordType.SWITCH_CPU_WIDE, OUT, name, tid))
            told.append((1000 * number + 10, RecordType.SWITCH_CPU_WIDE, IN, tid, name))
        ran.append((1000 * number + 500, tid))
        if ends and tid:
            told.append((1000 * number + 600, RecordType.EXIT, 0, tid, 0))
        last, name = tid, NOT_RECORDED if ends and tid else tid
    return told, ran


def with_loss(told: Sequence[Told], first: int, count: int) -> list[Told]:
    """Without some of them; the loss is told just before what comes next, or at the end."""
    rest = told[first + count :]
    time = rest[0][0] if rest else told[-1][0]
    return [*told[:first], (time, RecordType.LOST, 0, 0, 0), *rest]


def found_of(told: Sequence[Told], ran: Sequence[Ran]) -> list[int]:
    """Who ran at each operation, as the records tell."""
    records = rows(*((time, 0, misc, tid, other, kind) for time, kind, misc, tid, other in told))
    switches = switches_of([records]).get(0)  # nobody's where no switch was told
    return (
        switches.thread_at(np.array([time for time, _ in ran], np.uint64)).tolist() if switches else [NO_TID] * len(ran)
    )


@given(runs)
@settings(max_examples=300)
def test_each_operation_is_of_the_thread_that_ran(steps: list[tuple[int, bool, set[int]]]) -> None:
    """But for one whose events were begun while it ran and who is running still."""
    told, ran = of_tasks(steps)
    if any(kind == RecordType.SWITCH for _, kind, *_ in told):
        known = [each for each in ran if each[0] < told[-1][0]]
        assert found_of(told, known) == [tid for _, tid in known]


@given(runs)
def test_of_cpus_each_thread_that_ran_is_known(steps: list[tuple[int, bool, set[int]]]) -> None:
    told, ran = of_cpus(steps)
    if told:
        ran = [each for each in ran if each[0] >= told[0][0]]
        assert found_of(told, ran) == [tid for _, tid in ran]


@given(runs, st.data())
def test_a_loss_makes_nobody_known_and_no_other_thread(
    steps: list[tuple[int, bool, set[int]]], data: st.DataObject
) -> None:
    for told, ran in (of_tasks(steps), of_cpus(steps)):
        if len(told) < 2:
            continue
        first = data.draw(st.integers(1, len(told) - 1))
        count = data.draw(st.integers(1, len(told) - first))
        known = [each for each in ran if told[0][0] <= each[0] < told[-1][0]]
        wrong = [
            (each, tid)
            for each, tid in zip(known, found_of(with_loss(told, first, count), known), strict=True)
            if tid not in (each[1], NO_TID)
        ]
        assert wrong == []
