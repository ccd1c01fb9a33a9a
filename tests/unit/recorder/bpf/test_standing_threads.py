"""Threads as /proc has them when their time begins to be recorded, and in the end."""

import os
import subprocess
import threading

from tdprof.model.thread_state import ThreadState
from tdprof.recorder.bpf.standing_threads import StandingThread, standing_threads


def test_threads_are_read_of_the_kernel() -> None:
    is_over = threading.Event()
    waiting = threading.Thread(target=is_over.wait)
    waiting.start()
    try:
        # Of a process without a thread nothing is said.
        found = {thread.tid: thread for thread in standing_threads([os.getpid(), 1 << 30])}
        assert waiting.native_id is not None
        own = found[threading.get_native_id()]
        assert own.state is ThreadState.RUNNABLE  # it works, or /proc would not be read
        assert own.run_ns > 0
        assert own.pid == found[waiting.native_id].pid == os.getpid()
        assert {*found} - {thread.tid for thread in standing_threads([os.getpid()], {own.tid})} == {own.tid}
    finally:
        is_over.set()
        waiting.join()


def test_who_has_ended_does_not_stand() -> None:
    with subprocess.Popen(["true"]) as process:
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        assert not [*standing_threads([process.pid])]


def test_who_has_not_run_meanwhile_has_waited() -> None:
    before = StandingThread(1, 1, "work", ThreadState.RUNNABLE, 1000)
    assert before.state_for(4500, before) is ThreadState.RUNNABLE
    assert before._replace(run_ns=5000).state_for(4500, before) is ThreadState.RUNNING
    # Kernels without statistics of schedulers tell neither.
    unknown = before._replace(run_ns=-1)
    assert unknown.state_for(4500, unknown) is ThreadState.RUNNING
    asleep = before._replace(state=ThreadState.UNINTERRUPTIBLE, run_ns=-1)
    assert asleep.state_for(4500, before) is ThreadState.UNINTERRUPTIBLE


def test_who_has_just_been_woken_has_slept() -> None:
    asleep = StandingThread(1, 1, "work", ThreadState.INTERRUPTIBLE, -1)
    woken = asleep._replace(state=ThreadState.RUNNABLE, run_ns=5000)
    assert woken.state_for(4500, asleep) is ThreadState.INTERRUPTIBLE
    assert woken.state_for(1 << 40, None) is ThreadState.INTERRUPTIBLE
    assert woken.state_for(4500, None) is ThreadState.RUNNING
