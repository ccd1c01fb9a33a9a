"""Keeps the process of a command that reads captures small, its start short. To be loaded before what loads NumPy."""

import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from tdprof.cli.without_threads import with_environment
from tdprof.linux.heap import GLIBCS_BYTES, map_large_blocks

KEPT_BYTES = 4 << 20
"""Memory of a command's smaller columns is used again: the system would clear it for each anew."""

_kept_out: set[str] = set()
_DESCRIPTIONS = "pyarrow.vendored.docscrape"


class _NoDescription(dict[str, list[object]]):
    """What the description of a function's options is read to: no section has a line."""

    def __init__(self, *_: object) -> None:
        super().__init__()

    def __missing__(self, section: str) -> list[object]:
        return []


class _WithoutUnused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Keeps out what Arrow loads and nothing here uses: pandas, and its reader of the descriptions of its hundred
    functions, which it has put together anew in each process."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if fullname in _kept_out:
            raise ModuleNotFoundError("not needed by tdprof", name=fullname)
        return importlib.util.spec_from_loader(fullname, self) if fullname == _DESCRIPTIONS else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__["NumpyDocString"] = _NoDescription  # all that Arrow takes from it


sys.meta_path.insert(0, _WithoutUnused())

# One of Arrow's allocators starts a thread that keeps the scheduling policy of who loads it: idle time alone may be
# its, with locks that others wait for.
with with_environment({"JE_ARROW_MALLOC_CONF": "background_thread:false"}):
    import pyarrow as pa


def take_memory_from_the_system() -> None:
    """For this process: Arrow allocates as all others do, instead of keeping what was freed for itself."""
    pa.set_memory_pool(pa.system_memory_pool())


def keep_process_small(mapped_from_bytes: int = GLIBCS_BYTES) -> None:
    """For this process: columns that are freed go back to the system at once, and pandas stays out.

    Args:
        mapped_from_bytes: memory of smaller columns is used again, which saves clearing it, and stays.
    """
    take_memory_from_the_system()
    map_large_blocks(mapped_from_bytes)
    _kept_out.add("pandas")  # Arrow loads it, where it is installed, on converting to NumPy: 0.3 s
