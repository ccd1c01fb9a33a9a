"""What a file may cost: two seconds and ten more for each MB, 300 MB of memory and fifty times its size."""

from pathlib import Path

import pytest

from builders import (  # register their builders
    costly_captures,
    costly_debug_data,
    costly_files,
    costly_go,
    costly_perf_data,
    costly_programs,
    costly_side_tables,
    costly_spe,
    costly_spools,
    costly_stores,
)
from builders.cost import allowed_bytes, allowed_seconds, is_affordable, measure
from builders.costly_files import BUILDERS

pytestmark = pytest.mark.thorough
SIZE_BYTES = 500_000
_ALL_OF = {module.__name__ for module in (costly_files, costly_captures, costly_debug_data)}
# Of the others those that were too costly once; tools/fuzz/costly_files.py runs all.
_SOME = [
    costly_go.go_calls_within_calls,
    costly_perf_data.perf_side_band_that_shrinks,
    costly_perf_data.perf_call_chains_that_shrink,
    costly_perf_data.perf_branches_that_shrink,
    costly_perf_data.perf_buffers_without_bytes,
    costly_perf_data.perf_namespaces,
    costly_perf_data.perf_tool_records_that_shrink,
    costly_perf_data.perf_unknown_records_that_shrink,
    costly_programs.annotated_calls_with_names_that_double,
    costly_side_tables.frames_in_each_other_many_times,
    costly_side_tables.frames_in_each_other_on_a_page,
    costly_side_tables.samples_of_control_groups,
    costly_side_tables.tree_of_one_very_deep_stack,
    costly_spe.spe_short_spans_as_pprof,
    costly_spe.spe_spans_as_short_as_any,
    costly_spe.spe_spans_of_a_byte,
    costly_spools.spool_of_frames_that_begin_again,
    costly_spools.spool_of_magic_numbers,
    costly_spools.spool_of_nested_lists,
    costly_spools.spool_of_small_frames,
    costly_stores.store_of_one_function_in_a_graph,
    costly_stores.store_of_long_names_checked,
    costly_stores.store_of_long_names_compacted,
    costly_stores.store_of_long_names_reported,
    costly_stores.store_of_many_recordings,
    costly_stores.store_of_many_recordings_in_a_graph,
    costly_stores.store_of_one_function_many_times,
]
NAMES = [name for name, build in BUILDERS.items() if build.__module__ in _ALL_OF or build in _SOME]


@pytest.mark.parametrize("name", NAMES)
def test_a_file_costs_what_it_weighs(name: str, tmp_path: Path) -> None:
    folder = tmp_path / "input"
    folder.mkdir()
    command = BUILDERS[name](folder, SIZE_BYTES)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    cost = measure(command, size)
    assert is_affordable(cost, size), (cost, allowed_seconds(size), allowed_bytes(size))
