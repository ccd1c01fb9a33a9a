// SPDX-License-Identifier: GPL-2.0
/*
 * Runs at every overflow of a sampled event: takes the call chains, the thread and the sample's period and adds
 * them up in the kernel. User space swaps two tables and reads the one at rest (tdprof/recorder/bpf/sampler.py).
 *
 * A sample goes through up to 33 programs, each a tail call of the one before: overflow, sample, walk as often as the
 * user stack is deep, copy if there is no table for it yet, java and python where these run, store. Unless `active`
 * says so, there is no walk: the kernel walks the user stack along frame pointers, in by_kernel.
 *
 * Whose samples: all that overflow, or those of some processes and what they start, where events are of whole CPUs.
 *
 * Maps of one entry, and rings of one page, are as large as the loader makes them; settings.h has what else it decides.
 *
 * The files *.bpf.h are parts of this text (tdprof/recorder/bpf/sources.py puts them here), since bcc rewrites the
 * methods of maps in no header.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include "settings.h"
#include "mix.h"
#include "walk_state.h"
#include "off_cpu.h"

#include "maps.bpf.h"

#include "walk.h"
#include "stack_copy.h"

#include "stacks.bpf.h"
#include "tasks.bpf.h"
#include "python.bpf.h"
#include "java.bpf.h"
#include "wakers.bpf.h"

/* Beside the event's index: whether its kernel call chain is taken. */
#define WITH_KERNEL (1U << 31)

static __always_inline void add_row(const struct sample_key *key, __u64 samples, __u64 period)
{
	struct sample_value one = { .count = samples, .weight = samples * period };
	__u32 which = ACTIVE_ROWS;
	__u32 *use_b = active.lookup(&which);
	struct sample_value *value;

	/* Another CPU may insert the row between our look-up and our insertion: then it is there to be added to. */
	if (use_b && *use_b) {
		value = rows_b.lookup(key);
		if (!value && rows_b.insert(key, &one) == 0)
			return;
		if (!value)
			value = rows_b.lookup(key);
	} else {
		value = rows_a.lookup(key);
		if (!value && rows_a.insert(key, &one) == 0)
			return;
		if (!value)
			value = rows_a.lookup(key);
	}
	if (!value) {
		count_all(COUNTER_SAMPLES_MAP_FULL, samples);
		return;
	}
	__sync_fetch_and_add(&value->count, one.count);
	__sync_fetch_and_add(&value->weight, one.weight);
}

/* The last step: adds the sample up; of time off a CPU, those of each state. */
static __always_inline int add_sample(struct walk *walk)
{
	if (SETTING(SETTING_SAMPLED_AT) == AT_OVERFLOW) {
		add_row(&walk->key, 1, walk->period);
		return 0;
	}
	if (SETTING(SETTING_SAMPLED_AT) == AT_WAKING) {
		keep_waker(walk);
		return 0;
	}
	for (__u32 state = THREAD_RUNNABLE; state < THREAD_STATES; state++) {
		if (!walk->due[state])
			continue;
		walk->key.event = SETTING(SETTING_OFF_CPU_EVENT) | state << THREAD_STATE_SHIFT;
		/* The states are in this order: nobody ends the wait for a CPU. */
		if (SETTING(SETTING_WAKERS) && state != THREAD_RUNNABLE && walk->waking)
			walk->key.kernel_stack = walk->waking;
		add_row(&walk->key, walk->due[state], SETTING(SETTING_OFF_CPU_PERIOD));
	}
	return 0;
}

/* Ask user space for the process's mappings, once until it answers. */
static __always_inline void ask_for_mappings(__u32 pid)
{
	struct address_space *space = spaces.lookup(&pid);
	struct address_space none = { .copies_left = MOST_COPIES };
	struct missing_mapping question = { .pid = pid };

	if (!space) {
		if (spaces.insert(&pid, &none))
			return;
		space = spaces.lookup(&pid);
	}
	if (!space || space->is_asked)
		return;
	space->is_asked = 1;
	/* Where there is no room, or another CPU is at the ring while this is an NMI: again at the next sample. */
	if (missing.ringbuf_output(&question, sizeof(question), BPF_RB_FORCE_WAKEUP))
		space->is_asked = 0;
}

