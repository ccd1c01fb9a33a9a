"""What holds for every export of every profile: valid for its reader, and the same totals."""

import gzip
import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.profiles import profiles
from tdprof.export import pprof_pb2
from tdprof.export.folded import write_folded
from tdprof.export.pprof import write_pprof
from tdprof.export.speedscope import write_speedscope
from tdprof.model.profile import Profile

SPEEDSCOPE = Path(sys.prefix) / "share/tdprof/node_modules/speedscope/dist/release"


@pytest.fixture(scope="module")
def speedscope_schema() -> jsonschema.Draft7Validator:
    path = SPEEDSCOPE / "file-format-schema.json"
    if not path.exists():
        pytest.skip("speedscope's npm package is not installed: tools/setup test")
    return jsonschema.Draft7Validator(json.loads(path.read_text()))


@given(profile=profiles(), has_times=st.booleans())
def test_speedscope(speedscope_schema: jsonschema.Draft7Validator, profile: Profile, has_times: bool) -> None:
    out = io.BytesIO()
    write_speedscope(replace(profile, has_sample_times=has_times), out)
    document = json.loads(out.getvalue())
    speedscope_schema.validate(document)
    totals = profile.total_weight().tolist()
    assert [sum(each["weights"]) for each in document["profiles"]] == totals
    assert [each["endValue"] for each in document["profiles"]] == totals
    frames = len(document["shared"]["frames"])
    for each in document["profiles"]:
        assert len(each["samples"]) == len(each["weights"])
        assert all(0 <= frame < frames for stack in each["samples"] for frame in stack)
        assert len({tuple(stack) for stack in each["samples"]}) <= len(profile.samples.time_ns)


@given(profiles())
def test_pprof(profile: Profile) -> None:
    out = io.BytesIO()
    write_pprof(profile, out)
    message = pprof_pb2.Profile.FromString(gzip.decompress(out.getvalue()))
    assert message.string_table[0] == ""
    names = [message.string_table[each.type] for each in message.sample_type]
    assert names == ["samples", *(event.name for event in profile.events)]
    totals = [sum(sample.value[i] for sample in message.sample) for i in range(len(names))]
    assert totals == [int(profile.samples.count.sum()), *profile.total_weight().tolist()]
    mappings = {mapping.id: mapping for mapping in message.mapping}
    locations = {location.id: location for location in message.location}
    functions = {function.id for function in message.function}
    for sample in message.sample:
        assert sample.location_id
        assert all(each in locations for each in sample.location_id)
    for location in message.location:
        assert location.line
        assert all(line.function_id in functions for line in location.line)
        if location.mapping_id:
            mapping = mappings[location.mapping_id]
            assert mapping.memory_start <= location.address < mapping.memory_limit


@given(profiles())
def test_folded(profile: Profile) -> None:
    out = io.BytesIO()
    write_folded(profile, out)
    lines = out.getvalue().decode().splitlines()
    assert sum(int(line.rsplit(" ", 1)[1]) for line in lines) == int(profile.total_weight()[0])
    assert len(lines) == out.getvalue().count(b"\n")
