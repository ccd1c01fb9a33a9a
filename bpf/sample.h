/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What sample.bpf.c and its reader (tdprof/decode/bpf_aggregates.py) share. Little-endian, no implicit padding. */
#ifndef TDPROF_SAMPLE_H
#define TDPROF_SAMPLE_H

/* The kernel's default for perf_event_max_stack; a stack this deep may have been cut. */
#define MAX_STACK_DEPTH 127

/* One aggregated row of an interval. */
struct sample_key {
	__u64 user_stack;	/* hash of the user call chain, 0: none */
	__u64 kernel_stack;	/* hash of the kernel call chain, 0: none */
	__u32 pid;		/* thread group, as the recorder's pid namespace numbers it */
	__u32 tid;
	__u32 event;		/* index in the order of -e */
	__u32 reserved;		/* always 0 */
	char comm[16];		/* thread name when sampled: tells apart what ran before and after an exec */
};

struct sample_value {
	__u64 count;		/* overflows */
	__u64 weight;		/* sum of the overflows' periods */
};

/* A call chain on its way to user space, leaf first; sent once and again only after its cache slot was taken. */
struct stack_record {
	__u64 hash;		/* what sample_key refers to it by */
	__u32 depth;		/* addresses that follow */
	__u32 is_kernel;
	__u64 address[MAX_STACK_DEPTH];
};

/* Indices of the per-CPU counters. */
enum counter {
	COUNTER_SAMPLES,		/* overflows seen, in the map or not */
	COUNTER_SAMPLES_MAP_FULL,
	COUNTER_SAMPLES_OUTSIDE_NAMESPACE,
	COUNTER_USER_STACKS_UNREADABLE,
	COUNTER_KERNEL_STACKS_UNREADABLE,
	COUNTER_STACKS_TRUNCATED,
	COUNTER_STACKS_NOT_SENT,	/* ring buffer full or busy; sent again at the stack's next sample */
	COUNTER_STACKS_SENT,
	COUNTERS
};

#endif