/* Get ready for `walk`. */
static __always_inline enum walk_start prepare_walk(struct bpf_perf_event_data *ctx, struct walk *walk)
{
	__u32 which = ACTIVE_WALK;
	__u32 *is_walked = active.lookup(&which);
	enum walk_start start = is_walked && *is_walked ? begin_walk(ctx, walk) : WALK_BY_KERNEL;

	begin_stack(&walk->stack, 0);
	walk->memory.bytes = 0;
	walk->memory.unread = 0;
	walk->mapping.bytes = 0;
	walk->if_lost = UNWIND_END_NO_MAPPING;
	walk->is_called = 0;
	walk->is_lost = 0;
	walk->copied = 0;
	walk->interpreted = 0;
	walk->calls = 0;
	walk->python_calls = 0;
	walk->java_calls = 0;
	walk->java_count = 0;
	walk->java_done = 0;
	walk->space.count = 0;
	if (start == WALK_BEGUN) {
		const struct address_space *space = spaces.lookup(&walk->key.pid);
		__u32 slot = walk->key.pid & (RETAKEN_SLOTS - 1);
		const __u32 *taken = retaken.lookup(&slot);

		if (space && taken && *taken == space->retaken)
			walk->space = *space;
		if (!walk->space.count)
			ask_for_mappings(walk->key.pid);
	}
	return start;
}

/*
 * Leave the user stack to the kernel, by a program of its own: the verifier goes through all that the kernel's walk
 * takes in each program that has it. `end`: what such a stack ends as.
 */
static __always_inline int walk_by_kernel(struct bpf_perf_event_data *ctx, struct walk *walk, __u32 end)
{
	walk->stack.end = end;
	steps.call(ctx, STEP_BY_KERNEL);
	return 0;
}

/* The user stack of a sample that has all else. */
static __always_inline int take_user_stack(struct bpf_perf_event_data *ctx, struct walk *walk)
{
	struct sample_key *key = &walk->key;

	key->user_stack = 0;
	enum walk_start start = SETTING(SETTING_LEAF_ONLY) ? WALK_BY_KERNEL : prepare_walk(ctx, walk);

	if (start == WALK_NO_USER_STACK)
		return add_sample(walk);
	if (start == WALK_BEGUN && walk->space.count)
		steps.call(ctx, STEP_WALK);
	if (start == WALK_BEGUN) /* the process was never seen before */
		steps.call(ctx, STEP_COPY);
	return walk_by_kernel(ctx, walk, start == WALK_BEGUN ? UNWIND_END_NO_TABLE : UNWIND_END_FRAME_POINTERS_ONLY);
}

/* The common program: all that needs no walk. */
int sample(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0, which = ACTIVE_FOLLOW;
	__u32 *event = overflowed.lookup(&zero);
	__u32 *is_filtered = active.lookup(&which);
	struct walk *walk = walks.lookup(&zero);

	if (!event || !walk || !is_filtered)
		return 0;
	if (*is_filtered == FILTER_CGROUPS && !is_in_chosen_cgroup())
		return 0;
	if (*is_filtered == FILTER_THREADS) {
		__u32 number = *event & ~WITH_KERNEL;
		__u32 state = is_followed();
		__u64 *sum = ending.lookup(&number);

		if (state == FOLLOWED_NOT)
			return 0;
		if (state == FOLLOWED_ENDING && sum)
			*sum += ctx->sample_period;
	}
	struct sample_key *key = &walk->key;

	count(COUNTER_SAMPLES);
	if (name_sample(key)) {
		count(COUNTER_SAMPLES_OUTSIDE_NAMESPACE);
		return 0;
	}
	key->event = *event & ~WITH_KERNEL;
	if (SETTING(SETTING_WITH_CPU))
		key->event |= (bpf_get_smp_processor_id() + 1) << SAMPLE_CPU_SHIFT;
	walk->period = ctx->sample_period;
	key->kernel_stack = *event & WITH_KERNEL ? take_kernel_stack(ctx, &walk->stack) : 0;
	return take_user_stack(ctx, walk);
}

