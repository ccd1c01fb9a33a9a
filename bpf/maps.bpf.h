/* SPDX-License-Identifier: GPL-2.0 */
/* The maps, and how the walk looks into those that user space fills. A part of sample.bpf.c. */

#define PAGE_WORDS 1024
struct page {
	__u32 word[PAGE_WORDS];
};

struct rule_page {
	struct unwind_rule rule[PAGE_WORDS / 2];
};

BPF_TABLE("hash", struct sample_key, struct sample_value, rows_a, 1);
BPF_TABLE("hash", struct sample_key, struct sample_value, rows_b, 1);
/* Of the cache of stacks already sent; a power of two. */
#define STACK_SLOTS (1 << 16)
/* Direct-mapped: a slot holds the hash of the stack that used it last. No locks, so it is safe in an NMI. */
BPF_TABLE("array", __u32, __u64, sent_stacks, STACK_SLOTS);
BPF_TABLE("percpu_array", __u32, struct walk, walks, 1);
BPF_TABLE("percpu_array", __u32, __u64, counters, COUNTERS);
BPF_TABLE("array", __u32, __u32, active, ACTIVE);
/* What overflowed, from an event's own program to the common one. */
BPF_TABLE("percpu_array", __u32, __u32, overflowed, 1);
BPF_TABLE("prog", __u32, __u32, steps, STEPS);
BPF_RINGBUF_OUTPUT(stacks, 1);
/* One for each CPU; too large for a map that is the kernel's own of each CPU. */
BPF_TABLE("array", __u32, struct stack_copy, copy_scratch, 1);
BPF_RINGBUF_OUTPUT(copies, 1);
/* Copies without memory, for which that ring had no room. */
BPF_RINGBUF_OUTPUT(leaves, 1);

/* What user space fills, through its own view of these pages: how to unwind, and which file is mapped where. */
BPF_F_TABLE("array", __u32, struct page, unwind_rows, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct page, unwind_buckets, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct rule_page, unwind_rules, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct sample_mapping, mappings, 1, BPF_F_MMAPABLE);
/* By sample_mapping.first_bucket, less one. */
BPF_TABLE("array", __u32, struct code_heap, code_heaps, MOST_CODE_HEAPS);
/* By process. */
BPF_TABLE("hash", __u32, struct address_space, spaces, 1);
/* By the low bits of a process's number: how often one of them has taken memory where something was known to be. */
BPF_TABLE("array", __u32, __u32, retaken, RETAKEN_SLOTS);
BPF_RINGBUF_OUTPUT(missing, 1);

/* Processes that run CPython: by number, and of one that such a process has started by the address that the kernel
 * keeps its first thread at, until user space tells of it. And CPython's threads: where each has its own structure. */
BPF_TABLE("hash", __u64, struct python_runtime, python_runtimes, 1024);
BPF_TABLE("hash", __u32, struct python_thread, python_threads, 4096);
/* What is known of a process as soon as it executes one of these. */
BPF_TABLE("hash", struct python_program, struct python_runtime, python_programs, 256);
BPF_TABLE("array", __u32, struct exec_places, exec_places, 1);
BPF_TABLE("percpu_array", __u32, struct python_walk, python_walks, 1);
BPF_TABLE("percpu_array", __u32, struct python_code, python_codes, 1);
/* Direct-mapped, as sent_stacks; a power of two, which python_walk.py knows, too. */
#define CODE_SLOTS (1 << 14)
BPF_TABLE("array", __u32, __u64, sent_codes, 1);
BPF_RINGBUF_OUTPUT(python_stacks, 1);
BPF_RINGBUF_OUTPUT(codes, 1);

BPF_TABLE("percpu_array", __u32, struct java_walk, java_walks, 1);
/* As sent_codes; a power of two, which java_walk.py knows, too. */
#define METHOD_SLOTS (1 << 14)
BPF_TABLE("array", __u32, __u64, sent_methods, 1);
BPF_TABLE("array", __u32, __u64, sent_java_codes, 1);
BPF_RINGBUF_OUTPUT(methods, 1);

/* Threads of the processes that are recorded, by the address that the kernel keeps each at: an enum followed. */
BPF_TABLE("hash", __u64, __u32, followed, 1);
/* Threads that user space has named, by number: as named_as has them. */
BPF_TABLE("hash", __u32, __u64, named, 1);
/* By event: the periods of samples of threads that end, from when on the kernel counts no more for them. */
BPF_TABLE("percpu_array", __u32, __u64, ending, 1);

/* Where the time of the threads that are recorded goes, by the address that the kernel keeps each at. */
BPF_TABLE("hash", __u64, struct thread_times, times, 1);
/* Of threads that have ended. */
BPF_RINGBUF_OUTPUT(ended, 1);
/* How long these have run, all together. */
BPF_TABLE("percpu_array", __u32, __u64, ended_run_time, 1);
/* By an enum since, CLOCK_MONOTONIC; 0: not yet, or no more. */
BPF_TABLE("array", __u32, __u64, times_since, SINCES);
BPF_TABLE("percpu_array", __u32, struct last_switch, last_switches, 1);
/* What user space found threads in when time began to be recorded, by number: an enum thread_state. Who slept is there
 * in recordings of control groups alone. */
BPF_TABLE("hash", __u32, __u32, standing, 1);
/* Who was woken before that, and had not been seen, by the address that the kernel keeps each at: when. */
BPF_TABLE("hash", __u64, __u64, early_wakes, 1);
/* Processes (MOVED_PROCESS and their number) and threads that came into the chosen groups or left them, and when
 * anybody did. */
BPF_TABLE("lru_hash", __u64, struct visit, visits, 1);
BPF_TABLE("array", __u32, __u64, last_move, 1);
/* By number, of threads that have left the groups: when the last visit ended whose time is told. */
BPF_TABLE("lru_hash", __u64, __u64, told_visits, 1);
/* Who woke threads whose sleep has a sample, by the address that the kernel keeps each at; until it is taken. */
BPF_TABLE("hash", __u64, struct last_waker, last_wakers, 1);
BPF_RINGBUF_OUTPUT(wakings, 1);

/* Control groups that samples are taken of: by id, those of version 2 by descriptor as well. */
BPF_CGROUP_ARRAY(chosen_v2, MOST_CGROUPS);
BPF_TABLE("hash", __u64, __u32, chosen_ids, MOST_CGROUPS);

static __always_inline int unwind_bucket(struct unwind_tables *tables, __u32 number, __u32 *first_row)
{
	__u32 index = number / PAGE_WORDS;
	const struct page *page = unwind_buckets.lookup(&index);

	if (!page)
		return 1;
	tables->index = number;
	*first_row = page->word[tables->index & (PAGE_WORDS - 1)];
	return 0;
}

static __always_inline int unwind_row(struct unwind_tables *tables, __u32 number, __u32 *row)
{
	__u32 index = number / PAGE_WORDS;
	const struct page *page = unwind_rows.lookup(&index);

	if (!page)
		return 1;
	tables->index = number;
	*row = page->word[tables->index & (PAGE_WORDS - 1)];
	return 0;
}

static __always_inline const struct unwind_rule *unwind_rule_at(__u32 number)
{
	__u32 index = number / (PAGE_WORDS / 2);
	const struct rule_page *page = unwind_rules.lookup(&index);

	return page ? &page->rule[number & (PAGE_WORDS / 2 - 1)] : 0;
}

static __always_inline const struct sample_mapping *mapping_at(__u32 number)
{
	return mappings.lookup(&number);
}

static __always_inline const struct code_heap *code_heap_at(__u32 number)
{
	return code_heaps.lookup(&number);
}
