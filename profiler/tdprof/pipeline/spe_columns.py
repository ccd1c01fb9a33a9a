"""SPE's records beside a capture's samples: what SPE measures of each function and line, in the same row."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tdprof.capture.manifest import Host
from tdprof.catalog.choose import ARCHITECTURAL, find_by_midr, load_packaged
from tdprof.catalog.entries import Catalog
from tdprof.catalog.midr import Midr
from tdprof.metrics.spe import RATIOS, Ratio, share_interval
from tdprof.model.arrays import I64
from tdprof.model.findings import NO_DIAGNOSIS, Findings, MetricTable
from tdprof.model.profile import Profile
from tdprof.model.spe import FunctionOperations
from tdprof.pipeline.opened import OpenCapture
from tdprof.pipeline.spe_lines import NOT_COUNTED, SpeLines, within_memory
from tdprof.pipeline.spe_masked import view_of_masked_code
from tdprof.pipeline.spe_report import lane_counts, make_report
from tdprof.pipeline.spe_rows import SampledFunction
from tdprof.profile.frames import FunctionIdentity, function_identities, function_names, line_functions
from tdprof.profile.rows import CodeRows, code_rows
from tdprof.profile.statistics import MIN_SAMPLES
from tdprof.values import dataclass

SOURCE = "spe"
# A share known so well tells something even where it is no larger than its error.
INFORMATIVE = 0.05
# Of each metric, so that one that differs by its definition does not fill a page.
MOST_FUNCTIONS_TOLD = 3
_SPECULATED = "the PMU counts operations that were speculated, SPE those that retired"
_ACCESSES = "the PMU counts all accesses, speculated ones and stores too, SPE's are of retired loads"
WHY_APART = {
    "load_percentage": _SPECULATED,
    "store_percentage": _SPECULATED,
    "branch_percentage": _SPECULATED,
    "branch_misprediction_ratio": "both are of retired branches: samples of the PMU skid, SPE's samples can collide",
    "l1d_cache_miss_ratio": _ACCESSES,
    "ll_cache_read_miss_ratio": _ACCESSES,
    "dtlb_walk_ratio": "the PMU counts all accesses, speculated ones too, SPE's are of retired operations",
}
NO_ROW = -2  # -1 is the function of a sample without a call stack


@dataclass(frozen=True, slots=True)
class LineCounts:
    """SPE records by source line of a profile's functions.

    Attributes:
        function: int64[n], function ids as in ``FrameStacks``; ``NO_ROW`` for code that no sample has.
        line_function: int64[n], likewise, those of lines.
        line: int64[n].
        counts: uint64[n] by name, as in ``SpeReport.counts``.
    """

    function: I64
    line_function: I64
    line: I64
    counts: Mapping[str, NDArray[np.uint64]]


@within_memory()
def join_spe(findings: Findings | None, capture: OpenCapture, profile: Profile) -> Findings | None:
    """Findings with a column for each metric that SPE measures, named by source, if the capture has SPE records.

    Operations of functions and lines without a single sample have no row; ``tdprof report --spe`` shows them.

    Args:
        findings: what the PMU found; None without a Topdown recording: then SPE's are the only metrics.
        capture: the capture.
        profile: loaded from it.

    Raises:
        TdprofError: its records cannot be read.
    """
    if not capture.has_spe or not len(profile.samples.stack):
        return findings
    capture.progress("adding up SPE records")
    counts = count_lines(capture.spe_lines, profile)
    joined = add_columns(findings or without_metrics(profile, catalog_of(capture.recorded.host)), counts)
    told = disagreements(joined, function_names(profile))
    if capture.recorded.host.has_pmu_nmi is False:
        told += view_of_masked_code(capture.spe_lines, profile)
    return replace(joined, disagreements=[*joined.disagreements, *told])


def count_lines(lines: SpeLines, profile: Profile) -> LineCounts:
    """What the ratios are made of, by line of the profile's functions."""
    rows = np.arange(len(lines.function))
    counts, id_of = lane_counts(lines.counted.of_rows(rows)), _ids_of_functions(profile)
    return LineCounts(
        _ids_of([function.whole for function in lines.functions], id_of)[lines.function],
        _ids_of(lines.functions, id_of)[lines.function],
        lines.line,
        {name: counts[name] for ratio in RATIOS for name in (ratio.part, ratio.whole)},
    )


