"""A profile of sleeps, with who ended them."""

from dataclasses import replace

import numpy as np

from builders.profiles import CLOCK, Call, Frame, ProfileBuilder
from tdprof.model.addresses import FileKind
from tdprof.model.events import OFF_CPU, EventInfo, Unit
from tdprof.model.profile import Profile, WakerTable
from tdprof.model.thread_state import ThreadState
from tdprof.profile.wakers import cut_interrupts

EVENTS = (CLOCK, EventInfo(OFF_CPU, Unit.NANOSECONDS, 1_000_000))
_SECOND_NS = 1_000_000_000


def kernel(name: str) -> Call:
    return Call((Frame(name, module="[kernel]"),))


def libc(name: str) -> Call:
    return Call((Frame(name, module="/lib/libc.so.6"),))


def woken(*, push_ns: int = 30) -> Profile:
    """Sleeps that a thread, an interrupt and nobody known have ended, a wait for a CPU, and work.

    ``push`` of the thread feeder ends the first, of so many nanoseconds, in the first second; the others come in the
    next.
    """
    builder = ProfileBuilder(EVENTS)
    asleep = ThreadState.INTERRUPTIBLE
    later = 2 * _SECOND_NS
    builder.add("main", "wait", kernel("futex_wait"), weight=push_ns, count=push_ns, event=1, state=asleep)
    builder.add("main", "nap", kernel("do_nanosleep"), weight=20, count=20, event=1, state=asleep, time_ns=later)
    builder.add("main", "wait", kernel("futex_wait"), weight=10, count=10, event=1, state=asleep, time_ns=later)
    builder.add("main", "wait", kernel("schedule"), weight=5, event=1, state=ThreadState.RUNNABLE, time_ns=later)
    builder.add("main", "work", weight=7, time_ns=later)
    # What stacks wakers have; these rows are taken off again.
    builder.add("main", "push", libc("pthread_cond_signal"), kernel("futex_wake"), weight=1)
    builder.add("other", "spin", kernel("asm_sysvec_x"), kernel("sysvec_x"), kernel("hrtimer_wakeup"), weight=1)
    built = builder.build()
    files = [replace(file, kind=FileKind.KERNEL) if file.path == "[kernel]" else file for file in built.mapped_files]
    columns = {name: getattr(built.samples, name)[:5] for name in type(built.samples).__slots__}
    columns["waker"] = np.array([0, 1, -1, -1, -1], np.int32)
    return replace(
        built,
        mapped_files=files,
        samples=type(built.samples)(**columns),
        wakers=WakerTable(["feeder", "spinner"], built.samples.stack[5:]),
    )


def woken_as_loaded() -> Profile:
    """The same, with interrupts told from threads."""
    return cut_interrupts(woken())
