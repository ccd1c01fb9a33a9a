"""Event names to perf attributes, against a made-up sysfs."""

from pathlib import Path

import pytest

from tdprof.errors import TdprofError
from tdprof.model.events import Unit
from tdprof.recorder.events import core_pmus, parse_event, parse_events, split_events


@pytest.fixture
def pmus(tmp_path: Path) -> Path:
    pmu = tmp_path / "armv8_pmuv3_0"
    (pmu / "events").mkdir(parents=True)
    (pmu / "format").mkdir()
    (pmu / "type").write_text("8\n")
    (pmu / "events" / "l1d_cache_refill").write_text("event=0x0003\n")
    (pmu / "format" / "event").write_text("config:0-15\n")
    (pmu / "format" / "long").write_text("config1:0\n")
    (pmu / "format" / "split").write_text("config2:0-3,8-11\n")
    (tmp_path / "software").mkdir()
    return tmp_path


def test_software_and_hardware_names() -> None:
    assert parse_event("cpu-clock:") == parse_event("cpu-clock")
    clock = parse_event("cpu-clock")
    assert (clock.type, clock.config, clock.unit) == (1, 0, Unit.NANOSECONDS)
    assert (parse_event("faults").type, parse_event("faults").config) == (1, 2)
    assert (parse_event("instructions").type, parse_event("instructions").config) == (0, 1)
    assert (parse_event("r1B").type, parse_event("r1B").config) == (4, 0x1B)


@pytest.mark.parametrize(
    ("text", "exclude_user", "exclude_kernel", "precise"),
    [
        ("cycles", 0, 0, 0),
        ("cycles:u", 0, 1, 0),
        ("cycles:k", 1, 0, 0),
        ("cycles:uk", 0, 0, 0),
        ("cycles:upp", 0, 1, 2),
    ],
)
def test_modifiers_select_as_in_perf(text: str, exclude_user: int, exclude_kernel: int, precise: int) -> None:
    attr = parse_event(text).attr()
    assert (attr.exclude_user, attr.exclude_kernel) == (exclude_user, exclude_kernel)
    assert attr.precise_low + 2 * attr.precise_high == precise


def test_sysfs_events(pmus: Path) -> None:
    event = parse_event("armv8_pmuv3_0/l1d_cache_refill/", pmus)
    assert (event.type, event.config) == (8, 3)
    assert parse_event("l1d_cache_refill:u", pmus).exclude_kernel
    event = parse_event("armv8_pmuv3_0/event=0x11,long,split=0xa5/k", pmus)
    assert (event.config, event.config1, event.config2) == (0x11, 1, 0xA05)
    assert event.exclude_user
    assert core_pmus(pmus) == ["armv8_pmuv3_0"]


def test_commas_inside_slashes_do_not_split(pmus: Path) -> None:
    assert split_events("cycles, armv8_pmuv3_0/event=3,long/u,faults") == [
        "cycles",
        "armv8_pmuv3_0/event=3,long/u",
        "faults",
    ]
    assert len(parse_events("cycles,armv8_pmuv3_0/event=3,long/u", pmus)) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cycels", "unknown event 'cycels'"),
        ("", "the event list is empty"),
        ("off-cpu", "'off-cpu' is no event that is counted"),
        ("sched:sched_switch", "names a tracepoint"),
        ("cycles:z", "tracepoint or has an unknown modifier"),
        ("cpu-clock:kk", "the modifier 'k' stands too often in 'cpu-clock:kk'"),
        ("cycles:upppp", "the modifier 'p' stands too often"),
        ("armv8_pmuv3_0/l1d_cache_refill/uu", "the modifier 'u' stands too often"),
        ("nosuch/x/", "no PMU named 'nosuch'"),
        ("armv8_pmuv3_0/l1d_cash/", "has no event or field 'l1d_cash'"),
        ("armv8_pmuv3_0/event=0x12345/", "does not fit"),
        ("armv8_pmuv3_0/event=x/", "not a number"),
        ("armv8_pmuv3_0/event", "cannot read the event"),
        ("{cycles,instructions}", "groups in braces"),
    ],
)
def test_bad_names_are_one_clear_error(text: str, message: str, pmus: Path) -> None:
    with pytest.raises(TdprofError, match=message):
        parse_events(text, pmus)
