"""Turns of Topdown's events and of SPE: opened, stopped and told as their timers say, whatever segment it is."""

import select
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from builders.hosts import HOST
from tdprof.capture.manifest import Manifest, Rung, SpeInfo
from tdprof.capture.spool import SpoolWriter
from tdprof.errors import TdprofError
from tdprof.model.duty import SPE, TOPDOWN
from tdprof.model.losses import Losses
from tdprof.recorder import turns as turns_module
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.duty import DutyCycle, DutyTimer
from tdprof.recorder.spe import SpeEvents
from tdprof.recorder.turns import Turns

S = 1_000_000_000


@dataclass
class Events:
    """Of the recording: what was said to them."""

    said: list[str] = field(default_factory=list)

    def switch(self, *, is_on: bool) -> None:
        self.said.append(f"topdown {'on' if is_on else 'off'}")

    def tell_switches(self, *, is_on: bool) -> None:
        self.said.append(f"switches {'on' if is_on else 'off'}")


@dataclass
class Spe:
    """Of one turn, whose files have numbers from one on."""

    number: int
    log: list[str]
    rings: dict[int, Any] = field(default_factory=dict)
    is_looked_at: bool = False

    def start(self) -> None:
        self.log.append(f"spe {self.number} starts")

    def disable(self) -> None:
        self.log.append(f"spe {self.number} stops")

    def look(self) -> None:
        self.is_looked_at = True

    def drain(self, spool: SpoolWriter, *, goes_on: bool) -> None:
        assert self.is_looked_at
        self.log.append(f"spe {self.number} into {spool.name}")  # type: ignore[attr-defined]
        assert not goes_on

    def clock_pair(self) -> tuple[int, int]:
        self.log.append("clock")
        return 10 * len(self.log), 100 * len(self.log)

    def sampling_counts(self) -> dict[str, list[int]]:
        return {"SAMPLE_POP": [5, S, S]}

    def final_notes(self, started_ns: int) -> list[str]:
        return ["SPE stood still"]

    @property
    def next_number(self) -> int:
        return self.number + 2

    def close(self) -> None:
        self.log.append(f"spe {self.number} closed")

    def __enter__(self) -> "Spe":
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


@dataclass
class Spool:
    name: str


@dataclass
class Recording:
    """A recording's clock, events and turns."""

    now_ns: int
    events: Events
    turns: Turns
    refuses: list[TdprofError]

    def look(self, spool: str = "first") -> bool:
        return self.turns.switch_due(cast(SpoolWriter, Spool(spool)), select.poll())


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> Recording:
    """Topdown has a second of each ten from 2 on, SPE two of each twenty from 5 on."""
    events, refuses = Events(), list[TdprofError]()

    def open_spe(number: int) -> SpeEvents:
        if refuses:
            raise refuses.pop()
        return cast(SpeEvents, Spe(number, events.said))

    timers = [DutyTimer(TOPDOWN, DutyCycle(S, 10 * S), 2 * S), DutyTimer(SPE, DutyCycle(2 * S, 20 * S), 5 * S)]
    made = Recording(0, events, Turns(timers, cast(AttachedEvents, events), open_spe), refuses)
    monkeypatch.setattr(turns_module.time, "monotonic_ns", lambda: made.now_ns)
    return made


def manifest() -> Manifest:
    spe = SpeInfo(1024, [])
    return Manifest(HOST, [], [], True, [], Rung.BPF_PMU, "", 0, 0, 0, Losses(), spe=spe)


def at(recording: Recording, second: float, do: Callable[[], object]) -> list[str]:
    """What was said to the events at a time."""
    recording.now_ns = round(second * S)
    before = len(recording.events.said)
    do()
    return recording.events.said[before:]


def test_each_has_its_turn(recording: Recording) -> None:
    look = recording.look
    assert at(recording, 0, look) == []
    assert recording.turns.wait_ns() == 2 * S
    assert at(recording, 2, look) == ["topdown on"]
    assert recording.turns.has_topdown
    assert at(recording, 2.5, look) == []
    assert at(recording, 3.1, look) == ["topdown off"]
    assert at(recording, 5, look) == ["switches on", "clock", "spe 0 starts"]
    assert recording.turns.spe is not None
    assert at(recording, 7, look) == ["spe 0 stops", "switches off", "clock", "spe 0 into first", "spe 0 closed"]
    assert recording.turns.spe is None
    at(recording, 12, look)
    told = recording.turns.told(manifest())
    assert [(each.what, each.windows) for each in told.duty] == [
        (TOPDOWN, [[2 * S, 3_100_000_000]]),
        (SPE, [[5 * S, 7 * S]]),
    ]
    assert told.spe is not None
    assert told.spe.sampling == {"SAMPLE_POP": [5, S, S]}
    assert len(told.spe.clock_pairs) == 2
    assert recording.turns.notes == ["SPE stood still"]
    assert at(recording, 25, look)[:3] == ["topdown off", "switches on", "clock"]
    assert at(recording, 26, lambda: recording.turns.stop(cast(SpoolWriter, Spool("first"))))[0] == "spe 2 stops"


def test_a_turn_of_spe_that_a_segment_ends_in_has_files_of_its_own_in_the_next(recording: Recording) -> None:
    at(recording, 5, recording.look)
    recording.now_ns = 6 * S
    recording.events.said.clear()
    with recording.turns.between_captures(cast(SpoolWriter, Spool("first")), select.poll()):
        first = recording.turns.told(manifest())
        recording.turns.begin_capture(6 * S)
        recording.events.said.append("next segment")
    assert recording.events.said == [
        *("spe 0 stops", "switches off", "clock", "spe 0 into first", "spe 0 closed"),
        *("next segment", "switches on", "clock", "spe 2 starts"),
    ]
    assert first.duty[1].windows == [[5 * S, 6 * S]]
    assert at(recording, 7, lambda: recording.look("second"))[3] == "spe 2 into second"
    second = recording.turns.told(manifest())
    assert second.duty[1].windows == [[6 * S, 7 * S]]
    assert second.spe is not None
    assert second.spe.sampling == {"SAMPLE_POP": [5, S, S]}


def test_a_turn_that_is_refused_is_noted_once_and_the_next_one_tried(recording: Recording) -> None:
    recording.refuses.append(TdprofError("another profiler has SPE on CPU 0"))
    assert at(recording, 5, recording.look) == []
    assert at(recording, 6, recording.look) == []
    at(recording, 7, recording.look)
    assert recording.turns.notes == ["a turn of SPE came to nothing: another profiler has SPE on CPU 0"]
    assert recording.turns.told(manifest()).duty[1].windows == []
    assert at(recording, 25, recording.look)[-1] == "spe 0 starts"
