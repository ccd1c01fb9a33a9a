"""The BPF programs on their way into the kernel: found or compiled, their settings filled in, loaded."""

import errno
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tdprof.errors import TdprofError
from tdprof.linux.limits import unlimited_locked_memory
from tdprof.linux.user_cache import user_cache
from tdprof.recorder.bpf import maps as bpf_maps
from tdprof.recorder.bpf.cache import BpfCache
from tdprof.recorder.bpf.kernel import has_growing_hashes, has_task_registers, is_map_memory_short
from tdprof.recorder.bpf.object_file import (
    BPF_F_NO_PREALLOC,
    BPF_PROG_TYPE_RAW_TRACEPOINT,
    MORE_LOCKED_MEMORY,
    BpfObject,
    Loaded,
    LoadError,
    ObjectLoad,
    Program,
)
from tdprof.recorder.bpf.settings import NO_CGROUPS, NO_OFF_CPU, WITH_KERNEL, Setting, filled_in
from tdprof.recorder.bpf.sources import checksums, compiler_request, folder_of_sources, shipped_object
from tdprof.recorder.bpf.table_sizes import QUESTIONS_BYTES, TableSizes
from tdprof.recorder.bpf.task_filter import FOLLOWERS, most_followed
from tdprof.recorder.bpf.walk_load import TRACEPOINTS
from tdprof.recorder.call_graph import CallGraph
from tdprof.recorder.host import is_in_initial_pid_namespace
from tdprof.recorder.stop_signals import hear_no_signals
from tdprof.recorder.urgency import soon_switched
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.recorder.bpf.compiler_process import CompilerProcess
    from tdprof.recorder.bpf.off_cpu import OffCpu, OffCpuPlan
    from tdprof.recorder.bpf.sampler import BpfSampler


# Large enough for the largest trees of processes. What samples are added up in has its memory before they come.
GROWING = frozenset({"followed", "named", "spaces", "standing", "python_runtimes", "python_threads"})


# Few recordings meet what `python` and `java` are for, or time threads; `walk` comes after `walk_first`.
_FIRST = ("sample", "copy", "store", "by_kernel", *TRACEPOINTS, *FOLLOWERS)


class BpfUnavailableError(Exception):
    """BPF cannot be used here; the text says why, for the capture and the user."""


_NOT_LOADED = (LoadError, BpfUnavailableError, OSError, TdprofError)


@dataclass(frozen=True, slots=True)
class _InKernel:
    """What a sampler takes over: instructions, what was loaded of them, and what times threads."""

    programs: BpfObject
    loaded: Loaded
    off_cpu: "OffCpu | None"

    def close(self) -> None:
        if self.off_cpu:
            self.off_cpu.close()
        self.loaded.close()


class _Verification:
    """A load in a thread: it takes the kernel's verifier about as long as Python takes to load the recorder.

    What else there is to do comes before, in the caller's thread: each of a hundred system calls would wait for the
    other thread's Python.
    """

    def __init__(self, prepare: "Callable[[], _Preparation]") -> None:
        self._done: _InKernel | None = None
        self._error: Exception | None = None
        self._thread: threading.Thread | None = None
        try:
            self._prepared = prepare()
        except _NOT_LOADED as error:
            self._error = error
            return
        begun = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(begun,), daemon=True)
        self._thread.start()
        begun.wait()  # else the threads would wait for this one's Python, several times

    def _run(self, begun: threading.Event) -> None:
        hear_no_signals()
        try:
            with soon_switched():  # between two calls of the kernel
                self._done = self._prepared.load(begun.set)
        except _NOT_LOADED as error:
            self._error = error
        finally:
            begun.set()

    def _await(self) -> None:
        if self._thread:
            self._thread.join()

    def result(self) -> _InKernel:
        """What was loaded. Raises what prevented it."""
        self._await()
        if self._error is not None:
            raise self._error
        assert self._done
        return self._done

    def give_up(self) -> None:
        """Close what nobody takes over."""
        self._await()
        if self._done is not None:
            self._done.close()


