# SPDX-License-Identifier: Apache-2.0
"""Seeds for tools/fuzz/spe: the vectors of the tests, and some records in every layout."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from builders import spe  # noqa: E402

folder = Path(sys.argv[1])
for vector in json.loads((ROOT / "tests/golden/spe/vectors.json").read_text()):
    (folder / vector["id"]).write_bytes(bytes.fromhex(vector["bytes"]))
for name, layout in spe.LAYOUTS.items():
    for timestamps in (True, False):
        data, _ = spe.write_stream(spe.program(12, 7, timestamps=timestamps), layout)
        (folder / f"{name}-{timestamps}").write_bytes(data)
