"""A profile and its findings as the few columns that the HTML page reads."""

import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tdprof import __version__
from tdprof.catalog.entries import CPU_CYCLES, Catalog
from tdprof.model.arrays import I32, I64, U32, group_of_row, group_rows
from tdprof.model.findings import Diagnosis, Findings, MetricTable, MetricTimes
from tdprof.model.profile import FrameStacks, Profile
from tdprof.model.spe import LATENCIES, QUANTILES, FunctionOperations, mean_latency
from tdprof.model.time_range import NS_PER_S
from tdprof.profile.call_tree import CallTree, call_tree, with_roots
from tdprof.profile.compare import Comparison
from tdprof.profile.frames import are_elsewhere, frame_stacks, whole_functions
from tdprof.profile.hotspots import effective_samples, unknown_samples
from tdprof.profile.intervals import Intervals, time_bins
from tdprof.profile.statistics import Z_95
from tdprof.report.metric_text import functions_left_out
from tdprof.report.page.change import change_columns
from tdprof.report.page.functions import Processes, find_processes, functions_header, line_files
from tdprof.report.page.packing import COMPRESSION_LEVEL, Columns, Header, compressed_size, pack, shortened
from tdprof.report.page.tallies import FUNCTIONS, functions_with_samples, tally_columns, timed_sums
from tdprof.report.page.times import (
    MOST_BINS,
    SampledPlaces,
    find_places,
    phases_header,
    place_columns,
    time_columns,
)
from tdprof.report.page.wakers import page_wakers
from tdprof.report.summary import (
    asked_for,
    doubts,
    event_notes,
    facts,
    format_value,
    meaning_of_end,
    no_samples,
    stack_quality,
)
from tdprof.text import printable
from tdprof.values import dataclass

# Of a page of 5 MB: base64 makes three bytes four, and the scripts and styles take their part.
MOST_COMPRESSED_BYTES = 3_600_000
MOST_ENTRIES = 2_000_000  # more never fit, and a brush would wait for them
_FEW_BINS = 100


@dataclass(frozen=True, slots=True)
class Page:
    """What a page shows.

    Attributes:
        profile: each event once (``calibrated``).
        findings: of the same profile; None if it was not recorded for metrics.
        operations: what SPE measured of its functions, if it did.
        comparison: with an older capture, if the page is to show what changed.
        older: that capture's name.
    """

    profile: Profile
    findings: Findings | None = None
    operations: FunctionOperations | None = None
    comparison: Comparison | None = None
    older: str = ""


def page_document(page: Page) -> bytes:
    """What the page reads: a header in JSON, then columns of numbers.

    Layout: uint32 length of the header, little-endian, the header, then the columns. The header's ``columns`` has for
    each name the type (as JavaScript calls its typed array), the position behind the header and the number of elements.
    A column's first bytes of all elements stand before their second bytes and so on, least significant first, since
    bytes of one kind compress better together.
    """
    profile = page.profile
    stacks = frame_stacks(profile)
    # The page numbers only functions that some stack holds.
    function = np.unique(stacks.function)
    row_of = np.zeros(len(profile.functions.name) + 1, np.int64)
    row_of[function] = np.arange(len(function))

    processes = find_processes(profile)
    header = _header(profile)
    wakers = page_wakers(profile, row_of)
    columns, places = _code(profile, stacks, row_of, processes, wakers[1] if wakers else None)
    header["functions"] = functions_header(profile, function)
    header["processes"] = processes.label
    if wakers:
        header["wakers"] = wakers[0]
    if page.findings is not None:
        header["findings"], metrics = _findings(profile, page.findings, row_of)
        columns |= metrics
    if page.operations is not None:
        header["spe"] = _operations(page.operations, row_of)
    if page.comparison is not None:
        change, changes = change_columns(page.comparison, function)
        header["change"] = {"since": printable(page.older), **change}
        header["doubts"] += [printable(note) for note in page.comparison.notes]
        columns |= changes
    return _with_time(page, row_of, places, header, columns)