@dataclass(frozen=True, slots=True)
class _Preparation:
    """What is ready for the verifier.

    Attributes:
        programs: all that there are, and what they are told.
        begun: those that are loaded first, and the maps.
        off_cpu: how time off a CPU is sampled, if it is.
    """

    programs: BpfObject
    begun: ObjectLoad
    off_cpu: "OffCpuPlan | None"

    def load(self, on_begun: Callable[[], object] = lambda: None) -> _InKernel:
        """Load the programs; ``on_begun`` as of `ObjectLoad.finish`.

        Raises:
            LoadError, BpfUnavailableError: the kernel refuses one; nothing stays open.
            OSError: more files may not be open.
        """
        loaded = self.begun.finish(on_begun)
        if not self.off_cpu:
            return _InKernel(self.programs, loaded, None)
        from tdprof.recorder.bpf.off_cpu import OffCpu

        plan, plain = self.off_cpu, self.programs
        typed, at_switch = _told(plain, plan.typed), _told(plain, plan.at_switch)
        at_waking = _told(plain, plan.at_waking) if plan.has_wakers else None
        try:
            with unlimited_locked_memory():  # until Linux 5.11, as the first ones
                return _InKernel(plain, loaded, OffCpu(plain, typed, at_switch, at_waking, loaded.maps, plan))
        except (LoadError, OSError) as error:
            loaded.close()
            _check_descriptors(error)
            raise BpfUnavailableError(f"time off a CPU cannot be sampled: {error}") from error


class BpfLoad:
    """A load under way: compiled when the wheel was built, by an earlier run, or now, while the caller prepares."""

    def __init__(
        self,
        with_kernel: Sequence[bool],
        sizes: TableSizes,
        call_graph: CallGraph = CallGraph.AUTO,
        cgroups: dict[Setting, int] = NO_CGROUPS,
        off_cpu: "OffCpuPlan | None" = None,
        *,
        has_cpus: bool = False,
    ) -> None:
        """Begin.

        Args:
            with_kernel: for each event, whether its kernel call chain is taken.
            sizes: capacities of the maps.
            call_graph: how user stacks are taken.
            cgroups: how samples name their control groups.
            off_cpu: how time off a CPU is sampled; None: not at all.
            has_cpus: whether rows say on which CPU they were sampled.
        """
        self._cgroups = cgroups
        self._off_cpu = off_cpu
        self._has_cpus = has_cpus
        self._sizes = sizes
        self._call_graph = call_graph
        self._with_kernel = with_kernel
        self._cache = BpfCache(user_cache("bpf"))
        self._folder, self._machine = folder_of_sources(), os.uname().machine
        self._shipped = shipped_object(self._folder, self._machine)
        self._cached: BpfObject | None = None
        self._to_store: BpfObject | None = None
        self._compiler: CompilerProcess | None = None
        if self._shipped is None:
            # All that the compiler's answer depends on.
            self._key = {"machine": self._machine, "sources": checksums(self._folder)}
            self._cached = self._cache.load(self._key)
            if self._cached is None:
                self._start_compiler()
        there = self._shipped or self._cached
        self._under_way = _Verification(lambda: self._prepare(there)) if there else None

    def _start_compiler(self) -> None:
        from tdprof.recorder.bpf.compiler_process import CompilerProcess  # what it needs is slow to load

        self._compiler = CompilerProcess()
        self._compiler.ask(compiler_request(self._folder, self._machine))

    def finish(self) -> "BpfSampler":
        """Wait for the programs.

        Raises:
            BpfUnavailableError: no bcc, or the kernel refuses the program.
            OSError: more files may not be open.
        """
        under_way, self._under_way = self._under_way, None
        try:
            if under_way is not None:
                try:
                    return self._sampler(under_way.result())
                except LoadError as error:
                    if self._shipped is not None:
                        raise
                    _check_descriptors(error)
                    self._start_compiler()
            compiled = self._compiled()
            sampler = self._sampler(self._prepare(compiled).load())
        except LoadError as error:
            _check_descriptors(error)
            raise BpfUnavailableError(f"the BPF program did not load: {error}") from error
        self._to_store = compiled
        return sampler

    def _prepare(self, found: BpfObject) -> _Preparation:
        """Create the maps. Raises LoadError."""
        sizes = {"rows_a": self._sizes.rows, "rows_b": self._sizes.rows, "stacks": self._sizes.ring_bytes}
        sizes |= {"copies": self._sizes.copies_bytes, "copy_scratch": bpf_maps.possible_cpus()}
        sizes |= {"leaves": self._sizes.leaves_bytes, "missing": QUESTIONS_BYTES} | self._sizes.arrays.entries()
        if self._sizes.named_threads:
            sizes |= {"named": self._sizes.named_threads, "followed": most_followed(), "ending": len(self._with_kernel)}
        if self._off_cpu:
            sizes |= self._off_cpu.maps()
        types = dict.fromkeys([*TRACEPOINTS, *FOLLOWERS], BPF_PROG_TYPE_RAW_TRACEPOINT)
        settings = _settings(self._call_graph, has_cpus=self._has_cpus) | NO_CGROUPS | self._cgroups | NO_OFF_CPU
        # All CPUs together an eighth of the ring.
        settings[Setting.COPIES_WAKEUP] = self._sizes.copies_bytes // (8 * bpf_maps.possible_cpus())
        if self._off_cpu:
            settings |= self._off_cpu.settings
        programs = _with_settings(_with_growing_hashes(found), settings, self._with_kernel)
        first = {*_FIRST, *(["walk_first"] if self._wants_walk else [])}
        wanted = [each for each in programs.programs if each.name in first or each.name.startswith("sample_")]
        optional = ("walk_first", "copy", *TRACEPOINTS, *FOLLOWERS)
        begun = ObjectLoad(replace(programs, programs=wanted), sizes, types, optional)
        return _Preparation(programs, begun, self._off_cpu)

    @property
    def _wants_walk(self) -> bool:
        return self._call_graph.is_by_tables

    def _sampler(self, there: _InKernel) -> "BpfSampler":
        from tdprof.recorder.bpf.sampler import BpfSampler  # meanwhile the kernel verifies

        return BpfSampler(
            there.programs,
            there.loaded,
            len(self._with_kernel),
            self._sizes,
            wants_walk=self._wants_walk,
            off_cpu=there.off_cpu,
        )

    def _compiled(self) -> BpfObject:
        assert self._compiler
        answer, lines = self._compiler.answer()
        if "error" not in answer:
            try:
                return BpfObject.from_json(answer)
            except ValueError as error:
                raise BpfUnavailableError(f"what bcc compiled cannot be loaded: {error}") from error
        if answer["stage"] == "import":
            raise BpfUnavailableError("bcc is not installed (apt-get install python3-bpfcc)")
        if is_map_memory_short():
            raise BpfUnavailableError(f"its maps take {MORE_LOCKED_MEMORY}")  # bcc makes them, too
        raise BpfUnavailableError(why_not_compiled(lines or [answer["error"]]))

    def close(self) -> None:
        """Reap the compiler and keep what it made. Once the events run: it takes a hundredth of a second to end."""
        if self._under_way is not None:
            self._under_way.give_up()
            self._under_way = None
        if self._to_store is not None:
            self._cache.store(self._key, self._to_store)
            self._to_store = None
        if self._compiler is not None:
            self._compiler.close()
            self._compiler = None


