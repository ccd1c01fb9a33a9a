"""The slots of each Stage 1 category, stack by stack."""

from dataclasses import replace

import numpy as np

from builders.findings import findings_of
from builders.profiles import ProfileBuilder
from builders.topdown_example import CYCLES, topdown_example
from tdprof.model.events import EventInfo, Unit
from tdprof.model.profile import Profile
from tdprof.profile.categories import category_events, with_categories
from tdprof.profile.frames import frame_stacks, function_names

SLOTS = 8  # of Neoverse V2


def by_leaf(profile: Profile, event: str) -> dict[str, int]:
    """Self weight by function name."""
    stacks, names = frame_stacks(profile), function_names(profile)
    index = [each.name for each in profile.events].index(event)
    result: dict[str, int] = {}
    for row in np.flatnonzero(profile.samples.event == index).tolist():
        name = names[stacks.function[stacks.start[profile.samples.stack[row]]]]
        result[name] = result.get(name, 0) + int(profile.samples.weight[row])
    return result


def test_a_stack_has_its_leaf_functions_fractions_of_its_slots() -> None:
    profile, _ = topdown_example()
    assert by_leaf(profile, "backend_bound_slots") == {"work": round(2 * CYCLES * SLOTS * 0.624)}
    assert by_leaf(profile, "frontend_bound_slots") == {
        "work": round(2 * CYCLES * SLOTS * 0.10),
        "parse": round(CYCLES * SLOTS * 0.55),
    }
    assert by_leaf(profile, "retiring_slots")["parse"] == round(CYCLES * SLOTS * 0.30)


def test_slots_of_code_with_too_few_samples_are_unknown_and_not_the_programs_average() -> None:
    profile, _ = topdown_example()
    # main is in no row of the findings, rare is only known to 40 points, and one stack could not be read.
    assert by_leaf(profile, "unknown_slots") == {
        "rare": CYCLES // 2 * SLOTS,
        "main": CYCLES // 4 * SLOTS,
        "[no call stack]": CYCLES // 4 * SLOTS,
    }


def test_categories_share_out_the_slots_and_leave_the_events_alone() -> None:
    profile, findings = topdown_example()
    weights = dict(zip((event.name for event in profile.events), profile.total_weight().tolist(), strict=True))
    # A fraction of -0.2 % is noise and counts as none, which makes 0.2 % of the function's slots too many.
    assert sum(weights[name] for name in category_events(findings.catalog)) == 4 * CYCLES * SLOTS
    assert (weights["CPU_CYCLES"], weights["L1D_CACHE_REFILL"]) == (4 * CYCLES, 40_000)
    assert profile.total_samples()[1:6].tolist() == [0] * 5
    assert [event.name for event in profile.events][::6] == ["CPU_CYCLES", "L1D_CACHE_REFILL"]


def test_a_core_without_slot_events_has_cycles() -> None:
    profile = ProfileBuilder((EventInfo("CPU_CYCLES", Unit.COUNT),)).add("main", weight=1000).build()
    stalls = {"frontend_stalled_cycles": (20.0, 1.0), "backend_stalled_cycles": (50.0, 1.0)}
    with_cycles = with_categories(profile, findings_of(profile, stalls, {"main": stalls}, {}, core="neoverse-n1"))
    assert by_leaf(with_cycles, "frontend_stalled_cycles") == {"main": 200}


def test_without_findings_cycles_or_fractions_a_profile_stays_as_it_is() -> None:
    clock = ProfileBuilder().add("main").build()
    some = {"ipc": (1.0, 0.1)}
    assert with_categories(clock, None) is clock
    assert with_categories(clock, findings_of(clock, some, {"main": some}, {})) is clock
    cycles = replace(clock, events=[EventInfo("CPU_CYCLES", Unit.COUNT)])
    assert with_categories(cycles, findings_of(cycles, some, {"main": some}, {})) is cycles