@within_memory()
def count_functions(capture: OpenCapture, profile: Profile) -> FunctionOperations | None:
    """A capture's SPE records by function, with their latencies and sources; None if it has none.

    Args:
        capture, profile: as for `join_spe`.

    Raises:
        TdprofError: its records cannot be read.
    """
    if not capture.has_spe or not len(profile.samples.stack):
        return None
    capture.progress("adding up SPE latencies")
    lines = capture.spe_lines
    # One row a function of the profile, in the order in which SPE met them.
    ids = _ids_of([function.whole for function in lines.functions], _ids_of_functions(profile))
    distinct, first, number = np.unique(ids[lines.function], return_index=True, return_inverse=True)
    order = np.argsort(first)
    order = order[distinct[order] != NO_ROW]
    group = np.full(len(distinct), NOT_COUNTED)
    group[order] = 1 + np.arange(len(order))  # behind the row of what had no room, which nothing is in
    functions = distinct[order]
    names = function_names(profile)
    report = make_report(lines, group[number.reshape(-1)], [names[function] for function in functions.tolist()])
    return FunctionOperations(functions, report)


def _ids_of_functions(profile: Profile) -> dict[FunctionIdentity, int]:
    """The profile's function ids, those of lines; of whole functions they are the same as `whole_functions` has."""
    functions, mapped_files = profile.functions, profile.mapped_files
    identities = function_identities(functions, mapped_files)
    return dict(zip(identities, line_functions(functions, mapped_files).tolist(), strict=True))


def _ids_of(sampled: Sequence[SampledFunction], id_of: Mapping[FunctionIdentity, int]) -> I64:
    """int64[functions + 1]: the ids of those that SPE sampled, ``NO_ROW`` for code that no sample has; ``NO_ROW`` last,
    for records of no function."""
    return np.array([*(id_of.get(function.identity, NO_ROW) for function in sampled), NO_ROW], np.int64)


def catalog_of(host: Host) -> Catalog:
    """The catalog of most of a machine's CPUs, the architecture's where they have none."""
    registers = list(host.midr_el1.values())
    try:
        midr = int(max(registers, key=registers.count), 16)
    except ValueError:  # none, or nonsense
        return load_packaged(ARCHITECTURAL)
    return find_by_midr(Midr.from_register(midr)) or load_packaged(ARCHITECTURAL)


def without_metrics(profile: Profile, catalog: Catalog) -> Findings:
    """The functions and lines of a profile, highest self share of the first event first, with no metric yet."""
    is_first = profile.samples.event == 0
    stack, weight = profile.samples.stack[is_first], profile.samples.weight[is_first]

    def by_self(rows: CodeRows) -> I64:
        own = np.bincount(rows.leaf[stack], weight, minlength=len(rows))
        return np.lexsort((rows.line, rows.function, -own))

    functions, lines = code_rows(profile), code_rows(profile, by_line=True)
    by_function, by_line = by_self(functions), by_self(lines)
    return Findings(
        catalog=catalog,
        program=_no_columns(1),
        program_diagnosis=NO_DIAGNOSIS,
        function=functions.function[by_function],
        functions=_no_columns(len(functions)),
        inclusive=_no_columns(len(functions)),
        diagnoses=[NO_DIAGNOSIS] * len(functions),
        line_function=lines.function[by_line],
        line=lines.line[by_line],
        lines=_no_columns(len(lines)),
    )


def _no_columns(rows: int) -> MetricTable:
    empty = np.zeros((rows, 0))
    return MetricTable((), (), (), empty, empty, empty.astype(np.uint64), empty.astype(bool))


def add_columns(findings: Findings, counts: LineCounts) -> Findings:
    """Findings with SPE's columns behind the PMU's."""
    ratios = [ratio for ratio in RATIOS if ratio.name in findings.catalog.metrics]
    program = _columns(findings, ratios, {name: values.sum(keepdims=True) for name, values in counts.counts.items()})
    by_function = _columns(findings, ratios, _rows(counts, findings.function[:, None], [counts.function]))
    line_keys = np.stack([findings.line_function, findings.line.astype(np.int64)], axis=1)
    lines = _columns(findings, ratios, _rows(counts, line_keys, [counts.line_function, counts.line]))
    nothing = {name: np.zeros(len(findings.function), np.uint64) for name in counts.counts}
    return replace(
        findings,
        program=_beside(findings.program, program),
        functions=_beside(findings.functions, by_function),
        # SPE records have no call stack.
        inclusive=_beside(findings.inclusive, _columns(findings, ratios, nothing)),
        lines=_beside(findings.lines, lines),
    )


