"""Each export format on a small profile that has everything, against its golden text."""

import gzip
import io
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any, BinaryIO

import pytest
from google.protobuf import text_format

from builders.profiles import Call, Frame, ProfileBuilder, example
from builders.topdown_example import topdown_example
from tdprof import __version__
from tdprof.export import pprof_pb2, speedscope
from tdprof.export.folded import write_folded
from tdprof.export.pprof import build_pprof, write_pprof
from tdprof.export.speedscope import write_speedscope
from tdprof.model.addresses import FileKind, MappedFile
from tdprof.model.events import EventInfo, Unit
from tdprof.model.profile import Profile, TimeWindow
from tdprof.profile.frames import NO_STACK


def written(write: Callable[[Profile, BinaryIO], None], profile: Profile) -> bytes:
    out = io.BytesIO()
    write(profile, out)
    return out.getvalue()


def test_speedscope(check_golden: Callable[[str, str], None]) -> None:
    text = written(write_speedscope, example()).decode()
    check_golden("export/example.speedscope.json", text.replace(f"tdprof@{__version__}", "tdprof@VERSION"))


def test_folded(check_golden: Callable[[str, str], None]) -> None:
    check_golden("export/example.folded", written(write_folded, example()).decode())


def test_pprof(check_golden: Callable[[str, str], None]) -> None:
    message = pprof_pb2.Profile.FromString(gzip.decompress(written(write_pprof, example())))
    text = text_format.MessageToString(message)
    check_golden("export/example.pprof.txt", text.replace(f"tdprof {__version__}", "tdprof VERSION"))


def test_speedscope_of_a_topdown_capture(check_golden: Callable[[str, str], None]) -> None:
    profile, findings = topdown_example()
    text = written(lambda profile, out: write_speedscope(profile, out, findings), profile).decode()
    check_golden("export/topdown.speedscope.json", text.replace(f"tdprof@{__version__}", "tdprof@VERSION"))


def test_folded_shows_one_category_of_a_topdown_capture() -> None:
    profile, _ = topdown_example()
    category = [event.name for event in profile.events].index("backend_bound_slots")
    assert written(write_folded, profile.only_event(category)) == b"app;main;work 9984000\n"


def test_the_same_profile_gives_the_same_bytes() -> None:
    assert written(write_pprof, example()) == written(write_pprof, example())


def test_folded_keeps_one_line_and_one_separator_for_odd_names() -> None:
    profile = ProfileBuilder().add(Frame("a;b\nc"), weight=3, thread="t;1\udc80").add("x", weight=1, thread="").build()
    assert written(write_folded, profile).decode().splitlines() == [
        "[unnamed thread];x 1",
        "t:1?;a:b\N{REPLACEMENT CHARACTER}c 3",
    ]


def rows_of(document: dict[str, Any], number: int = 0) -> list[tuple[str, int]]:
    names, profile = [frame["name"] for frame in document["shared"]["frames"]], document["profiles"][number]
    stacks = (";".join(names[i] for i in stack) for stack in profile["samples"])
    return list(zip(stacks, profile["weights"], strict=True))


def phases() -> ProfileBuilder:
    builder = ProfileBuilder()
    builder.add("main", "f", "h", weight=2, time_ns=5)
    builder.add("main", "g", weight=3, time_ns=1)
    builder.add("main", "f", weight=1, time_ns=2)
    builder.add("main", "g", weight=4, time_ns=3)
    return builder.add("main", weight=12, time_ns=4, thread="worker")


def test_speedscope_has_each_sample_in_order_where_that_is_known() -> None:
    """The order of the times, though threads take turns and rows of the table stand otherwise."""
    document = json.loads(written(write_speedscope, phases().build(has_sample_times=True)))
    assert rows_of(document) == [
        ("app;main;g", 3),
        ("app;main;f", 1),
        ("app;main;g", 4),
        ("worker;main", 12),
        ("app;main;f;h", 2),
    ]
    assert document["profiles"][0]["name"] == "cpu-clock"


def test_speedscope_shows_no_phases_where_the_order_is_not_known() -> None:
    """Each stack once, whichever seconds it was seen in; the widest thread, then the widest callee, first."""
    document = json.loads(written(write_speedscope, phases().build()))
    assert rows_of(document) == [("worker;main", 12), ("app;main;g", 7), ("app;main;f;h", 2), ("app;main;f", 1)]
    assert document["profiles"][0]["name"] == "cpu-clock" + speedscope.NOT_IN_ORDER
    assert document["profiles"][0]["endValue"] == 22


def test_speedscope_adds_up_what_is_too_much_for_a_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedscope, "MOST_ROWS_IN_ALL", 8)
    builder = ProfileBuilder([EventInfo(name, Unit.COUNT) for name in ("many", "few")])
    for event, samples in enumerate((5, 4)):
        for time in range(samples):
            builder.add("main", event=event, time_ns=time, weight=1)
    document = json.loads(written(write_speedscope, builder.build(has_sample_times=True)))
    assert rows_of(document, 0) == [("app;main", 5)]
    assert rows_of(document, 1) == [("app;main", 1)] * 4
    assert [each["name"] for each in document["profiles"]] == ["many" + speedscope.NOT_IN_ORDER, "few"]