def _with_time(page: Page, row_of: I64, places: SampledPlaces, header: Header, columns: Columns) -> bytes:
    """The document with the samples by time: in as many bins as the page has room for, without them if in none.

    Where all events have room in few bins only, it is the one that the page begins with. What metrics of a stretch of
    time are made of is of as many functions as there is room for.
    """
    profile = page.profile
    most, events = MOST_BINS, range(len(profile.events))
    phases = phases_header(profile, header["firstEvent"])
    tallies = _Tallies(page, row_of)
    while len((bins := time_bins(profile, most)).end) > 1:
        time, by_time = time_columns(profile, places, bins, events)
        timed = header | {"time": time | {"phases": phases}}, columns | by_time
        document = pack(*timed)
        # To compress what is far too large would take most of the time.
        is_short = len(by_time["timeStep"]) <= MOST_ENTRIES
        if is_short and (size := compressed_size(document)) <= MOST_COMPRESSED_BYTES:
            more = tallies.within(MOST_COMPRESSED_BYTES - size, bins)
            if more is None:
                return document
            timed[0]["findings"] |= {"byTime": more[0]}
            return pack(timed[0], timed[1] | more[1])
        if len(events) > 1 and len(bins.end) < 2 * _FEW_BINS:
            most, events = MOST_BINS, range(header["firstEvent"], header["firstEvent"] + 1)
        else:
            most = len(bins.end) // 2
    return pack(header, columns)


class _Tallies:
    """What metrics of a stretch of time are made of, if the page can have them."""

    def __init__(self, page: Page, row_of: I64) -> None:
        self._profile, self._row_of = page.profile, row_of
        recorded = page.findings.recorded if page.findings else None
        # A page of one event has other samples than the metrics; of passes no time has all events.
        is_of_page = (
            recorded is not None
            and bool(recorded.plans)
            and len(recorded.event) == len(page.profile.samples.event)
            and not (page.profile.topdown and page.profile.topdown.is_pass_per_group)
        )
        self._recorded = recorded if is_of_page else None
        self._functions = functions_with_samples(page.profile) if is_of_page else None

    def within(self, most_bytes: int, bins: Intervals) -> tuple[Header, Columns] | None:
        """Header and columns of as many functions as take so many bytes, compressed; None if these are none."""
        if self._recorded is None or self._functions is None:
            return None
        sums = timed_sums(self._profile, self._recorded, bins)
        for most in FUNCTIONS:
            found = tally_columns(sums, self._recorded, bins, self._functions, most)
            if found is not None and len(zlib.compress(pack(*found), COMPRESSION_LEVEL)) <= most_bytes:
                chosen = self._functions.code.function[self._functions.order[:most]]
                return found[0] | {"functions": self._row_of[chosen].tolist()}, found[1]
        return None


def _header(profile: Profile) -> Header:
    samples, weight = profile.total_samples().tolist(), profile.total_weight().tolist()
    names = [event.name for event in profile.events]
    mean_weights = _mean_weights(profile)
    told = doubts(profile, unknown_samples(profile))
    return {
        "version": __version__,
        "facts": facts(profile),
        "stacks": _stacks(profile),
        "doubts": told,
        "noSamples": no_samples(told),
        "quantile95": Z_95,
        "firstEvent": names.index(CPU_CYCLES) if CPU_CYCLES in names else 0,
        "events": [
            {
                "name": printable(event.name),
                "unit": event.unit.value,
                "samples": samples[row],
                "weightOfSample": mean_weights[row],
                "effectiveSamples": 0.0 if profile.is_of_hosts else effective_samples(profile, row),
                "counted": None if event.total is None else format_value(event.total, event.unit),
                "asked": asked_for(event),
                "notes": list(event_notes(event, weight[row])),
            }
            for row, event in enumerate(profile.events)
        ],
    }


def _stacks(profile: Profile) -> Header | None:
    """How far user call stacks reach; None where the recording does not tell."""
    if profile.walks is None:
        return None
    return {
        "text": f"Call stacks: {stack_quality(profile, profile.walks)}.",
        "samples": profile.walks.total,
        "guessed": profile.walks.guessed,
        "ends": [
            {"word": end.word, "meaning": meaning_of_end(end, profile), "samples": count}
            for end, count in profile.walks.ends.items()
        ],
    }


