"""What a file may cost: two seconds and ten more for each MB, 300 MB of memory and fifty times its size."""

from pathlib import Path

import pytest

from builders import costly_captures, costly_debug_data  # noqa: F401  # register their builders
from builders.cost import allowed_bytes, allowed_seconds, is_affordable, measure
from builders.costly_files import BUILDERS

SIZE_BYTES = 500_000


@pytest.mark.parametrize("name", BUILDERS)
def test_a_file_costs_what_it_weighs(name: str, tmp_path: Path) -> None:
    command = BUILDERS[name](tmp_path, SIZE_BYTES)
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    cost = measure(command, size)
    assert is_affordable(cost, size), (cost, allowed_seconds(size), allowed_bytes(size))
