// SPDX-License-Identifier: GPL-2.0
/*
 * Runs at every overflow of a sampled event: takes the call chains, the thread and the sample's period and adds
 * them up in the kernel. User space swaps two tables and reads the one at rest (tdprof/recorder/bpf/sampler.py).
 *
 * Compile-time settings, all integers:
 *   ROWS            capacity of each of the two tables of rows
 *   STACK_SLOTS     slots of the cache of stacks already sent, a power of two
 *   RING_PAGES      pages of the ring buffer that carries new stacks, a power of two; PAGE_SIZE is theirs
 *   USE_PIDNS       1: number processes as in the pid namespace PIDNS_DEV, PIDNS_INO
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include "sample.h"

BPF_TABLE("hash", struct sample_key, struct sample_value, rows_a, ROWS);
BPF_TABLE("hash", struct sample_key, struct sample_value, rows_b, ROWS);
/* Direct-mapped: a slot holds the hash of the stack that used it last. No locks, so it is safe in an NMI. */
BPF_TABLE("array", __u32, __u64, sent_stacks, STACK_SLOTS);
BPF_TABLE("percpu_array", __u32, struct stack_record, scratch, 1);
BPF_TABLE("percpu_array", __u32, __u64, counters, COUNTERS);
BPF_TABLE("array", __u32, __u32, active, 1);
/* What overflowed, from an event's own program to the common one. */
BPF_TABLE("percpu_array", __u32, __u32, overflowed, 1);
BPF_TABLE("prog", __u32, __u32, common, 1);
BPF_RINGBUF_OUTPUT(stacks, RING_PAGES);

/* Beside the event's index: whether its kernel call chain is taken. */
#define WITH_KERNEL (1U << 31)

static __always_inline void count(__u32 which)
{
	__u64 *value = counters.lookup(&which);

	if (value)
		*value += 1;
}

/* Multiply and fold each address; 64 bits make an accidental match less likely than a memory error. */
static __always_inline __u64 hash_stack(const struct stack_record *stack)
{
	__u64 hash = 0x9e3779b97f4a7c15ULL + stack->is_kernel;

	for (__u32 i = 0; i < MAX_STACK_DEPTH; i++) {
		if (i >= stack->depth)
			break;
		hash = (hash ^ stack->address[i]) * 0xff51afd7ed558ccdULL;
		hash ^= hash >> 32;
	}
	return hash ? hash : 1;
}

/* Returns the hash of the current call chain, 0 if there is none, and sends it if it was not sent lately. */
static __always_inline __u64 take_stack(struct bpf_perf_event_data *ctx, __u32 is_kernel)
{
	__u32 zero = 0;
	struct stack_record *stack = scratch.lookup(&zero);

	if (!stack)
		return 0;
	long bytes = bpf_get_stack(ctx, stack->address, sizeof(stack->address), is_kernel ? 0 : BPF_F_USER_STACK);

	if (bytes < 0) {
		count(is_kernel ? COUNTER_KERNEL_STACKS_UNREADABLE : COUNTER_USER_STACKS_UNREADABLE);
		return 0;
	}
	if (bytes == 0)
		return 0;
	stack->depth = (__u32)bytes / sizeof(__u64);
	stack->is_kernel = is_kernel;
	/* A walk along frame pointers that has run into zeros is long, but not cut. */
	if (stack->depth >= MAX_STACK_DEPTH && stack->address[MAX_STACK_DEPTH - 1])
		count(COUNTER_STACKS_TRUNCATED);

	__u64 hash = hash_stack(stack);
	__u32 slot = hash & (STACK_SLOTS - 1);
	__u64 *sent = sent_stacks.lookup(&slot);

	if (!sent || *sent == hash)
		return hash;
	stack->hash = hash;
	__u64 size = sizeof(*stack) - sizeof(stack->address) + bytes;

	/*
	 * For the verifier, which has lost the bound on `bytes`. The compiler must not see where `size` comes from: clang 19
	 * and later then check one register and pass another.
	 */
	asm volatile("" : "+r"(size));
	if (size > sizeof(*stack))
		return hash;
	/* No wake-up: user space comes by itself, and waking it from an NMI costs the sampled program. */
	if (stacks.ringbuf_output(stack, size, BPF_RB_NO_WAKEUP) == 0) {
		*sent = hash;
		count(COUNTER_STACKS_SENT);
	} else {
		count(COUNTER_STACKS_NOT_SENT);
	}
	return hash;
}

static __always_inline int add_sample(struct bpf_perf_event_data *ctx, __u32 event, int with_kernel)
{
	struct sample_key key = {};

	count(COUNTER_SAMPLES);
#if USE_PIDNS
	struct bpf_pidns_info ids = {};

	if (bpf_get_ns_current_pid_tgid(PIDNS_DEV, PIDNS_INO, &ids, sizeof(ids))) {
		count(COUNTER_SAMPLES_OUTSIDE_NAMESPACE);
		return 0;
	}
	key.pid = ids.tgid;
	key.tid = ids.pid;
#else
	__u64 ids = bpf_get_current_pid_tgid();

	key.pid = ids >> 32;
	key.tid = (__u32)ids;
#endif
	key.event = event;
	bpf_get_current_comm(key.comm, sizeof(key.comm));
	if (with_kernel)
		key.kernel_stack = take_stack(ctx, 1);
	key.user_stack = take_stack(ctx, 0);

	struct sample_value one = {.count = 1, .weight = ctx->sample_period};
	__u32 zero = 0;
	__u32 *use_b = active.lookup(&zero);
	struct sample_value *value;

	/* Another CPU may insert the row between our look-up and our insertion: then it is there to be added to. */
	if (use_b && *use_b) {
		value = rows_b.lookup(&key);
		if (!value && rows_b.insert(&key, &one) == 0)
			return 0;
		if (!value)
			value = rows_b.lookup(&key);
	} else {
		value = rows_a.lookup(&key);
		if (!value && rows_a.insert(&key, &one) == 0)
			return 0;
		if (!value)
			value = rows_a.lookup(&key);
	}
	if (!value) {
		count(COUNTER_SAMPLES_MAP_FULL);
		return 0;
	}
	__sync_fetch_and_add(&value->count, 1);
	__sync_fetch_and_add(&value->weight, one.weight);
	return 0;
}

/* The common program, which the loader puts into `common`. */
int sample(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	__u32 *event = overflowed.lookup(&zero);

	return event ? add_sample(ctx, *event & ~WITH_KERNEL, *event & WITH_KERNEL) : 0;
}

static __always_inline int hand_over(struct bpf_perf_event_data *ctx, __u32 what)
{
	__u32 zero = 0;
	__u32 *event = overflowed.lookup(&zero);

	/* Nothing else can write here in between: the kernel lets no program run while another is interrupted. */
	if (event)
		*event = what;
	common.call(ctx, 0);
	count(COUNTER_SAMPLES); /* it comes back only where there is no such program: seen, and nowhere in the tables */
	return 0;
}

/*
 * One program for each event, since nothing in the context names the event: an attach cookie would (Linux 5.15), but the
 * copies of an event that threads inherit do not have it. A Topdown recording has ninety events, so these only say
 * which it is and go on to the common one, which is compiled and verified once. The loader adds a line of these per event.
 */
#define SAMPLE_PROGRAM(event, with_kernel)						\
	int sample_##event(struct bpf_perf_event_data *ctx)				\
	{										\
		return hand_over(ctx, (event) | ((with_kernel) ? WITH_KERNEL : 0));	\
	}