def _rows(counts: LineCounts, wanted: NDArray[np.integer], keys: Sequence[I64]) -> dict[str, NDArray[np.uint64]]:
    """Counts of the wanted rows, [n, keys]; zero for those without an SPE record."""
    have = np.stack(keys, axis=1)
    known, row = np.unique(np.concatenate([wanted.astype(np.int64), have]), axis=0, return_inverse=True)
    row = row.reshape(-1)
    result = {}
    for name, values in counts.counts.items():
        total = np.zeros(len(known), np.uint64)
        np.add.at(total, row[len(wanted) :], values)
        result[name] = total[row[: len(wanted)]]
    return result


def _columns(findings: Findings, ratios: Sequence[Ratio], counts: Mapping[str, NDArray[np.uint64]]) -> MetricTable:
    """What the counts of some code make of each ratio."""
    shares = [share_interval(counts[ratio.part], counts[ratio.whole]) for ratio in ratios]
    scale = np.array([ratio.scale for ratio in ratios], np.float64)
    value = np.stack([share.value for share in shares], axis=1) * scale
    # Wilson's interval is not symmetric: its longer side holds for both.
    half_width = (
        np.stack([np.fmax(share.high - share.value, share.value - share.low) for share in shares], axis=1) * scale
    )
    samples = np.stack([counts[ratio.whole] for ratio in ratios], axis=1)
    return MetricTable(
        metrics=[ratio.name for ratio in ratios],
        units=[findings.catalog.metrics[ratio.name].units for ratio in ratios],
        sources=[SOURCE] * len(ratios),
        value=value,
        half_width=half_width,
        samples=samples,
        is_significant=(samples >= MIN_SAMPLES) & (half_width <= np.maximum(value, INFORMATIVE * scale)),
    )


def _beside(left: MetricTable, right: MetricTable) -> MetricTable:
    return MetricTable(
        metrics=[*left.metrics, *right.metrics],
        units=[*left.units, *right.units],
        sources=[*left.sources, *right.sources],
        value=np.concatenate([left.value, right.value], axis=1),
        half_width=np.concatenate([left.half_width, right.half_width], axis=1),
        samples=np.concatenate([left.samples, right.samples], axis=1),
        is_significant=np.concatenate([left.is_significant, right.is_significant], axis=1),
    )


def disagreements(findings: Findings, names: Sequence[str]) -> list[str]:
    """A sentence for each metric of the program, and of its hottest functions, that PMU and SPE put apart.

    Apart means that their 95 % intervals do not meet, so that of a hundred that agree hardly one is told.
    """
    sentences = []
    for metric, why in WHY_APART.items():
        whole = _apart(findings.program, metric, ["the program"])
        told = _apart(findings.functions, metric, [names[function] for function in findings.function.tolist()])
        more = len(told) - MOST_FUNCTIONS_TOLD
        sentences += [f"{text}: {why}" for text in [*whole, *told[:MOST_FUNCTIONS_TOLD]]]
        if more > 0:
            sentences.append(f"{metric} differs so in {more} more functions")
    return sentences


def _apart(table: MetricTable, metric: str, names: Sequence[str]) -> list[str]:
    """What to say of the rows whose intervals do not meet."""
    pmu, spe = table.column(metric), table.column(metric, SOURCE)
    if pmu is None or spe is None:
        return []
    distance = np.abs(table.value[:, pmu] - table.value[:, spe])
    is_apart = distance > table.half_width[:, pmu] + table.half_width[:, spe]
    is_apart &= table.is_significant[:, pmu] & table.is_significant[:, spe]

    def text(row: int, column: int) -> str:
        return f"{table.value[row, column]:.4g} ± {table.half_width[row, column]:.2g}"

    return [
        f"{metric} of {names[row]} is {text(row, pmu)} {table.units[pmu]} by the PMU but {text(row, spe)} by SPE"
        for row in np.flatnonzero(is_apart).tolist()
    ]
