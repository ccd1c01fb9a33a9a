"""Who ended sleeps: named, and put into call stacks, above what they ended or in its place."""

import re
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tdprof.model.addresses import FileKind
from tdprof.model.arrays import I32, I64, group_rows
from tdprof.model.events import OFF_CPU
from tdprof.model.profile import KeptStacks, Profile, StackTable, WakerTable
from tdprof.model.thread_state import ThreadState
from tdprof.profile.frames import frame_stacks, function_names, number_values
from tdprof.profile.markers import with_markers
from tdprof.text import printable

INTERRUPT = "[interrupt]"
WOKEN_BY = "[woken by]"
NOT_KNOWN, FOR_A_CPU, ON_A_CPU = "[not known]", "[waited for a CPU]", "[on a CPU]"
# Where the kernel enters for what no thread has called: x86 since Linux 5.8 and before, arm64 likewise.
_INTERRUPT_ENTRY = re.compile(
    r"(asm_|__)?sysvec_\w+|(asm_|__)?common_interrupt|do_IRQ|"
    r"(smp_)?(apic_timer|call_function(_single)?|reschedule|irq_work|x86_platform_ipi)_interrupt|"
    r"_*el[01]\w*_(irq|fiq)(_handler)?|_*el[01]_interrupt|gic_handle_irq|do_interrupt_handler"
)
# What threads wake each other by.
_PLUMBING = re.compile(r"(libc|libpthread|libstdc\+\+|libc\+\+|ld-linux[\w-]*|ld-musl-\w+)[.-].*")
_KERNEL = (FileKind.KERNEL, FileKind.KERNEL_MODULE)


def cut_interrupts(profile: Profile) -> Profile:
    """The profile whose wakers that were interrupts are named so: their stacks end where the kernel was entered."""
    if (wakers := profile.wakers) is None or not len(wakers.stack):
        return profile
    locations, stacks = profile.locations, profile.stacks
    is_entry = np.array([bool(_INTERRUPT_ENTRY.fullmatch(name)) for name in profile.functions.linkage_name], bool)
    is_entry &= _is_kernel(profile)
    at_entry = np.logical_or.reduceat(is_entry[locations.frame_function], locations.frame_start[:-1])
    start = stacks.start.astype(np.int64)
    length = np.diff(start)[wakers.stack]
    owner = np.repeat(np.arange(len(length)), length)
    begins = np.cumsum(length) - length
    location = stacks.location[np.arange(len(owner)) - begins[owner] + start[wakers.stack][owner]]
    entries = np.flatnonzero(at_entry[location])[::-1]  # so that the innermost is what stays
    kept = length.copy()
    kept[owner[entries]] = entries - begins[owner[entries]] + 1
    is_interrupt = np.zeros(len(length), bool)
    is_interrupt[owner[entries]] = True
    within = np.arange(len(owner)) - begins[owner] < kept[owner]
    cut = StackTable(
        np.concatenate([stacks.start, stacks.start[-1] + np.cumsum(kept).astype(np.uint32)]),
        np.concatenate([stacks.location, location[within]]),
    )
    # The idle task is none that anybody could look at: it does what CPUs ask each other for.
    names = [
        INTERRUPT if interrupts or name.startswith("swapper/") else name
        for name, interrupts in zip(wakers.thread_name, is_interrupt.tolist(), strict=True)
    ]
    own = np.arange(len(length), dtype=np.int32) + np.int32(len(start) - 1)
    return replace(profile, stacks=cut, wakers=WakerTable(names, own), kept_stacks=KeptStacks())


def _is_kernel(profile: Profile) -> NDArray[np.bool_]:
    """bool[functions]."""
    of_file = np.array([*(file.kind in _KERNEL for file in profile.mapped_files), False], bool)
    found: NDArray[np.bool_] = of_file[profile.functions.mapped_file]
    return found


def sample_wakers(profile: Profile) -> tuple[list[str], I64]:
    """Who ended the sleep of each sample, in words, and int64[samples]: which of them it was."""
    wakers = profile.wakers or WakerTable([], np.empty(0, np.int32))
    texts: dict[str, int] = {NOT_KNOWN: 0, FOR_A_CPU: 1, ON_A_CPU: 2}
    functions = function_names(profile)
    words = zip(_woken_in(profile, wakers).tolist(), wakers.thread_name, strict=True)
    numbers = [texts.setdefault(f"{functions[each]} of {printable(name)}", len(texts)) for each, name in words]
    by_waker = np.array([*numbers, 0], np.int64)
    samples = profile.samples
    names = [event.name for event in profile.events]
    is_off_cpu = samples.event == (names.index(OFF_CPU) if OFF_CPU in names else -1)
    found = by_waker[samples.waker]
    found[samples.state == ThreadState.RUNNABLE] = texts[FOR_A_CPU]
    found[~is_off_cpu] = texts[ON_A_CPU]
    return list(texts), found


