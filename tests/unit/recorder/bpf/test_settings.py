"""Constants that are filled into compiled BPF programs at the load."""

import re
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tdprof.recorder.bpf.settings import MARK, Setting, filled_in, settings_in

HEADER = Path(__file__).parents[4] / "bpf" / "settings.h"
EXIT = struct.pack("<BBhi", 0x95, 0, 0, 0)


def load(low: int, high: int, *, kind: int = 0, register: int = 3) -> bytes:
    """A 64-bit load of a constant or, by its kind, of something else."""
    return struct.pack("<BBhIBBhI", 0x18, kind << 4 | register, 0, low, 0, 0, 0, high)


def test_numbers_are_those_of_the_header() -> None:
    text = HEADER.read_text()
    enumerators = re.findall(r"^\tSETTING_(\w+),", text, re.MULTILINE)
    assert enumerators == [setting.name for setting in sorted(Setting)]
    assert f"#define SETTING_MARK {MARK:#x}ULL" in text


def test_a_place_takes_both_halves_of_its_value() -> None:
    code = load(Setting.PIDNS_DEVICE, MARK) + load(Setting.EVENT, MARK, register=7) + EXIT
    values = {Setting.PIDNS_DEVICE: 0x123456789ABCDEF0, Setting.EVENT: 1 << 31 | 5}
    assert list(settings_in(code)) == [(0, Setting.PIDNS_DEVICE), (16, Setting.EVENT)]
    assert filled_in(code, values) == load(0x9ABCDEF0, 0x12345678) + load(1 << 31 | 5, 0, register=7) + EXIT


def test_only_places_are_filled() -> None:
    # Another constant, a map, and the second half of a constant that looks like a place of its own.
    half = struct.pack("<BBhI", 0x18, 0x02, 0, 7) + struct.pack("<BBhI", 0x18, 0, 0, 1)
    code = load(1, MARK + 1) + load(1, MARK, kind=1) + half + EXIT
    assert filled_in(code, {}) == code


def test_a_setting_without_a_value_is_not_passed_over() -> None:
    with pytest.raises(KeyError):
        filled_in(load(Setting.LEAF_ONLY, MARK) + EXIT, {Setting.EVENT: 1})


@given(st.lists(st.tuples(st.sampled_from(Setting), st.integers(0, (1 << 64) - 1))))
def test_nothing_but_the_constants_changes(settings: list[tuple[Setting, int]]) -> None:
    for setting, value in settings:
        code = EXIT + load(setting, MARK) + EXIT
        found = filled_in(code, {setting: value})
        assert found == EXIT + load(value & 0xFFFFFFFF, value >> 32) + EXIT
