"""What a worker does, in this process or on another machine: captures in, roll-ups in the store, a small table back."""

import functools
import gc
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pyarrow as pa

from tdprof.errors import TdprofError
from tdprof.fleet.rollup import roll_up
from tdprof.fleet.sources import UnreachableError, brought_here
from tdprof.fleet.store import Store
from tdprof.linux.heap import use_blocks_again
from tdprof.model.choices import SymbolOptions
from tdprof.native.library import load_native
from tdprof.pipeline.opened import OpenCapture
from tdprof.text import printable
from tdprof.values import dataclass

# What one capture takes serves the next: as much again as a capture of 5 MB takes.
_KEPT_BYTES = 512 << 20

# No file can lie below it, so that no path that a stranger's capture names leads anywhere.
NO_FILES = Path(os.devnull)

OUTCOMES = pa.schema(
    [
        pa.field("source", pa.binary(), nullable=False),  # a path may be any bytes
        pa.field("reason", pa.string()),  # why it was set aside; null: it is in the store
        pa.field("host", pa.string(), nullable=False),
        pa.field("date", pa.string(), nullable=False),
        pa.field("samples", pa.int64(), nullable=False),
        pa.field("known_samples", pa.int64(), nullable=False),
        pa.field("no_spe", pa.string(), nullable=False),  # why its SPE data was left out; "" if it was not
        pa.field("damage", pa.string(), nullable=False),  # what else of it could not be read; "" if all could
    ]
)


@dataclass(frozen=True, slots=True)
class WorkOptions:
    """What a worker has to know beside the captures.

    Attributes:
        store: its place.
        labels: NAME=VALUE each.
        symfs: a folder with the recorded machines' files; empty: no path is opened that a capture names.
        debug_dirs: folders with debug data by build-id.
        use_cache: whether what is read of debug data is kept.
    """

    store: str
    labels: Sequence[str] = ()
    symfs: str = ""
    debug_dirs: Sequence[str] = ()
    use_cache: bool = True

    def to_json(self) -> str:
        """As text for another process."""
        return json.dumps(asdict(self))

    @property
    def symbols(self) -> SymbolOptions:
        """Where symbols come from."""
        # Build-ids are looked up in the system's folder even where no path is.
        system = () if self.symfs else (Path("/usr/lib/debug"),)
        return SymbolOptions(
            Path(self.symfs) if self.symfs else NO_FILES,
            (*map(Path, self.debug_dirs), *system),
            use_cache=self.use_cache,
        )


def roll_up_captures(sources: Sequence[str], options: str) -> bytes:
    """Put the roll-ups of some captures into the store; done twice it leaves what it left the first time.

    Args:
        sources: folders of captures.
        options: `WorkOptions` as JSON.

    Returns:
        ``OUTCOMES`` as an Arrow IPC stream. What cannot be read is named there.

    Raises:
        TdprofError: the store cannot be written to, where captures lie does not answer, or tdprof is not whole here.
    """
    load_native()  # else it would be missed in the middle of a capture, which would be blamed
    chosen = WorkOptions(**json.loads(options))
    store = Store(chosen.store)
    _keep_blocks()
    rows = []
    for source in sources:
        rows.append(_roll_up_one(store, source, chosen))
        # What a capture's values hold of each other would stay until there are very many objects, and of tables they
        # are few: memory would grow with the number of captures.
        gc.collect()
        _keep_modules()
    sink = pa.BufferOutputStream()
    table = pa.Table.from_pylist(rows, OUTCOMES)
    with pa.ipc.new_stream(sink, OUTCOMES) as writer:
        writer.write_table(table)
    content: bytes = sink.getvalue().to_pybytes()
    return content


@functools.cache
def _keep_blocks() -> None:
    """Once in a process: to have the kernel clear memory anew for each capture takes half as long as reading it."""
    pa.set_memory_pool(pa.system_memory_pool())
    use_blocks_again(_KEPT_BYTES)


@functools.cache
def _keep_modules() -> None:
    """Once in a process, when all that is used is loaded: collections need not look through it again."""
    gc.freeze()


def read_outcomes(content: bytes) -> list[dict[str, Any]]:
    """What `roll_up_captures` returned: a row of ``OUTCOMES`` for each capture."""
    with pa.ipc.open_stream(content) as reader:
        return [{**row, "source": os.fsdecode(row["source"])} for row in reader.read_all().to_pylist()]


def _roll_up_one(store: Store, source: str, options: WorkOptions) -> dict[str, object]:
    try:
        with brought_here(source) as folder, OpenCapture(folder, options.symbols) as capture:
            made = roll_up(capture, options.labels)
    except UnreachableError:
        raise
    except MemoryError:
        return _rejected(source, "it takes more memory than there is")
    except TdprofError as error:
        return _rejected(source, error.message)
    except Exception as error:  # whatever a stranger's capture breaks, the others go on, and it is named
        return _rejected(source, f"it cannot be read ({type(error).__name__}: {error})")
    store.write(made.stem, made.tables)
    known = int(sum(made.tables["recordings"]["known_samples"].to_pylist()))
    return {
        "source": os.fsencode(source),
        "reason": None,
        "host": made.stem.host_name,
        "date": made.stem.date,
        "samples": made.samples,
        "known_samples": known,
        "no_spe": _words(made.no_spe),
        "damage": _words(made.damage),
    }


def _rejected(source: str, reason: str) -> dict[str, object]:
    nothing = {"host": "", "date": "", "samples": 0, "known_samples": 0, "no_spe": "", "damage": ""}
    return {"source": os.fsencode(source), "reason": _words(reason), **nothing}


def _words(reason: str) -> str:
    return printable(reason)[:1000]
