# SPDX-License-Identifier: Apache-2.0
"""Files that once cost a product of two of their sizes, read by tdprof within what they may cost.

    .venv/bin/python tools/fuzz/costly_files.py [BYTES] [NAME...]     one MB each, all of them, by default

Prints processor time and the largest resident size of each beside what is allowed, and fails if any is above that.
"""

import own_python  # noqa: F401  # isort: skip
import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from builders import (  # noqa: F401  # register their builders
    costly_captures,
    costly_debug_data,
    costly_go,
    costly_perf_data,
    costly_programs,
    costly_side_tables,
    costly_spe,
    costly_spools,
    costly_stores,
)
from builders.cost import MB, allowed_bytes, allowed_seconds, is_affordable, measure
from builders.costly_files import BUILDERS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size_bytes", nargs="?", type=float, default=MB)
    parser.add_argument("names", nargs="*", help="of " + ", ".join(BUILDERS))
    arguments = parser.parse_args()
    size_bytes = int(arguments.size_bytes)
    failed = []
    for name in arguments.names or BUILDERS:
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary, "input")
            folder.mkdir()
            command = BUILDERS[name](folder, size_bytes)
            size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            cost = measure(command, size)
        if not is_affordable(cost, size):
            failed.append(name)
        print(
            f"{'ok  ' if name not in failed else 'FAIL'} {name}: {size / MB:.2f} MB, {cost.seconds:.1f} of "
            f"{allowed_seconds(size):.0f} s, {cost.peak_bytes / MB:.0f} of {allowed_bytes(size) / MB:.0f} MB",
            flush=True,
        )
    if failed:
        sys.exit(f"costly_files: too costly: {', '.join(failed)}")


if __name__ == "__main__":
    main()
