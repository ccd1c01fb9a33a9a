# SPDX-License-Identifier: Apache-2.0
"""Seeds for tools/fuzz/go-lines: small tables of each format.

python go_lines_seeds.py FOLDER
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
from builders.go_table import GoCode, GoFunction, go_table


def main(folder: Path) -> None:
    inlined = GoFunction(
        "main.f", 0, [GoCode(16, 0, 7), GoCode(8, 1, 21, 0), GoCode(8, 1, 30, 1)], [("a", 8), ("b", 20)]
    )
    plain = GoFunction("main.g", 32, [GoCode(48, 0, 40)])
    for version in ("1.16", "1.18", "1.20"):
        table, trees = go_table([inlined, plain], ["main.go", "other.go"], version, 0)
        (folder / version).write_bytes(table + trees)
        # The target looks for trees in the middle.
        (folder / f"{version}-with-trees").write_bytes(table + trees + bytes(len(table) - len(trees)))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
