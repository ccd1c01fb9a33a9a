"""A fleet's functions as comma-separated values."""

from collections.abc import Iterator, Sequence

from tdprof.model.fleet import StratumShares
from tdprof.report.csv_lines import number_cell, write_rows

COLUMNS = (
    *("core", "event", "module", "function", "file", "self", "self_half_width", "total", "total_half_width"),
    *("self_samples", "hosts", "design_effect", "is_between_hosts", "self_low", "self_high", "total_low", "total_high"),
)


def render_csv(shares: Sequence[StratumShares], *, limit: int) -> Iterator[str]:
    """A line for each function of each kind of core."""
    return write_rows(COLUMNS, _rows(shares, limit))


def _rows(shares: Sequence[StratumShares], limit: int) -> Iterator[Sequence[object]]:
    for each in shares:
        for row, function in enumerate(each.functions[: limit or None]):
            yield [
                *(each.stratum.core, each.stratum.event, function.module, function.name, function.file),
                *(number_cell(each.own.value[row]), number_cell(each.own.half_width[row])),
                *(number_cell(each.total.value[row]), number_cell(each.total.half_width[row])),
                *(int(each.own.samples[row]), int(each.total.hosts[row]), number_cell(each.own.design_effect[row])),
                int(each.own.is_between),
                *(number_cell(end[row]) for part in (each.own, each.total) for end in (part.low, part.high)),
            ]
