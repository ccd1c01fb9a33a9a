"""Ring buffers that fit what the kernel lets a user lock."""

import mmap
import resource

import pytest

from tdprof.recorder import locked_memory
from tdprof.recorder.locked_memory import RingSizes, budget_bytes, fit, shrunk_note

PAGE_KB = mmap.PAGESIZE >> 10
SMALLEST_BYTES = 6 * mmap.PAGESIZE  # two of AUX, one and a header of each ring


@pytest.mark.parametrize("has_spe", [False, True])
@pytest.mark.parametrize("cpus", [1, 2, 12, 13, 64, 192])
@pytest.mark.parametrize("memlock_bytes", [0, 64 << 10, 8 << 20])
def test_all_buffers_of_all_cpus_fit_one_budget(cpus: int, memlock_bytes: int, has_spe: bool) -> None:
    """By the kernel's arithmetic: each CPU's share first, and what is beyond all of them against ulimit -l."""
    budget = budget_bytes(cpus, 512 + PAGE_KB, memlock_bytes, is_free=False)
    sizes = fit(RingSizes.wanted(has_spe=has_spe), cpus, budget)
    beyond = cpus * sizes.locked_bytes - cpus * ((512 + PAGE_KB) << 10)
    assert beyond <= memlock_bytes
    assert sizes.side_band >= 64 << 10
    assert bool(sizes.aux) == bool(sizes.spe) == has_spe
    assert all(size & (size - 1) == 0 for size in (sizes.aux, sizes.side_band, sizes.spe))
    if has_spe:  # no more is taken away than must be
        assert sizes.aux >= 64 << 10


@pytest.mark.parametrize(("memlock_bytes", "spe"), [(None, 512 << 10), (16 << 20, 512 << 10), (0, 128 << 10)])
def test_spes_rings_have_room_for_switches_where_that_may_be_locked(memlock_bytes: int | None, spe: int) -> None:
    wanted = RingSizes.wanted(has_spe=True)
    budget = None if memlock_bytes is None else budget_bytes(2, 516, memlock_bytes, is_free=False)
    assert wanted.with_room_for_switches(2, budget).spe == spe


def test_who_is_free_gets_all() -> None:
    wanted = RingSizes.wanted(has_spe=True)
    assert budget_bytes(64, 516, resource.RLIM_INFINITY, is_free=False) is None
    assert fit(wanted, 64, budget_bytes(64, 0, 0, is_free=True)) == wanted
    assert shrunk_note(wanted, wanted, 64) == ""


def test_nothing_gets_smaller_than_a_page_and_is_said() -> None:
    wanted = RingSizes.wanted(has_spe=True)
    sizes = fit(wanted, 8, 0)
    assert sizes.locked_bytes == SMALLEST_BYTES
    assert sizes.smaller() is None
    assert f"{SMALLEST_BYTES >> 10} kB of ring buffers on each of 8 CPUs" in shrunk_note(wanted, sizes, 8)


@pytest.mark.parametrize(
    ("cpus", "memlock_bytes", "side_band"),
    [
        (2, None, 16 << 20),
        (4, None, 16 << 20),
        (8, None, 8 << 20),
        (64, None, 1 << 20),
        (192, None, 512 << 10),
        (2, 8 << 20, 4 << 20),
        (4, 8 << 20, 2 << 20),
        (4, 0, 512 << 10),
        (64, 8 << 20, 512 << 10),
    ],
)
def test_room_for_samples_is_what_is_left(cpus: int, memlock_bytes: int | None, side_band: int) -> None:
    budget = None if memlock_bytes is None else budget_bytes(cpus, 512 + PAGE_KB, memlock_bytes, is_free=False)
    wanted = RingSizes.wanted(has_spe=False)
    assert fit(wanted, cpus, budget) == wanted
    sizes = wanted.with_room_for_samples(cpus, budget, has_copies=True)
    assert sizes.side_band == side_band
    assert wanted.with_room_for_samples(cpus, budget, has_copies=False).side_band == min(side_band, 8 << 20)
    assert shrunk_note(wanted, sizes, cpus) == ""


@pytest.mark.parametrize(("allowed_kb", "told_kb"), [(None, 516), (100, 516), (516, 1032)])
def test_more_is_asked_for_than_is_allowed_already(
    monkeypatch: pytest.MonkeyPatch, allowed_kb: int | None, told_kb: int
) -> None:
    """The user's other programs may have locked it."""
    monkeypatch.setattr(locked_memory, "read_setting", lambda _: allowed_kb)
    wanted = RingSizes(aux=0, side_band=(516 << 10) - mmap.PAGESIZE, spe=0)
    assert locked_memory.more_memory(wanted).startswith(f"sudo sysctl kernel.perf_event_mlock_kb={told_kb},")
