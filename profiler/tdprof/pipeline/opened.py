"""A capture while a command reads it: every part of it is opened once, when it is first wanted."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from tdprof.attribute.address_space import AddressSpaces
from tdprof.attribute.code_files import CodeFiles
from tdprof.capture.manifest import Manifest, State, alterations, read_manifest
from tdprof.capture.tables import gone_tables, read_side_table
from tdprof.linux.limits import raised_descriptor_limit
from tdprof.model.choices import DEFAULT_SYMBOLS, SymbolOptions
from tdprof.pipeline.symbols import ignore_progress, open_symbolizer
from tdprof.text import plural

if TYPE_CHECKING:  # few captures have SPE data, and what reads it is slow to load
    import pyarrow as pa

    from tdprof.attribute.threads import ThreadOwners
    from tdprof.decode.spe.spans import SpeInput
    from tdprof.model.spe import Stages
    from tdprof.pipeline.spe_lines import SpeLines
    from tdprof.symbolize.code_versions import CodeVersions
    from tdprof.symbolize.kernel_symbols import KernelLookup
    from tdprof.symbolize.symbolizer import Symbolizer


class OpenCapture:
    """What all that reads a capture shares; to be closed by its ``with`` block.

    Args:
        folder: the capture.
        symbols: where symbols come from.
        progress: told in a few words what is being waited for.
        most_spe_samples: if SPE's records are wanted as samples too: the most rows of them.
        manifest: the folder's, where it was read already.
        kernel_lookup: as `open_symbolizer` takes it.

    Attributes:
        recorded: the manifest as it stands in the folder, that of an interrupted recording unfinished.
        progress: may be set to another at any time.
        workers: threads for what can be done in parallel.

    Raises:
        TdprofError: not a capture, or of a newer schema.
    """

    def __init__(
        self,
        folder: Path,
        symbols: SymbolOptions = DEFAULT_SYMBOLS,
        progress: Callable[[str], None] = ignore_progress,
        *,
        most_spe_samples: int | None = None,
        manifest: Manifest | None = None,
        kernel_lookup: KernelLookup | None = None,
    ) -> None:
        self.folder = folder
        self.progress = progress
        self.most_spe_samples = most_spe_samples
        self.workers = len(os.sched_getaffinity(0))
        self.recorded = read_manifest(folder) if manifest is None else manifest
        self._symbols = symbols
        self._kernel_lookup = kernel_lookup
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        self._stack.enter_context(raised_descriptor_limit())  # what has symbols stays open
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @functools.cached_property
    def _finished(self) -> tuple[Path, Manifest]:
        if self.recorded.state is State.COMPLETE:
            return self.folder, self.recorded
        from tdprof.pipeline.finish import tables_of_interrupted  # slow to load, and few recordings are

        return self._stack.enter_context(tables_of_interrupted(self.folder, self.recorded))

    @property
    def tables(self) -> Path:
        """The folder with the tables: the capture's, or for an interrupted recording a temporary one.

        Raises:
            TdprofError: of an interrupted recording nothing is left, or no tables can be made.
        """
        return self._finished[0]

    @property
    def manifest(self) -> Manifest:
        """The manifest that goes with ``tables``."""
        return self._finished[1]

    @property
    def has_spe(self) -> bool:
        """Whether SPE records were recorded."""
        return self.recorded.spe is not None

    @functools.cached_property
    def _mappings(self) -> tuple[pa.Table, str]:
        return read_side_table(self.tables, "mappings")

    @functools.cached_property
    def _processes(self) -> tuple[pa.Table, str]:
        return read_side_table(self.tables, "processes")

    @property
    def mappings(self) -> pa.Table:
        """The table of mappings, empty if it cannot be read."""
        return self._mappings[0]

    @property
    def has_mappings(self) -> bool:
        """Whether that table could be read."""
        return not self._mappings[1]

    @property
    def lost_tables(self) -> list[str]:
        """Sentences on what cannot be read of who had what mapped."""
        return [*filter(None, [self._mappings[1], self._processes[1]])]

    @property
    def altered(self) -> list[str]:
        """A sentence where the manifest is not as it was written; else none."""
        return alterations(self.folder, self.recorded)

    @property
    def unreadable(self) -> list[str]:
        """Sentences on what cannot be read, followed or believed of all that says what was recorded."""
        too_many = "mappings or forks are too many to follow: of some processes functions may have no names"
        beyond = self.mapped_files.left_out
        unseen = [f"{plural(beyond, 'mapped file', 's')} too many to look into: their code has no names"] * (beyond > 0)
        gone = gone_tables(self.tables, self.manifest.tables)
        code = [*[too_many] * self.spaces.is_cut, *unseen, *self.symbolizer.unreadable]
        return [*self.altered, *self.lost_tables, *gone, *code]

    @functools.cached_property
    def spaces(self) -> AddressSpaces:
        """Who had what mapped when."""
        return AddressSpaces(self.mappings, self._processes[0])

    @functools.cached_property
    def mapped_files(self) -> CodeFiles:
        """The files of the mappings, numbered."""
        return CodeFiles(self.mappings, self.spaces)

    @functools.cached_property
    def replaced_code(self) -> dict[int, CodeVersions]:
        """Of processes that replaced run-time code and told when, what stood where."""
        return self.symbolizer.code_versions(self.manifest.end_monotonic_ns)

    @functools.cached_property
    def owners(self) -> ThreadOwners:
        """The processes of threads."""
        from tdprof.attribute.threads import ThreadOwners

        return ThreadOwners(self.mappings, self._processes[0])

    @functools.cached_property
    def stages(self) -> Stages:
        """When addresses of each thread's process begin to mean something else."""
        return self.owners.stages(*self.spaces.turns())

    @functools.cached_property
    def symbolizer(self) -> Symbolizer:
        """The symbol sources."""
        # Whoever waits may change while files are open.
        sources = open_symbolizer(self.tables, self._symbols, lambda text: self.progress(text), self._kernel_lookup)
        return self._stack.enter_context(sources)

    @functools.cached_property
    def spe_data(self) -> SpeInput:
        """The SPE data, mapped.

        Raises:
            TdprofError: there is none, or what says where in it each record lies cannot be read.
        """
        from tdprof.decode.spe.capture import open_spe

        return self._stack.enter_context(open_spe(self.folder, self.recorded))

    @functools.cached_property
    def spe_lines(self) -> SpeLines:
        """The SPE records added up, for whatever a command shows of them: the only pass over the AUX bytes.

        Raises:
            TdprofError: as ``spe_data``, or the compiled code that adds up was not built.
        """
        from tdprof.pipeline.spe_lines import add_up_lines

        return add_up_lines(self, self.spe_data)
