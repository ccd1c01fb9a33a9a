"""How much SPE may write: periods from rates, and standing still where more comes, in a simulated recording."""

import os
from pathlib import Path

import numpy as np
import pytest

from tdprof.errors import TdprofError
from tdprof.recorder import cgroups, cpu_quota, host
from tdprof.recorder.spe_options import parse_spe_options
from tdprof.recorder.spe_rate import (
    DEFAULT_BYTES_A_SECOND,
    OPERATIONS_A_SECOND,
    RECORD_BYTES,
    Budget,
    busy_cpus,
    choose_period,
    parse_rate,
    period_for,
)
from tdprof.recorder.targets import SamplingTarget

TICK_NS = 100_000_000


@pytest.mark.parametrize(
    ("text", "rate"), [("64M", 64_000_000), ("500k", 500_000), ("200K", 200_000), ("1.5G", 1_500_000_000)]
)
def test_rates_have_units(text: str, rate: int) -> None:
    assert parse_rate(text) == rate
    assert parse_spe_options(f"load,rate={text}").bytes_a_second == rate


@pytest.mark.parametrize("text", ["", "M", "-1", "64MB", "0", "99999", "inf"])
def test_no_rate_is_an_error_that_says_so(text: str) -> None:
    with pytest.raises(TdprofError, match="bytes a second"):
        parse_spe_options(f"rate={text}")


def test_a_period_alone_is_taken_as_it_is() -> None:
    for text, expected in {
        "": (0, DEFAULT_BYTES_A_SECOND),
        "period=2048": (2048, 0),
        "period=2048,rate=1M": (2048, 1_000_000),
        "rate=1M,u": (0, 1_000_000),
    }.items():
        options = parse_spe_options(text)
        assert (options.period, options.bytes_a_second) == expected, text


@pytest.mark.parametrize("busy", [1, 2, 8, 64, 192])
@pytest.mark.parametrize("rate", [10**6, DEFAULT_BYTES_A_SECOND, 10**9])
def test_busy_cpus_keep_the_rate(busy: int, rate: int) -> None:
    period = period_for(rate, busy)
    assert period % 256 == 0
    assert busy * OPERATIONS_A_SECOND / period * RECORD_BYTES <= rate * (1 if period > 4096 else 64)
    assert period == 4096 or busy * OPERATIONS_A_SECOND / (period - 256) * RECORD_BYTES > rate


def test_busy_are_those_that_may_work_on_it() -> None:
    everything, command = SamplingTarget([-1]), SamplingTarget([7], [7], starts_at_exec=True)
    threads = SamplingTarget([*range(3)], [1])
    cpus = range(8)
    assert busy_cpus(everything, cpus, 2.3, cpus) == 3
    assert busy_cpus(everything, cpus, 0.0, cpus) == 1
    assert busy_cpus(everything, cpus, 100.0, cpus) == 8
    assert busy_cpus(command, cpus, 0.0, {2, 3, 9}) == 2
    assert busy_cpus(threads, cpus, 50.0, cpus) == 3


def test_a_container_with_a_limit_is_as_many_busy_cpus_as_that_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else two CPUs' worth of a machine of 192 would be sampled 96 times less than the rate admits."""
    (tmp_path / "cpu.max").write_text("150000 100000\n")
    mountinfo = f"31 23 0:28 / {tmp_path} rw - cgroup2 cgroup rw\n"
    texts = {"/proc/self/mountinfo": mountinfo, "/proc/7/cgroup": "0::/\n"}
    for module in (cgroups, cpu_quota):
        monkeypatch.setattr(module, "read_text", lambda path: texts.get(str(path)) or host.read_text(path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {*range(192)})
    command = SamplingTarget([7], [7], starts_at_exec=True)
    period, note = choose_period(DEFAULT_BYTES_A_SECOND, command, range(192))
    assert period == period_for(DEFAULT_BYTES_A_SECOND, 2)
    assert "2 busy CPUs" in note
    assert choose_period(DEFAULT_BYTES_A_SECOND, SamplingTarget([*range(50)], [7]), range(192))[0] == period
    (tmp_path / "cpu.max").write_text("max 100000\n")
    assert choose_period(DEFAULT_BYTES_A_SECOND, command, range(192))[0] == period_for(DEFAULT_BYTES_A_SECOND, 192)


@pytest.mark.parametrize("times_too_much", [0.1, 0.9, 1.5, 4, 100])
def test_what_is_written_keeps_the_rate_and_the_rest_is_said(times_too_much: float) -> None:
    """SPE that writes at a steady pace while it samples, drained ten times a second for a minute."""
    rate, now, sampling, written, sampled_ns = 10**6, 10**12, True, 0, 0
    budget = Budget(rate, rate / 4, now)
    random = np.random.default_rng(7)
    while now < 10**12 + 60 * 10**9:
        tick = int(TICK_NS * random.uniform(0.5, 1.5))
        came = int(rate * times_too_much * tick / 1e9) if sampling else 0
        now, written, sampled_ns = now + tick, written + came, sampled_ns + (tick if sampling else 0)
        change = budget.spend(came, now)
        sampling = sampling if change is None else change
    total_ns = now - 10**12
    # A burst at the start, and a drain's worth of what came before it was seen.
    slack = rate / 4 + rate * times_too_much * 0.15
    assert written <= rate * total_ns / 1e9 + slack
    assert written >= min(times_too_much, 1) * rate * total_ns / 1e9 * 0.95 - slack
    note = budget.note(total_ns, now)
    if times_too_much < 1:
        assert sampled_ns == total_ns
        assert note == ""
    else:
        assert f"{100 * (1 - sampled_ns / total_ns):.0f} % of the time" in note
