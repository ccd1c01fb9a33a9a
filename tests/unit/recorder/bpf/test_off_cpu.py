"""Time off a CPU: which of it is sampled, and what is read of the kernel's list of symbols."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tdprof.model.thread_state import ThreadState
from tdprof.recorder.bpf.off_cpu import Scheduler, read_scheduler

BPF = Path(__file__).parents[4] / "bpf"
# bpf/off_cpu.h outside the kernel: waits from a linear congruential generator, and what is sampled of them.
PROGRAM = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <linux/types.h>
#define TDPROF_SETTINGS_H
#define SETTING(which) which##_
#define PERIOD 1000000ULL
#define SETTING_OFF_CPU_PERIOD_ PERIOD
#define SETTING_SCHEDULE_ 0x1000ULL
#define SETTING_SCHEDULE_BYTES_ 0x100ULL
#define SETTING_FIRST_TURN_ 0x5000ULL
#define SETTING_FIRST_TURN_BYTES_ 0x10ULL
static uint64_t state;
static uint32_t bpf_get_prandom_u32(void)
{
	state = state * 6364136223846793005ULL + 1442695040888963407ULL;
	return state >> 32;
}
#include "off_cpu.h"
int main(int argc, char **argv)
{
	if (argc > 2 && argv[1][0] == 'd') {
		__u64 chain[MOST_SCHEDULER_DEPTH];
		for (int i = 2; i < argc; i++)
			chain[i - 2] = strtoul(argv[i], 0, 16);
		printf("%u\\n", scheduler_addresses(chain, (argc - 2) * sizeof(*chain)));
		return 0;
	}
	if (argc > 2 && argv[1][0] == 'u') {
		struct thread_times thread = { .since_ns = 1000, .queued_ns = 70, .state = strtoul(argv[2], 0, 0) };
		pass_unseen_sleep(&thread, strtoull(argv[3], 0, 0), 1600);
		pass_time(&thread, 1600);
		printf("%u", thread.state);
		for (int kind = 0; kind < THREAD_STATES; kind++)
			printf(" %llu", (unsigned long long)thread.spent_ns[kind]);
		return 0;
	}
	if (argc > 2) {
		printf("%u\\n", waiting_state(strtoul(argv[1], 0, 0), argv[2][0] == '1'));
		return 0;
	}
	uint64_t now = 0, waited[THREAD_STATES] = {}, points[THREAD_STATES] = {}, bound = strtoull(argv[argc - 1], 0, 10);
	for (int run = 0; run < 400; run++) {
		struct thread_times thread = { .since_ns = now, .point_ns = random_point() };
		uint64_t off = 0, taken = 0;
		for (int i = 0; i < 200; i++) {
			uint32_t kind = bpf_get_prandom_u32() % THREAD_STATES;
			uint64_t ns = (uint64_t)bpf_get_prandom_u32() * (kind == THREAD_INTERRUPTIBLE ? 3 * bound : bound) >> 32;
			thread.state = kind;
			now += ns;
			pass_time(&thread, now);
			waited[kind] += ns;
			off += kind ? ns : 0;
			points[kind] += thread.due[kind];
			taken += thread.due[kind];
			thread.due[kind] = 0;
			if (thread.due[THREAD_RUNNING] || taken > off / PERIOD + 1 || taken + 1 < off / PERIOD)
				return 1; /* each whole period has one, the last one may */
			if (thread.spent_ns[kind] < ns || thread.position_ns != off % PERIOD)
				return 2;
		}
	}
	for (int kind = 0; kind < THREAD_STATES; kind++)
		printf("%llu %llu\\n", (unsigned long long)waited[kind], (unsigned long long)(points[kind] * PERIOD));
	return 0;
}
"""


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program, compiled."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc to compile it for this machine")
    folder = tmp_path_factory.mktemp("points")
    (folder / "points.c").write_text(PROGRAM)
    subprocess.run(["gcc", "-O1", "-I", BPF, "-o", folder / "points", folder / "points.c"], check=True)
    return folder / "points"


@pytest.mark.parametrize(
    ("kernel_state", "is_preempted", "state"),
    [
        pytest.param(0, False, ThreadState.RUNNABLE, id="yields"),
        pytest.param(1, True, ThreadState.RUNNABLE, id="preempted on its way to sleep"),
        pytest.param(0x1, False, ThreadState.INTERRUPTIBLE, id="S"),
        pytest.param(0x2001, False, ThreadState.INTERRUPTIBLE, id="S, freezable"),
        pytest.param(0x4, False, ThreadState.INTERRUPTIBLE, id="stopped"),
        pytest.param(0x8, False, ThreadState.INTERRUPTIBLE, id="traced"),
        pytest.param(0x402, False, ThreadState.INTERRUPTIBLE, id="I"),
        pytest.param(0x2, False, ThreadState.UNINTERRUPTIBLE, id="D"),
        pytest.param(0x102, False, ThreadState.UNINTERRUPTIBLE, id="killable"),
        pytest.param(0x1000, False, ThreadState.UNINTERRUPTIBLE, id="real-time lock"),
        pytest.param(0x8000, False, ThreadState.UNINTERRUPTIBLE, id="frozen"),
    ],
)
def test_threads_wait_as_proc_tells_it(points: Path, kernel_state: int, is_preempted: bool, state: ThreadState) -> None:
    command = [str(points), hex(kernel_state), str(int(is_preempted))]
    assert int(subprocess.run(command, check=True, capture_output=True).stdout) == state


