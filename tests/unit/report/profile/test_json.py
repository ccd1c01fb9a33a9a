"""The report for machines."""

import json
from collections.abc import Callable

from builders.profiles import Frame, ProfileBuilder, example
from tdprof.model.profile import Profile
from tdprof.profile.hotspots import find_hotspots, unknown_samples
from tdprof.report.profile.json import render_json


def json_text(profile: Profile, *, by_line: bool = False) -> str:
    return "".join(render_json(profile, find_hotspots(profile, by_line=by_line), unknown_samples(profile)))


def test_functions(check_golden: Callable[[str, str], None]) -> None:
    check_golden("report/functions.json", json_text(example()))


def test_lines_are_entries_of_the_same_form() -> None:
    functions, lines = (json.loads(json_text(example(), by_line=by_line))["functions"] for by_line in (False, True))
    assert {tuple(each) for each in functions} == {tuple(each) for each in lines}
    assert sum(each["samples"] for each in lines) == sum(each["samples"] for each in functions) == 1007
    assert [each["line"] for each in functions if each["name"] == "work(int)"] == [25]
    assert sorted(each["line"] for each in lines if each["name"] == "work(int)") == [21, 25]


def test_an_empty_profile_is_an_object_with_no_functions() -> None:
    report = json.loads(json_text(ProfileBuilder().build()))
    assert report["functions"] == []
    assert report["events"][0]["samples"] == 0


def test_odd_names_are_valid_json() -> None:
    report = json.loads(json_text(ProfileBuilder().add(Frame('"\udc80\\', file="\udc80")).build()).encode())
    assert report["functions"][0]["name"] == '"?\\'