def test_pprof_mapping_covers_addresses_outside_the_recorded_range() -> None:
    builder = ProfileBuilder(files=[MappedFile("/lib/x.so", "ab12")])
    for offset in (0x100, 0x2500, 0x9000):
        builder.add(Call((Frame(f"f{offset}", module="/lib/x.so"),), offset))
    # The recorded piece: file offset 0x2000 for 0x1000 bytes at 0x7f0000002000.
    message = build_pprof(builder.build(mapped_file_ranges=[(0x7F0000002000, 0x1000, 0x2000)]))
    (mapping,) = message.mapping
    assert (mapping.memory_start, mapping.memory_limit, mapping.file_offset) == (0x7F0000000100, 0x7F0000009001, 0x100)
    assert [location.address for location in message.location] == [0x7F0000000100, 0x7F0000002500, 0x7F0000009000]
    assert message.string_table[mapping.build_id] == "ab12"


def test_pprof_keeps_runtime_addresses_where_there_is_no_file() -> None:
    builder = ProfileBuilder(files=[MappedFile("[anon]", kind=FileKind.ANONYMOUS)])
    builder.add(Call((Frame("jit", module="[anon]"),), 0x7FFF00001234), Call((Frame("?", module=""),), 0x55))
    message = build_pprof(builder.build(mapped_file_ranges=[(0x7FFF00001000, 0x1000, 0)]))
    assert sorted((location.address, location.mapping_id) for location in message.location) == [
        (0x55, 0),
        (0x7FFF00001234, 1),
    ]
    (mapping,) = message.mapping
    assert (mapping.memory_start, mapping.memory_limit) == (0x7FFF00001000, 0x7FFF00002000)


def test_pprof_puts_the_program_first() -> None:
    builder = ProfileBuilder(files=[MappedFile("/lib/libc.so"), MappedFile("/opt/bin/app")])
    message = build_pprof(builder.add(Frame("f", module="/lib/libc.so")).build())
    assert [message.string_table[mapping.filename] for mapping in message.mapping] == ["/opt/bin/app", "/lib/libc.so"]
    assert message.location[0].mapping_id == 2


def test_pprof_begins_with_what_ran_most_where_a_shell_started_it() -> None:
    builder = ProfileBuilder()
    builder.add(Frame("main", module="/bin/dash"), Frame("read", module="/lib/libc.so"), pid=1)
    builder.add(Frame("main", module="/opt/a_name_beyond_15_bytes"), pid=2, count=5)
    profile = replace(builder.build(command=["sh", "-c", "x"]), process_names={1: "sh", 2: "a_name_beyond_1"})
    message = build_pprof(profile)
    assert message.string_table[message.mapping[0].filename] == "/opt/a_name_beyond_15_bytes"


def test_pprof_period_is_that_of_a_single_event() -> None:
    clock = EventInfo("cpu-clock", Unit.NANOSECONDS, frequency_hz=1000)
    faults = EventInfo("page-faults", Unit.COUNT, period=7)
    assert build_pprof(ProfileBuilder((clock,)).build()).period == 1_000_000
    assert build_pprof(ProfileBuilder((faults,)).build()).period == 7
    assert build_pprof(ProfileBuilder((clock, faults)).build()).period == 0


def test_pprof_of_a_choice_of_times_begins_and_lasts_as_that() -> None:
    window = TimeWindow([(1_000, 5_000)], [(900, 2_000), (3_000, 4_000)], 1_000)
    found = build_pprof(ProfileBuilder().add("main").build(window=window))
    assert (found.time_nanos, found.duration_nanos) == (1_767_225_600_000_000_900, 2_100)


def test_every_format_writes_an_empty_profile() -> None:
    empty = ProfileBuilder().build()
    assert written(write_folded, empty) == b""
    assert json.loads(written(write_speedscope, empty))["profiles"][0]["samples"] == []
    assert len(build_pprof(empty).sample) == 0


def test_only_event_keeps_that_event_alone() -> None:
    profile = example().only_event(1)
    assert [event.name for event in profile.events] == ["page-faults"]
    assert profile.total_weight().tolist() == [7]
    assert written(write_folded, profile) == b"app;main;work(int);handle_mm_fault 7\n"
    assert NO_STACK.encode() not in written(write_folded, profile)


@pytest.mark.parametrize("time_ns", [-1, 1 << 63, (1 << 64) - 1])
def test_times_that_a_format_cannot_say_are_left_out(time_ns: int) -> None:
    profile = replace(example(), start_realtime_ns=time_ns, duration_ns=time_ns)
    message = build_pprof(profile)
    assert (message.time_nanos, message.duration_nanos) == (0, 0)
    assert len(message.sample) == len(build_pprof(example()).sample)
    for write in (write_speedscope, write_folded):
        assert written(write, profile)
