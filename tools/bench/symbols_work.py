# SPDX-License-Identifier: Apache-2.0
"""What tools/bench/symbols times: a process of its own that locates addresses. Loads only what a report needs for that.

symbols_work.py cold|cached PROGRAM OFFSETS.npy
"""

import sys
from pathlib import Path

import tdprof.cli.memory  # noqa: F401  # as `report` does, before what loads NumPy  # isort: skip
import numpy as np

from tdprof.model.addresses import MappedFile
from tdprof.symbolize.cache import SymbolCache
from tdprof.symbolize.symbolizer import Symbolizer

mode, program, addresses = sys.argv[1:]
cache = SymbolCache(Path(addresses).parent / "cache") if mode == "cached" else None
with Symbolizer(cache=cache) as symbolizer:
    found = symbolizer.locate(MappedFile(program), np.load(addresses))
print(len(found.function))