/* Note how a walk went; returns whether user space may know more of what the stack leads through. */
static __always_inline int end_walk(struct walk *walk, int end)
{
	struct stack_record *stack = &walk->stack;
	__u64 unread = walk->memory.unread;

	stack->end = end;
	if (walk->is_called && stack->depth &&
	    unwind_is_no_caller(&walk->memory, &walk->state, stack->address[(stack->depth - 1) & 255], end))
		stack->depth -= 1;
	unwind_count_callers(&walk->state, stack->depth);
	stack->by_table = walk->state.methods[UNWIND_BY_TABLE];
	stack->by_fp = walk->state.methods[UNWIND_BY_FP];
	stack->by_lr = walk->state.methods[UNWIND_BY_LR];
	if (walk->java_count &&
	    !walk->java[0].depth) { /* whether it is a guess is known when its frame was looked at */
		walk->guessed_from = stack->guessed_from;
		stack->guessed_from = 1;
		if (stack->depth == 1 && end == UNWIND_END_COMPLETE)
			stack->end = UNWIND_END_JIT;
	}
	/* The last caller is none where its address is in no mapping; so is a guess that led nowhere. */
	if (stack->guessed_from >= stack->depth)
		stack->guessed_from = 0;
	/* Code of which the process has no page in memory now: a guess was refused that a copy is walked by. */
	if (unread && find_mapping(walk, unread - 1)) {
		if (end == UNWIND_END_NO_UNWIND_INFO)
			stack->end = UNWIND_END_UNREADABLE;
		ask_for_mappings(walk->key.pid);
		return 1;
	}
	if (!walk->is_lost)
		return end == UNWIND_END_NO_TABLE;
	/* Where a guess leads, code may have come if a call precedes; else there is none. */
	if (end != UNWIND_END_NO_MAPPING && !unwind_returns_to(&walk->memory, walk->state.pc))
		return 0;
	ask_for_mappings(walk->key.pid);
	return 1;
}

/* Some frames of a user stack; then the same program once more, or the last step. */
static __always_inline int walk_frames(struct bpf_perf_event_data *ctx, int has_heaps, int frames)
{
	__u32 zero = 0;
	struct walk *walk = walks.lookup(&zero);
	int end = 0;

	if (!walk)
		return 0;
	walk->calls += 1;
	for (int frame = 0; frame < frames; frame++) {
		end = walk_frame(walk, has_heaps);
		if (end)
			break;
	}
	if (!end) {
		/* Calls are left for the steps that follow. */
		if (walk->calls + 4 < MOST_TAIL_CALLS)
			steps.call(ctx, STEP_WALK);
		end = UNWIND_END_NO_TABLE; /* too deep for the first program: as if it were not there yet */
	}
	if (end_walk(walk, end))
		steps.call(ctx, STEP_COPY);
	if (has_heaps && walk->java_count)
		steps.call(ctx, STEP_JAVA);
	steps.call(ctx, has_python() ? STEP_PYTHON : STEP_STORE);
	return 0;
}

int walk(struct bpf_perf_event_data *ctx)
{
	return walk_frames(ctx, 0, FRAMES_PER_PROGRAM);
}

/* In its place until the kernel has verified it, which takes a fifth of the time for this. */
int walk_first(struct bpf_perf_event_data *ctx)
{
	return walk_frames(ctx, 0, FIRST_FRAMES_PER_PROGRAM);
}

/* In its place where a JVM runs; apart, since it is twice as much for the verifier. */
int walk_java(struct bpf_perf_event_data *ctx)
{
	return walk_frames(ctx, 1, FRAMES_PER_PROGRAM);
}

/* A user stack that a table leads through only later, if its process may have one more copied. */
int copy(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0, which = ACTIVE_COPY;
	struct walk *walk = walks.lookup(&zero);
	__u32 cpu = bpf_get_smp_processor_id();
	struct stack_copy *copy = copy_scratch.lookup(&cpu);
	__u32 *is_copied = active.lookup(&which);

	if (!walk || !copy || !is_copied)
		return 0;
	struct address_space *space = spaces.lookup(&walk->key.pid);
	/* Other code is there than was said, and nobody has read yet which: the time tells what the leaf is in. */
	int is_retaken = space && space->count && !walk->space.count;

	if (*is_copied && space && (space->copies_left || is_retaken) && begin_walk(ctx, walk) == WALK_BEGUN) {
		copy->identity = mix(mix(mix(0, bpf_ktime_get_ns()), walk->key.tid), cpu) | 1;
		copy->time_ns = bpf_ktime_get_ns();
		copy->pid = walk->key.pid;
		copy_registers(copy, &walk->state);
		if (space->copies_left) {
			space->copies_left -= 1;
			if (send_copy(walk, copy))
				walk->copied = copy->identity;
		}
		if (!walk->copied && is_retaken && send_leaf(copy)) {
			count(COUNTER_STACKS_NOT_COPIED);
			walk->copied = copy->identity;
		}
		if (walk->copied) {
			steps.call(ctx, has_python() ? STEP_PYTHON : STEP_STORE);
			return 0;
		}
	}
	/* What else is missing may be so for ever. */
	if (!walk->stack.end || walk->stack.end == UNWIND_END_NO_TABLE)
		count(COUNTER_STACKS_NOT_COPIED);
	if (walk->stack.depth)
		steps.call(ctx, has_python() ? STEP_PYTHON : STEP_STORE);
	return walk_by_kernel(ctx, walk, UNWIND_END_NO_TABLE);
}

