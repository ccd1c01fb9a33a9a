"""What is on for a part of the time: as typed, when it is, and what a capture says of it."""

import pytest
from click.testing import CliRunner

from tdprof.cli.main import cli
from tdprof.errors import TdprofError
from tdprof.model.duty import SPE, TOPDOWN, DutyInfo, duty_notes, recorded_ns_of
from tdprof.recorder.duty import Duties, DutyCycle, DutyTimer, machine_phase, parse_duty, start_timers
from tdprof.recorder.events import Event, parse_event
from tdprof.recorder.pmu import Counters, counters_beside

S = 1_000_000_000
AGAIN = ["record", "-a", "--switch-output=5m"]


@pytest.mark.parametrize(
    ("text", "duties"),
    [
        ("topdown=10s/10m,spe=1s/10m", Duties(DutyCycle(10 * S, 600 * S), DutyCycle(S, 600 * S))),
        ("spe=0.5s/30s", Duties(spe=DutyCycle(S // 2, 30 * S))),
        (" topdown=100ms/1s", Duties(topdown=DutyCycle(S // 10, S))),
    ],
)
def test_a_duty_is_so_long_in_so_much_time(text: str, duties: Duties) -> None:
    assert parse_duty(text) == duties


@pytest.mark.parametrize(
    "text",
    [
        *("", "topdown", "topdown=10s", "spe=1s/1s", "spe=2m/1m", "spe=1ms/1s", "cycles=1s/10s", "spe=1s/2d"),
        *("spe=1s/9s,spe=1s/9s", "spe=-1s/10s", "topdown=10s/10m,", "spe=1s/10m/2"),
    ],
)
def test_what_is_none_is_refused_with_one_that_is(text: str) -> None:
    with pytest.raises(TdprofError) as caught:
        parse_duty(text)
    assert caught.value.status == 2
    assert "--duty topdown=10s/10m,spe=1s/10m" in str(caught.value.hint)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["record", "-a", "--duty", "spe=1s/10m"], "--duty is of recordings of the whole system, in segments"),
        (
            ["record", "--switch-output=5m", "--duty", "spe=1s/10m", "--", "true"],
            "--duty is of recordings of the whole",
        ),
        ([*AGAIN, "--duty", "never"], "--duty does not take 'never'"),
        ([*AGAIN, "--duty", "topdown=10s/10m", "--spe"], "SPE cannot be cut into segments"),
        ([*AGAIN, "--duty", "spe=1s/10m", "--topdown"], "counter groups cannot be in segments"),
        ([*AGAIN, "--duty", "topdown=1s/10m", "--topdown", "--passes"], "--passes runs a command again"),
    ],
)
def test_what_a_duty_does_not_go_with_is_said(options: list[str], said: str) -> None:
    result = CliRunner().invoke(cli, options)
    assert isinstance(result.exception, TdprofError)
    assert result.exception.status == 2
    assert said in result.exception.message


def test_it_is_on_for_its_share_whenever_it_is_looked_at() -> None:
    timer = DutyTimer(TOPDOWN, DutyCycle(10 * S, 60 * S), 5 * S)
    now, on = 0, 0
    while now < 600 * S:
        if timer.is_due(now):
            (timer.switch_off if timer.is_on else timer.switch_on)(now)
        wait = min(timer.wait_ns(now), 7 * S)  # other things wake the loop, too
        assert wait > 0
        on += wait * timer.is_on
        now += wait
    assert on == 10 * 10 * S
    told = timer.info(now)
    assert told.recorded_ns == on
    assert told.windows[0] == [5 * S, 15 * S]
    assert (told.on_ns, told.every_ns) == (10 * S, 60 * S)


def test_a_window_that_a_capture_ends_in_goes_on_in_the_next() -> None:
    timer = DutyTimer(SPE, DutyCycle(10 * S, 60 * S), 0)
    timer.switch_on(2 * S)
    assert timer.info(5 * S).windows == [[2 * S, 5 * S]]
    timer.begin_capture(5 * S)
    timer.switch_off(10 * S)
    assert timer.info(30 * S).windows == [[5 * S, 10 * S]]
    timer.begin_capture(40 * S)
    assert timer.info(50 * S).windows == []


def test_a_turn_that_was_refused_counts_for_nothing() -> None:
    timer = DutyTimer(SPE, DutyCycle(10 * S, 60 * S), 0)
    timer.switch_on(0, is_recording=False)
    timer.begin_capture(5 * S)
    timer.switch_off(10 * S)
    assert timer.info(20 * S).recorded_ns == 0


def test_a_machine_has_the_same_phase_each_time() -> None:
    every_ns = 600 * S
    assert machine_phase(SPE, every_ns) == machine_phase(SPE, every_ns) < every_ns
    duties = parse_duty("topdown=10s/10m,spe=1s/10m")
    [early, spe] = start_timers(duties, 1000 * S, 50 * S)
    [late, _] = start_timers(duties, 7000 * S, 50 * S + 7 * every_ns + 3 * S)
    assert (early.what, spe.what) == (TOPDOWN, SPE)
    # By the wall clock a turn begins at the same moment of each ten minutes, whenever recording began.
    assert (early.wait_ns(1000 * S) - late.wait_ns(7000 * S)) % every_ns == 3 * S


def test_a_capture_says_how_long_each_was_on() -> None:
    duty = [DutyInfo(TOPDOWN, 10 * S, 600 * S, [[0, 10 * S]]), DutyInfo(SPE, S, 600 * S)]
    notes = duty_notes(duty, 300 * S)
    assert notes[0].startswith("Topdown was on for 10.0 s of 300.0 s (3.33 %)".replace(" %", "%"))
    assert "counts are not scaled up" in notes[0]
    assert notes[1].startswith("SPE was on for 0.0 s of 300.0 s (0.00%)")
    assert recorded_ns_of(SPE, duty, 300 * S) == 0
    assert recorded_ns_of(SPE, duty[:1], 300 * S) == 300 * S


def test_events_that_are_always_on_take_counters_from_the_groups() -> None:
    cycles, other, clock = parse_event("cycles"), Event("inst", 8, 0x1B), parse_event("cpu-clock")
    assert counters_beside(Counters(6, True), [cycles]) == Counters(6, False)
    assert counters_beside(Counters(6, False), [cycles]) == Counters(5, False)
    assert counters_beside(Counters(6, True), [cycles, other, clock]) == Counters(5, False)
    assert counters_beside(Counters(6, True), [clock]) == Counters(6, True)
    assert counters_beside(Counters(6, True), [Event("CPU_CYCLES", 8, 0x11)]) == Counters(6, False)