def _code(
    profile: Profile, stacks: FrameStacks, row_of: I64, processes: Processes, waker: I64 | None
) -> tuple[Columns, SampledPlaces]:
    """The tree of calls, and for each event the sums of its samples by node and by source line of the leaf.

    Returns the columns, and where each sample fell. With who woke each sample, also the sums by that.

    Where there are several processes, they are the first calls of the tree, numbered from the page's functions on.
    """
    tree, node_of_sample = _tree(profile, stacks, processes)
    functions = int(row_of.max(initial=-1)) + 1
    # Processes are numbered behind all functions of the profile, here behind those of the page.
    shown_as = np.concatenate([row_of[:-1], functions + np.arange(len(processes.label)), row_of[-1:]])
    leaf = stacks.start[:-1]
    # np.unique on one number is far faster than on rows of two.
    leaf_function = frame_stacks(profile, of_lines=True).function[leaf].astype(np.int64)
    line_keys, line_of_stack = np.unique((leaf_function + 1) << 32 | stacks.line[leaf], return_inverse=True)
    line_function = (line_keys >> 32) - 1
    line_of_sample = line_of_stack.reshape(-1)[profile.samples.stack]
    node, line = _sums(profile, node_of_sample), _sums(profile, line_of_sample)
    columns = {
        # Steps between numbers that never fall, where most are small.
        "parentStep": np.diff(tree.parent),
        "function": shown_as[tree.function],
        **_line_places(profile, "line", line_function, line_keys & 0xFFFF_FFFF, row_of),
        **{f"node{name}": column for name, column in node.items()},
        **{f"line{name}": column for name, column in line.items()},
    }
    of_nobody = np.zeros(len(profile.samples.count), np.int64)
    places = find_places(
        node_of_sample.astype(np.int64), line_of_sample.astype(np.int64), of_nobody if waker is None else waker
    )
    if waker is not None:
        columns |= {
            f"wakerPlace{name}": column for name, column in _sums(profile, places.of_sample.astype(np.int64)).items()
        }
        columns |= {"placeWaker": places.waker, **place_columns(places)}
    return columns, places


def _line_places(profile: Profile, kind: str, function: I64 | I32, line: I64 | U32, row_of: I64) -> Columns:
    """The columns that say where lines are, by the functions of lines.

    ``File``, only where functions have lines of other files than they stand in: 0 for the same, else behind it the row
    in the header's ``lineFiles``.
    """
    functions = profile.functions
    whole = np.append(whole_functions(functions, profile.mapped_files), -1)
    columns: Columns = {f"{kind}Function": row_of[whole[function]], f"{kind}Number": line}
    if files := line_files(functions):
        row_of_file = {file: row for row, file in enumerate(files, 1)}
        file = np.array([*(row_of_file.get(file, 0) for file in functions.file), 0])
        columns[f"{kind}File"] = np.where(np.append(are_elsewhere(functions), False), file, 0)[function]
    return columns


def _tree(profile: Profile, stacks: FrameStacks, processes: Processes) -> tuple[CallTree, I64]:
    """The calls of all samples, and int64[samples]: the node in which each one's stack ends."""
    samples = profile.samples
    if not processes.label:
        tree = call_tree(stacks)
        return tree, tree.node_of_stack[samples.stack]
    order, start = group_rows(processes.of_sample, samples.stack)
    first = order[start]
    roots = len(profile.functions.name) + processes.of_sample[first]
    tree = call_tree(with_roots(stacks, samples.stack[first].astype(np.int64), roots))
    return tree, tree.node_of_stack[group_of_row(order, start)]


def _sums(profile: Profile, row: I64) -> Columns:
    """Samples added up by event and row, rows without any left out.

    ``Start`` is where each event's entries begin; ``Step`` is the row less that of the entry before; ``Weight`` is the
    weight of one sample, as a multiple of the event's mean: 1 wherever an event has a fixed period.
    """
    samples = profile.samples
    order, first = group_rows(samples.event, row)
    event, row = samples.event[order][first], row[order][first]
    start = np.searchsorted(event, np.arange(len(profile.events) + 1))
    step = np.diff(row, prepend=0)
    begins = start[:-1][start[:-1] < len(row)]
    step[begins] = row[begins]
    weight, count = (
        np.add.reduceat(column[order], first) if len(first) else column for column in (samples.weight, samples.count)
    )
    relative = weight / (count * np.array(_mean_weights(profile))[event])
    return {"Start": start, "Step": step, "Weight": shortened(np.nan_to_num(relative), 13), "Count": count}


def _mean_weights(profile: Profile) -> list[float]:
    """Of one sample, by event; 1 where there is nothing to weigh."""
    with np.errstate(invalid="ignore"):
        mean = profile.total_weight() / profile.total_samples()
    return [value if value > 0 else 1.0 for value in mean.tolist()]