/* A user stack that nothing else leads through: along frame pointers. */
int by_kernel(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct walk *walk = walks.lookup(&zero);

	if (!walk)
		return 0;
	walk->key.user_stack = take_stack(ctx, &walk->stack, BPF_F_USER_STACK, walk->stack.end);
	return add_sample(walk);
}

/* A user stack that was walked to its end. */
int store(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct walk *walk = walks.lookup(&zero);

	if (!walk)
		return 0;
	if (walk->copied) {
		if (walk->interpreted)
			send_python_stack(walk->copied);
		walk->key.user_stack = walk->copied;
		return add_sample(walk);
	}
	__u64 hash = identity_of(&walk->stack, walk->interpreted);

	/* First: who reads the stack has what belongs to it. */
	if (!walk->interpreted || send_python_stack(hash))
		send_stack(&walk->stack, hash);
	walk->key.user_stack = hash;
	return add_sample(walk);
}

/* Of a process that executes another program, or ends: what was mapped is not there any more. */
static __always_inline void forget_process(__u32 pid)
{
	__u64 process = pid;

	spaces.delete(&pid);
	python_runtimes.delete(&process);
}

/* Likewise of the current thread. */
static __always_inline void forget_thread(__u32 tid)
{
	__u64 task = bpf_get_current_task();

	python_threads.delete(&tid);
	python_runtimes.delete(&task);
}

/* A process executes another program. */
int begin_program(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid;

	if (current_thread(&pid, &tid))
		return 0;
	forget_thread(tid);
	if (pid == tid)
		forget_process(pid);
	begin_python_program(ctx->args[2], pid);
	return 0;
}

/*
 * A thread ends; the process with the last one. Where the kernel does not tell how many there are it is with the first:
 * then more of its stacks are copied, until its mappings are read again.
 */
int end_thread(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid;

	if (current_thread(&pid, &tid))
		return 0;
	forget_thread(tid);
	if (SETTING(SETTING_SIGNAL_LIVE) ? !living_threads() : pid == tid)
		forget_process(pid);
	return 0;
}

/*
 * A process takes memory for a new mapping, which was free: what was known to be there is not any more, and may be
 * something else in a moment. (What is mapped over a mapping, by MAP_FIXED, user space learns later.)
 */
int retake(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 start = ctx->args[0], bytes = 0;
	__u32 pid, tid;

	if (start & PAGE_OFFSET_MASK || current_thread(&pid, &tid)) /* nothing was free: the address is an error */
		return 0;
	const struct address_space *space = spaces.lookup(&pid);

	if (!space || !space->count)
		return 0;
	/* `length` of struct vm_unmapped_area_info, behind its flags. */
	bpf_probe_read_kernel(&bytes, sizeof(bytes), (void *)(ctx->args[1] + 8));
	/* The first mapping that ends behind `start`; as many steps as in find_mapping(). */
	__u32 first = space->first, behind = first + space->count, end = behind;

	for (int step = 0; step < 13; step++) {
		if (first >= end)
			break;
		__u32 middle = first + ((end - first) >> 1);
		const struct sample_mapping *candidate = mapping_at(middle);

		if (!candidate)
			return 0;
		if (candidate->start + candidate->bytes > start)
			end = middle;
		else
			first = middle + 1;
	}
	const struct sample_mapping *found = mapping_at(first);
	__u32 slot = pid & (RETAKEN_SLOTS - 1);
	__u32 *taken = retaken.lookup(&slot);

	if (first < behind && found && taken && found->start < start + bytes)
		__sync_fetch_and_add(taken, 1);
	return 0;
}

/*
 * Each event has a program of its own, since nothing in the context names the event: an attach cookie would
 * (Linux 5.15), but the copies of an event that threads inherit do not have it. A Topdown recording has ninety events,
 * so these only say which it is and go on to the common one, which is verified once. The loader makes them out of this
 * one.
 */
int overflow(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	__u32 *event = overflowed.lookup(&zero);

	/* Nothing else can write here in between: the kernel lets no program run while another is interrupted. */
	if (event)
		*event = SETTING(SETTING_EVENT);
	steps.call(ctx, STEP_SAMPLE);
	count(COUNTER_SAMPLES); /* it comes back only where there is no such program: seen, and nowhere in the tables */
	return 0;
}

#include "thread_times.bpf.h"