@pytest.mark.parametrize(
    ("state", "queued_ns", "spent_ns"),
    [
        pytest.param(ThreadState.INTERRUPTIBLE, 270, [0, 200, 400, 0], id="slept, then waited"),
        pytest.param(ThreadState.UNINTERRUPTIBLE, 270, [0, 200, 0, 400], id="for a device"),
        pytest.param(ThreadState.INTERRUPTIBLE, 70, [0, 0, 600, 0], id="woken as it came"),
        pytest.param(ThreadState.INTERRUPTIBLE, 970, [0, 600, 0, 0], id="in the queue for longer than it is recorded"),
        pytest.param(ThreadState.INTERRUPTIBLE, 0, [0, 0, 600, 0], id="the kernel does not count"),
        pytest.param(ThreadState.RUNNABLE, 170, [0, 600, 0, 0], id="seen to be woken"),
    ],
)
def test_who_was_not_seen_to_be_woken_slept_until_it_was_queued(
    points: Path, state: ThreadState, queued_ns: int, spent_ns: list[int]
) -> None:
    """Some kernels run no program where some threads wake others: then the kernel's count tells the time in queues."""
    command = [str(points), "u", str(int(state)), str(queued_ns)]
    now, *spent = map(int, subprocess.run(command, check=True, capture_output=True).stdout.split())
    assert (now, spent) == (ThreadState.RUNNABLE, spent_ns)


@pytest.mark.parametrize(
    ("chain", "depth"),
    [
        pytest.param("70 2000 1000 10ff 2000", 4, id="its own functions, and what runs before them"),
        pytest.param("70 1010 2000 3000 1020 4000", 2, id="interrupted in it"),
        pytest.param("70 5008 2000", 2, id="first turn"),
        pytest.param("70 2000", 0, id="not in it"),
        pytest.param("1000", 1, id="nothing else"),
    ],
)
def test_of_a_call_chain_the_scheduler_is_left_out_where_it_begins(points: Path, chain: str, depth: int) -> None:
    """What is woken in an interrupt of a thread that is waking another was not woken by that."""
    ran = subprocess.run([points, "d", *chain.split()], check=True, capture_output=True)
    assert int(ran.stdout) == depth


@pytest.mark.parametrize("longest_ns", [20_000, 1_500_000, 70_000_000])
def test_each_period_has_one_sample_and_waits_have_their_share(points: Path, longest_ns: int) -> None:
    ran = subprocess.run([points, str(longest_ns)], check=True, capture_output=True, text=True)
    running, *waits = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]
    assert running[1] == 0
    for waited_ns, sampled_ns in waits:
        # Chance does what is left of a period; the generator always begins alike, so this does not vary.
        assert abs(sampled_ns - waited_ns) <= 3 * (waited_ns / 1_000_000) ** 0.5 * 1_000_000


KALLSYMS = """\
ffffffff81000000 T _stext
ffffffff81000100 T __traceiter_sched_exit_tp
ffffffff81001000 t try_to_wake_up.cold
ffffffff81001100 T try_to_wake_up
ffffffff81001900 T wake_up_process
ffffffff81002200 t finish_task_switch.isra.0
ffffffff81002400 T schedule_tail
ffffffff81002480 T sched_exec
ffffffff81002900 t __pfx___schedule
ffffffff81003000 t __schedule
ffffffff81003f60 T schedule
ffffffff81004000 T io_schedule
ffffffffa0000000 t schedule\t[other]
"""


def test_the_scheduler_is_read_of_the_symbols(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text(KALLSYMS)
    wakes, first_turn = (0xFFFFFFFF81001100, 0x800), (0xFFFFFFFF81002400, 0x80)
    switches = ("finish_task_switch.isra.0",)
    assert read_scheduler(path) == Scheduler(0xFFFFFFFF81003000, 0x1000, True, switches, *wakes, *first_turn)
    path.write_text(
        KALLSYMS.replace("__traceiter_sched_exit_tp", "other").replace("3f60 T schedule", "3f60 T reschedule")
    )
    assert read_scheduler(path) == Scheduler(0xFFFFFFFF81003000, 0xF60, False, switches, *wakes, *first_turn)


def test_hidden_addresses_tell_no_scheduler(tmp_path: Path) -> None:
    path = tmp_path / "kallsyms"
    path.write_text("".join("0" * 16 + line[16:] for line in KALLSYMS.splitlines(keepends=True)))
    assert read_scheduler(path) == Scheduler(0, 0, True, ("finish_task_switch.isra.0",))
    assert read_scheduler(tmp_path / "none") == Scheduler(0, 0, False, ())