def _check_descriptors(error: LoadError | OSError) -> None:
    """Raises OSError where all that is missing are descriptors: that the user can mend, and BPF is there."""
    cause = error if isinstance(error, OSError) else error.__cause__
    if isinstance(cause, OSError) and cause.errno in (errno.EMFILE, errno.ENFILE):
        raise cause


def why_not_compiled(lines: Sequence[str]) -> str:
    """What of a compiler process's output says why it made nothing: clang's first error, else the last line."""
    if errors := [line for line in lines if ": error: " in line]:
        return f"the BPF program did not compile: {errors[0]}"
    return f"bcc cannot make the BPF program: {lines[-1].strip()}"  # it makes maps of those that it compiles


def _with_growing_hashes(found: BpfObject) -> BpfObject:
    """The object with maps of threads and processes that take memory as they fill, where the kernel lets them."""
    if not has_growing_hashes():
        return found
    maps = [
        replace(spec, flags=spec.flags | BPF_F_NO_PREALLOC) if spec.name in GROWING else spec for spec in found.maps
    ]
    return replace(found, maps=maps)


def _settings(call_graph: CallGraph, *, has_cpus: bool) -> dict[Setting, int]:
    """What the programs are told of this machine and this recording."""
    namespace = os.stat("/proc/self/ns/pid")
    return {
        Setting.PIDNS_DEVICE: namespace.st_dev,
        Setting.PIDNS_INODE: 0 if is_in_initial_pid_namespace() else namespace.st_ino,
        Setting.LEAF_ONLY: int(call_graph is CallGraph.NONE),
        Setting.HAS_TASK_REGISTERS: int(has_task_registers()),
        Setting.WITH_CPU: int(has_cpus),
    }


def _with_settings(found: BpfObject, settings: Mapping[Setting, int], with_kernel: Sequence[bool]) -> BpfObject:
    """The object with what its programs are told, and a copy of the event's own program for each event."""
    programs = [program for program in found.programs if program.name != "overflow"]
    [overflow] = [program for program in found.programs if program.name == "overflow"]
    for event, kernel in enumerate(with_kernel):
        what = {Setting.EVENT: event | (WITH_KERNEL if kernel else 0)}
        programs.append(Program(f"sample_{event}", filled_in(overflow.code, what)))
    return replace(found, programs=programs, settings=settings)


def _told(found: BpfObject, settings: Mapping[Setting, int]) -> BpfObject:
    """The object with some other settings."""
    return replace(found, settings={**found.settings, **settings})