def _woken_in(profile: Profile, wakers: WakerTable) -> I32:
    """int32[wakers]: the innermost function of the waker's own program, else of its libraries, else of the kernel."""
    stacks, is_kernel = frame_stacks(profile), np.append(_is_kernel(profile), True)
    of_file = [bool(_PLUMBING.fullmatch(file.path.rpartition("/")[2])) for file in profile.mapped_files]
    is_plumbing = np.append(np.array([*of_file, False], bool)[profile.functions.mapped_file], False)
    # What stands for missing callers has no file, and is no function.
    is_none = np.append(profile.functions.mapped_file < 0, True)
    rank = np.where(is_none, 3, np.where(is_kernel, 2, np.where(is_plumbing, 1, 0)))
    start, length = stacks.start[wakers.stack], np.diff(stacks.start)[wakers.stack]
    owner = np.repeat(np.arange(len(length)), length)
    place = np.arange(len(owner)) - (np.cumsum(length) - length)[owner]
    function = stacks.function[start[owner] + place]
    order, first = group_rows(owner, rank[function], place)
    best = order[first][np.flatnonzero(np.diff(owner[order[first]], prepend=-1))]
    found: I32 = function[best]
    return found


def with_waker_stacks(profile: Profile) -> Profile:
    """The profile with wakers' call stacks in those of the sleeps that they ended.

    From the outermost frame on: the sleep's own stack, `WOKEN_BY`, the waker's from its innermost frame to its
    outermost, and its thread; so a flame graph shows side by side who ended one sleep. Samples without a known waker
    are as they were.
    """
    wakers, samples, stacks = profile.wakers, profile.samples, profile.stacks
    if wakers is None or not (samples.waker >= 0).any():
        return profile
    threads = list(dict.fromkeys(wakers.thread_name))
    locations = len(profile.locations.address)
    thread = np.array([threads.index(name) for name in wakers.thread_name], np.int64)
    rows = np.flatnonzero(samples.waker >= 0)
    pairs, which = number_values(
        samples.waker[rows].astype(np.uint64) << np.uint64(32) | samples.stack[rows].astype(np.uint64)
    )
    waker, sleep = (pairs >> np.uint64(32)).astype(np.int64), (pairs & np.uint64(0xFFFFFFFF)).astype(np.int64)
    # In the table leaf first: the thread, its stack turned over, the mark, the sleep's.
    start = stacks.start.astype(np.int64)
    length = np.diff(start)
    above = wakers.stack[waker].astype(np.int64)
    total = length[above] + length[sleep] + 2
    ends = np.cumsum(total)
    owner = np.repeat(np.arange(len(total)), total)
    place = np.arange(ends[-1]) - (ends - total)[owner]
    mark = length[above][owner] + 1
    index = np.where(
        place < mark,
        start[above][owner] + mark - 1 - place,
        start[sleep][owner] + place - mark - 1,
    )
    is_marker = (place == 0) | (place == mark)
    more = np.append(stacks.location, np.int32(locations))[np.where(is_marker, len(stacks.location), index)]
    more[place == 0] += 1 + thread[waker]
    stack = samples.stack.copy()
    stack[rows] = len(length) + which
    return replace(
        with_markers(profile, [WOKEN_BY, *threads]),
        stacks=StackTable(
            np.concatenate([stacks.start, stacks.start[-1] + ends.astype(np.uint32)]),
            np.concatenate([stacks.location, more.astype(np.int32)]),
        ),
        samples=replace(samples, stack=stack),
        kept_stacks=KeptStacks(),
    )


def with_wakers_alone(profile: Profile) -> Profile:
    """The profile with who ended each sample's sleep, in words, as the whole of its call stack."""
    texts, number = sample_wakers(profile)
    rows, locations = np.arange(len(texts)), len(profile.locations.address)
    return replace(
        with_markers(profile, texts),
        stacks=StackTable(np.append(rows, len(texts)).astype(np.uint32), (locations + rows).astype(np.int32)),
        samples=replace(profile.samples, stack=number.astype(np.int32)),
        wakers=None,
        kept_stacks=KeptStacks(),
    )
