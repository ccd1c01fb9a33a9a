"""Who calls whom as comma-separated values."""

from collections.abc import Iterator, Mapping

from tdprof.model.profile import Profile
from tdprof.profile.call_lines import CallLines
from tdprof.report.calls.json import rows_json
from tdprof.report.csv_lines import write_rows

_HEADING = ("tree", "row", "parent", "depth", "function", "module", "share", "total", "self", "samples", "guessed")


def render_csv(profile: Profile, trees: Mapping[str, CallLines], event: int, *, limit: int = 0) -> Iterator[str]:
    """A row for each call, at most ``limit`` of each tree (0: all), in the leading event's unit."""
    del event  # it is that of the trees' numbers
    rows = ((name, *row.values()) for name, tree in trees.items() for row in rows_json(profile, tree, limit))
    return write_rows(_HEADING, (["" if cell is None else cell for cell in row] for row in rows))