def _findings(profile: Profile, findings: Findings, row_of: I64) -> tuple[Header, Columns]:
    tables = {
        "program": findings.program,
        "self": findings.functions,
        "total": findings.inclusive,
        "line": findings.lines,
    }
    columns: Columns = {"metricFunction": row_of[findings.function]}
    columns |= _line_places(profile, "metricLine", findings.line_function, findings.line, row_of)
    metrics: dict[str, list[Header]] = {}
    for name, table in tables.items():
        kept = _columns_to_show(findings.catalog, table) if name == "line" else list(range(len(table.metrics)))
        metrics[name] = [{"name": table.metrics[i], "units": table.units[i], "source": table.sources[i]} for i in kept]
        for label, values in (
            # Enough for the digits that are shown: four of a value, two of its doubt.
            ("Value", shortened(table.value, 13)),
            ("HalfWidth", shortened(table.half_width, 8)),
            ("Samples", table.samples),
            ("IsSignificant", table.is_significant.astype(np.uint8)),
        ):
            # Metric by metric: neighbours are alike, and the page takes one metric at a time.
            columns[f"{name}{label}"] = np.ascontiguousarray(values[:, kept].T).reshape(-1)
    diagnoses: dict[tuple[Any, ...], int] = {}
    program = diagnoses.setdefault(_key(findings.program_diagnosis), 0)
    columns["diagnosis"] = np.array(
        [diagnoses.setdefault(_key(each), len(diagnoses)) for each in findings.diagnoses], np.int64
    )
    header = {
        "core": findings.catalog.title,
        "metrics": metrics,
        "catalog": _catalog(findings),
        "diagnoses": [{"path": path, "groups": groups, "advice": advice} for path, groups, advice in diagnoses],
        "programDiagnosis": program,
        "disagreements": [*map(printable, findings.disagreements), *functions_left_out(findings)],
        "times": None if findings.times is None else _metric_times(findings.times),
    }
    return header, columns


def _metric_times(times: MetricTimes) -> Header:
    """Of each metric a value for each stretch of time, null where it is not known well enough."""
    value = np.where(times.metrics.is_significant, times.metrics.value, np.nan)
    return {
        "begin": [each / NS_PER_S for each in times.begin.tolist()],
        "end": [each / NS_PER_S for each in times.end.tolist()],
        "values": {
            name: [None if np.isnan(each) else float(f"{each:.4g}") for each in value[:, column].tolist()]
            for column, name in enumerate(times.metrics.metrics)
            if not np.isnan(value[:, column]).all()
        },
    }


def _operations(operations: FunctionOperations, row_of: I64) -> Header:
    """SPE's counts and latencies by the page's rows of functions; null where there is nothing to tell."""
    report = operations.report
    known = np.flatnonzero(operations.function >= 0)

    def numbers(column: NDArray[np.float64]) -> list[float | None]:
        return [None if np.isnan(value) else round(value, 1) for value in column[known].tolist()]

    return {
        "functions": row_of[operations.function[known]].tolist(),
        "operations": report.counts["OPERATIONS"][known].tolist(),
        "loads": report.counts["LOADS"][known].tolist(),
        "levels": [{"name": name, "count": count[known].tolist()} for name, count in report.levels.items()],
        "latencies": [
            {"title": name.removesuffix("_latency"), "mean": numbers(mean_latency(report, name))}
            | {
                f"p{share * 100:.0f}": numbers(report.latencies[name][:, column])
                for column, share in enumerate(QUANTILES)
            }
            for name in LATENCIES
        ],
        "notes": [printable(note) for note in report.notes],
    }


def _key(diagnosis: Diagnosis) -> tuple[Any, ...]:
    return tuple(diagnosis.path), tuple(diagnosis.groups), diagnosis.advice


def _columns_to_show(catalog: Catalog, table: MetricTable) -> list[int]:
    """A line has few samples: only the level-1 metrics of lines are shown."""
    return [row for row, name in enumerate(table.metrics) if name in catalog.roots and table.sources[row] == "pmu"]


def _catalog(findings: Findings) -> Header:
    catalog = findings.catalog
    return {
        "roots": catalog.roots,
        "tree": dict(catalog.tree),
        "metrics": {
            name: {"title": metric.title, "units": metric.units, "stage": metric.stage, "advice": metric.advice}
            for name, metric in catalog.metrics.items()
        },
        "groups": {
            name: {"title": group.title, "stage": group.stage, "metrics": group.metrics}
            for name, group in catalog.groups.items()
        },
    }
