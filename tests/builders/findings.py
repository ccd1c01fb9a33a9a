"""Writes `Findings` from readable values, for tests of what shows them."""

from collections.abc import Mapping, Sequence

import numpy as np

from tdprof.catalog.choose import load_packaged
from tdprof.model.findings import Diagnosis, Findings, MetricTable
from tdprof.model.profile import Profile
from tdprof.profile.frames import frame_stacks

Value = tuple[float, float]  # value, half width
SIGNIFICANT_SAMPLES = 30


def metric_table(
    rows: Sequence[Mapping[str, Value]], units: Mapping[str, str], samples: Sequence[int] | None = None
) -> MetricTable:
    """A metric named ``spe:NAME`` is NAME as SPE measured it; rows with few samples are not significant."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    values = np.array([[row.get(name, (np.nan, np.nan)) for name in names] for row in rows]).reshape(
        len(rows), len(names), 2
    )
    counts = np.array(samples if samples is not None else [1000] * len(rows), np.uint64)
    spread = np.repeat(counts[:, None], len(names), axis=1)
    return MetricTable(
        metrics=[name.removeprefix("spe:") for name in names],
        units=[units[name.removeprefix("spe:")] for name in names],
        sources=["spe" if name.startswith("spe:") else "pmu" for name in names],
        value=values[:, :, 0],
        half_width=values[:, :, 1],
        samples=spread,
        is_significant=(spread >= SIGNIFICANT_SAMPLES) & ~np.isnan(values[:, :, 0]),
    )


def findings_of(
    profile: Profile,
    program: Mapping[str, Value],
    functions: Mapping[str, Mapping[str, Value]],
    paths: Mapping[str, Sequence[str]],
    *,
    core: str = "neoverse-v2",
    few: Sequence[str] = (),
    disagreements: Sequence[str] = (),
) -> Findings:
    """Findings of the named functions of a profile.

    Args:
        program: metric to (value, half width) of all.
        functions: the same by function name; inclusive ones are the same.
        paths: the diagnosis of each function, "" for the program.
        few: functions with too few samples to be acted upon.
    """
    catalog = load_packaged(core)
    units = {name: metric.units for name, metric in catalog.metrics.items()}
    known = set(frame_stacks(profile).function.tolist())
    ids = {name: number for number, name in enumerate(profile.functions.name) if number in known}
    table = metric_table(list(functions.values()), units, [3 if name in few else 1000 for name in functions])

    def diagnosis(name: str) -> Diagnosis:
        path = paths.get(name, ())
        groups = [item for item in catalog.tree.get(path[-1], ()) if item in catalog.groups] if path else []
        return Diagnosis(path, groups, catalog.metrics[path[-1]].advice if path else "")

    return Findings(
        catalog=catalog,
        program=metric_table([program], units),
        program_diagnosis=diagnosis(""),
        function=np.array([ids[name] for name in functions], np.int32),
        functions=table,
        inclusive=table,
        diagnoses=[diagnosis(name) for name in functions],
        line_function=np.zeros(0, np.int32),
        line=np.zeros(0, np.uint32),
        lines=metric_table([], units),
        disagreements=disagreements,
    )
