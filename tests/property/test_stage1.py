"""Stage 1 categories share out the slots of any profile, whatever is known of its functions."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from builders.findings import findings_of, metric_table
from builders.profiles import profiles
from tdprof.model.profile import Profile
from tdprof.profile.categories import category_events, with_categories
from tdprof.profile.frames import frame_stacks

SLOTS = 8  # of Neoverse V2
ROOTS = ("frontend_bound", "backend_bound", "retiring", "bad_speculation")
fractions = st.lists(st.floats(0, 1), min_size=4, max_size=4).filter(any)


@given(profiles(), st.data())
def test_categories_add_up_to_the_slots(recorded: Profile, data: st.DataObject) -> None:
    small = replace(recorded.samples, weight=recorded.samples.weight % np.uint64(2**40))
    profile = replace(
        recorded, events=[replace(recorded.events[0], name="CPU_CYCLES"), recorded.events[1]], samples=small
    )
    leaves = sorted({*frame_stacks(profile).function.tolist()} - {-1})
    rows = []
    for _ in leaves:
        parts = np.array(data.draw(fractions))
        half_width = data.draw(st.sampled_from([0.5, 10.0, 10.1, np.nan]))
        rows.append({root: (100 * part, half_width) for root, part in zip(ROOTS, parts / parts.sum(), strict=True)})
    # Of samples without a call stack.
    rows.append(dict.fromkeys(ROOTS, (25.0, 0.0)))
    units = dict.fromkeys(ROOTS, "percent of slots")
    findings = findings_of(profile, {}, {}, {})
    findings = replace(findings, function=np.array([*leaves, -1], np.int32), functions=metric_table(rows, units))

    shown = with_categories(profile, findings)
    names = [event.name for event in shown.events]
    assert [name for name in names if name not in category_events(findings.catalog)] == [
        event.name for event in profile.events
    ]
    weight = dict(zip(names, shown.total_weight().tolist(), strict=True))
    before = profile.total_weight().tolist()
    assert [weight["CPU_CYCLES"], weight[profile.events[1].name]] == before
    assert shown.total_samples().sum() == profile.total_samples().sum()
    categories = sum(weight[name] for name in category_events(findings.catalog))
    # Each row of each category is rounded to a whole slot.
    assert abs(categories - SLOTS * before[0]) <= 4 * len(profile.samples.weight)
