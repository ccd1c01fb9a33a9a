"""What a file may cost: two seconds and ten more for each MB, 300 MB of memory and fifty times its size."""

from pathlib import Path

import pytest

from builders import costly_captures  # noqa: F401  # registers its builders
from builders.cost import allowed_bytes, allowed_seconds, measure
from builders.costly_files import BUILDERS

SIZE_BYTES = 500_000


@pytest.mark.parametrize("name", BUILDERS)
def test_a_file_costs_what_it_weighs(name: str, tmp_path: Path) -> None:
    command = BUILDERS[name](tmp_path, SIZE_BYTES)
    size = max(SIZE_BYTES, sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()))
    cost = measure(command, size)
    # Read, or refused in a line.
    assert cost.status == 0 or (cost.status == 1 and cost.errors.startswith("tdprof: ")), (
        cost.status,
        cost.seconds,
        cost.peak_bytes,
        cost.errors,
    )
    assert cost.seconds <= allowed_seconds(size)
    assert cost.peak_bytes <= allowed_bytes(size)
