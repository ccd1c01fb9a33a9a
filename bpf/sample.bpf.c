// SPDX-License-Identifier: GPL-2.0
/*
 * Runs at every overflow of a sampled event: takes the call chains, the thread and the sample's period and adds
 * them up in the kernel. User space swaps two tables and reads the one at rest (tdprof/recorder/bpf/sampler.py).
 *
 * A sample goes through up to 33 programs, each a tail call of the one before: overflow, sample, walk as often as the
 * user stack is deep, copy if there is no table for it yet, python where that runs, store. Unless `active` says so,
 * there is no walk: the kernel walks the user stack along frame pointers.
 *
 * Whose samples: all that overflow, or those of some processes and what they start, where events are of whole CPUs.
 *
 * Maps of one entry, and rings of one page, are as large as the loader makes them; settings.h has what else it decides.
 */
#include <linux/bpf.h>
#include <linux/bpf_perf_event.h>
#include "settings.h"
#include "walk_state.h"
#include "off_cpu.h"

/* Elements of the tables: large, because the kernel rounds each up to eight bytes. */
#define PAGE_WORDS 1024
struct page {
	__u32 word[PAGE_WORDS];
};

struct rule_page {
	struct unwind_rule rule[PAGE_WORDS / 2];
};

BPF_TABLE("hash", struct sample_key, struct sample_value, rows_a, 1);
BPF_TABLE("hash", struct sample_key, struct sample_value, rows_b, 1);
/* Of control groups of version 1 above each other. */
#define MOST_LEVELS 32
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

/* What user space fills, through its own view of these pages: how to unwind, and which file is mapped where. */
BPF_F_TABLE("array", __u32, struct page, unwind_rows, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct page, unwind_buckets, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct rule_page, unwind_rules, 1, BPF_F_MMAPABLE);
BPF_F_TABLE("array", __u32, struct sample_mapping, mappings, 1, BPF_F_MMAPABLE);
/* By process. */
BPF_TABLE("hash", __u32, struct address_space, spaces, 1);
BPF_RINGBUF_OUTPUT(missing, 1);

/* Processes that run CPython, by number, and its threads: where each has its own structure. */
BPF_TABLE("hash", __u32, struct python_runtime, python_runtimes, 256);
BPF_TABLE("hash", __u32, __u64, python_threads, 4096);
BPF_TABLE("percpu_array", __u32, struct python_walk, python_walks, 1);
BPF_TABLE("percpu_array", __u32, struct python_code, python_codes, 1);
/* Direct-mapped, as sent_stacks. */
#define CODE_SLOTS (1 << 14)
BPF_TABLE("array", __u32, __u64, sent_codes, CODE_SLOTS);
BPF_RINGBUF_OUTPUT(python_stacks, 1);
BPF_RINGBUF_OUTPUT(codes, 1);

/* Threads of the processes that are recorded, by the address that the kernel keeps each at: an enum followed. */
BPF_TABLE("hash", __u64, __u32, followed, 1);
/* Threads that user space has named, by number: an enum follow. */
BPF_TABLE("hash", __u32, __u32, named, 1);
/* By event: the periods of samples of threads that end, from when on the kernel counts no more for them. */
BPF_TABLE("percpu_array", __u32, __u64, ending, 1);

/* Where the time of the threads that are recorded goes, by the address that the kernel keeps each at. */
BPF_TABLE("hash", __u64, struct thread_times, times, 1);
/* Of threads that have ended. */
BPF_RINGBUF_OUTPUT(ended, 1);
/* When time began to be recorded, CLOCK_MONOTONIC; 0: not yet, or no more. */
BPF_TABLE("array", __u32, __u64, times_since, 1);
BPF_TABLE("percpu_array", __u32, struct last_switch, last_switches, 1);

/* Control groups that samples are taken of: those of version 2 by descriptor, of version 1 by id. */
BPF_CGROUP_ARRAY(chosen_v2, MOST_CGROUPS);
BPF_TABLE("hash", __u64, __u32, chosen_v1, MOST_CGROUPS);

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

#include "walk.h"
#include "stack_copy.h"

/* Beside the event's index: whether its kernel call chain is taken. */
#define WITH_KERNEL (1U << 31)

static __always_inline void count_all(__u32 which, __u64 number)
{
	__u64 *value = counters.lookup(&which);

	if (value)
		*value += number;
}

static __always_inline void count(__u32 which)
{
	count_all(which, 1);
}

static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
	return hash ^ hash >> 32;
}

#include "python_walk.h"

/* What a slot of sent_stacks or sent_codes holds of a hash: each segment of a recording is sent what it needs anew. */
static __always_inline __u64 in_segment(__u64 hash)
{
	__u32 which = ACTIVE_SEGMENT;
	__u32 *segment = active.lookup(&which);

	return segment ? hash ^ (__u64)*segment << 32 : hash;
}

static __always_inline int was_sent(__u64 code)
{
	__u32 slot = code & (CODE_SLOTS - 1);
	__u64 *sent = sent_codes.lookup(&slot);

	return !sent || *sent == in_segment(code);
}

static __always_inline void send_code(struct python_code *code, __u64 bytes)
{
	__u32 slot = code->code & (CODE_SLOTS - 1);
	__u64 *sent = sent_codes.lookup(&slot);

	if (!sent || bytes > sizeof(*code) || codes.ringbuf_output(code, bytes, BPF_RB_NO_WAKEUP))
		return; /* at its next sample */
	*sent = in_segment(code->code);
}

/* Multiply and fold each word; 64 bits make an accidental match less likely than a memory error. */
static __always_inline __u64 hash_stack(const struct stack_record *stack)
{
	const __u64 *header = (const __u64 *)stack;
	__u64 hash = mix(mix(0x9e3779b97f4a7c15ULL, header[1]), header[2]);

	for (__u32 i = 0; i < MAX_STACK_DEPTH; i++) {
		if (i >= stack->depth)
			break;
		hash = mix(hash, stack->address[i]);
	}
	return hash ? hash : 1;
}

/* The hash of a call chain and, unless 0, of the interpreter's frames beside it. */
static __always_inline __u64 identity_of(const struct stack_record *stack, __u64 interpreted)
{
	__u64 hash = hash_stack(stack);

	return interpreted ? mix(hash, interpreted) | 1 : hash;
}

/* Returns `hash`, which is the call chain's, and sends that if it was not sent lately. */
static __always_inline __u64 send_stack(struct stack_record *stack, __u64 hash)
{
	__u32 slot = hash & (STACK_SLOTS - 1);
	__u64 *sent = sent_stacks.lookup(&slot);

	if (!sent || *sent == in_segment(hash))
		return hash;
	stack->hash = hash;
	__u64 size = sizeof(*stack) - sizeof(stack->address) + stack->depth * sizeof(stack->address[0]);

	/*
	 * For the verifier, which does not know the bound on `depth`. The compiler must not see where `size` comes
	 * from: clang 19 and later then check one register and pass another.
	 */
	asm volatile("" : "+r"(size));
	if (size > sizeof(*stack))
		return hash;
	/* No wake-up: user space comes by itself, and waking it from an NMI costs the sampled program. */
	if (stacks.ringbuf_output(stack, size, BPF_RB_NO_WAKEUP) == 0) {
		*sent = in_segment(hash);
		count(COUNTER_STACKS_SENT);
	} else {
		count(COUNTER_STACKS_NOT_SENT);
	}
	return hash;
}

static __always_inline void begin_stack(struct stack_record *stack, __u32 is_kernel)
{
	stack->depth = 0;
	stack->is_kernel = is_kernel;
	stack->end = 0;
	stack->guessed_from = 0;
	stack->by_table = 0;
	stack->by_fp = 0;
	stack->by_lr = 0;
}

/* Where a thread waits every call chain begins alike; returns how many addresses that are. */
static __always_inline __u32 scheduler_depth(struct bpf_perf_event_data *ctx, struct stack_record *stack)
{
	long bytes = bpf_get_stack(ctx, stack->address, MOST_SCHEDULER_DEPTH * sizeof(__u64), 0);
	__u32 depth = 0;

	if (!SETTING(SETTING_SCHEDULE_BYTES))
		return 0;
	for (__u32 i = 0; i < MOST_SCHEDULER_DEPTH; i++) {
		if ((long)(i * sizeof(__u64)) < bytes &&
		    stack->address[i] - SETTING(SETTING_SCHEDULE) < SETTING(SETTING_SCHEDULE_BYTES))
			depth = i + 1;
	}
	return depth;
}

/* Returns the hash of the current call chain as the kernel walks it, 0 if there is none. `end`: 0 of the kernel's own.
 */
static __always_inline __u64 take_stack(struct bpf_perf_event_data *ctx, struct stack_record *stack, __u32 end)
{
	__u32 most = SETTING(SETTING_LEAF_ONLY) ? 1 : MAX_KERNEL_WALK_DEPTH;
	__u64 flags = end ? BPF_F_USER_STACK : SETTING(SETTING_AT_SWITCH) ? scheduler_depth(ctx, stack) : 0;
	long bytes = bpf_get_stack(ctx, stack->address, most * sizeof(__u64), flags);

	if (bytes < 0) {
		count(end ? COUNTER_USER_STACKS_UNREADABLE : COUNTER_KERNEL_STACKS_UNREADABLE);
		return 0;
	}
	if (bytes == 0)
		return 0;
	begin_stack(stack, !end);
	stack->depth = (__u32)bytes / sizeof(__u64);
	stack->end = end;
	/* A walk along frame pointers that has run into zeros is long, but not cut. */
	if (most > 1 && stack->depth >= MAX_KERNEL_WALK_DEPTH && stack->address[MAX_KERNEL_WALK_DEPTH - 1])
		count(COUNTER_STACKS_TRUNCATED);
	return send_stack(stack, hash_stack(stack));
}

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
	if (!SETTING(SETTING_AT_SWITCH)) {
		add_row(&walk->key, 1, walk->period);
		return 0;
	}
	for (__u32 state = THREAD_RUNNABLE; state < THREAD_STATES; state++) {
		if (!walk->due[state])
			continue;
		walk->key.event = SETTING(SETTING_OFF_CPU_EVENT) | state << THREAD_STATE_SHIFT;
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
	walk->mapping.bytes = 0;
	walk->if_lost = UNWIND_END_NO_MAPPING;
	walk->copied = 0;
	walk->interpreted = 0;
	walk->python_calls = 0;
	walk->space.count = 0;
	if (start == WALK_BEGUN) {
		const struct address_space *space = spaces.lookup(&walk->key.pid);

		if (space)
			walk->space = *space;
		if (!walk->space.count)
			ask_for_mappings(walk->key.pid);
	}
	return start;
}

/* The thread as the recorder's pid namespace numbers it; not 0: that does not see it. */
static __always_inline int current_thread(__u32 *pid, __u32 *tid)
{
	if (SETTING(SETTING_PIDNS_INODE)) {
		struct bpf_pidns_info ids = {};

		if (bpf_get_ns_current_pid_tgid(SETTING(SETTING_PIDNS_DEVICE), SETTING(SETTING_PIDNS_INODE), &ids,
		                                sizeof(ids)))
			return 1;
		*pid = ids.tgid;
		*tid = ids.pid;
	} else {
		__u64 ids = bpf_get_current_pid_tgid();

		*pid = ids >> 32;
		*tid = (__u32)ids;
	}
	return 0;
}

/* Events of whole CPUs are taken of some processes and all that they start; of this thread? */
static __always_inline __u32 is_followed(void)
{
	__u64 task = bpf_get_current_task();
	__u32 *state = followed.lookup(&task);
	__u32 pid, tid;

	if (state)
		return *state;
	if (current_thread(&pid, &tid))
		return FOLLOWED_NOT;
	__u32 *from = named.lookup(&tid);

	return from && *from == FOLLOW_NOW ? FOLLOWED_ALIVE : FOLLOWED_NOT;
}

static __always_inline void follow(__u64 task, __u32 state)
{
	if (followed.update(&task, &state))
		count(COUNTER_THREADS_NOT_FOLLOWED);
}

/* Begin with a thread that is in a state since then. */
static __always_inline struct thread_times *begin_times(__u64 task, __u32 state, __u64 since_ns)
{
	struct thread_times thread = { .first_ns = since_ns, .since_ns = since_ns, .state = state };

	if (state != THREAD_RUNNING)
		thread.left_ns = since_ns;
	thread.point_ns = random_point();
	if (times.update(&task, &thread)) {
		count(COUNTER_THREADS_NOT_TIMED);
		return 0;
	}
	return times.lookup(&task);
}

/* A thread starts another, which has not run yet: also the kernel's own for a process, which sched_process_fork leaves
 * out. */
int follow_new(struct bpf_raw_tracepoint_args *ctx)
{
	if (is_followed())
		follow(ctx->args[0], FOLLOWED_ALIVE);
	return 0;
}

/* A command begins: what executes a file has its name from then on, and keeps the kernel busy before it runs. */
int follow_exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid;

	if (current_thread(&pid, &tid))
		return 0;
	__u32 *from = named.lookup(&tid);

	if (from && *from == FOLLOW_FROM_EXEC) {
		follow(bpf_get_current_task(), FOLLOWED_ALIVE);
		named.delete(&tid);
		if (SETTING(SETTING_OFF_CPU_PERIOD))
			begin_times(bpf_get_current_task(), THREAD_RUNNING, bpf_ktime_get_ns());
	}
	return 0;
}

/*
 * A thread ends, and its number will be another's; what the kernel still does for it is its own. Its events are taken
 * off it next (Linux 6.16, perf_event_exit_task before exit_mm; earlier ones count exit_mm and take the tracepoint
 * after it).
 */
int follow_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid;

	if (is_followed())
		follow(bpf_get_current_task(), FOLLOWED_ENDING);
	if (!current_thread(&pid, &tid))
		named.delete(&tid);
	return 0;
}

/* The address of a thread that has ended may become another's. */
int follow_no_more(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];

	followed.delete(&task);
	return 0;
}

static __always_inline __u64 kernel_word(__u64 address)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

/* The thread's state of one controller of version 1 (struct cgroup_subsys_state), and the id of the group that it is
 * of. */
static __always_inline __u64 state_of_v1(void)
{
	return kernel_word(kernel_word(bpf_get_current_task() + SETTING(SETTING_TASK_CSS_SET)) +
	                   SETTING(SETTING_CSS_SET_SUBSYS));
}

static __always_inline __u64 id_of_v1(__u64 state)
{
	__u64 cgroup = kernel_word(state + SETTING(SETTING_CSS_CGROUP));

	return kernel_word(kernel_word(cgroup + SETTING(SETTING_CGROUP_KERNFS)) + SETTING(SETTING_KERNFS_ID));
}

/* Of sample_key. */
static __always_inline __u32 current_cgroup(void)
{
	__u64 id = 0;

	if (SETTING(SETTING_CGROUPS) == CGROUPS_V2)
		return bpf_get_current_cgroup_id();
	if (SETTING(SETTING_CGROUPS) == CGROUPS_V2_ELSE_V1) {
		id = bpf_get_current_cgroup_id();
		if (id != 1) /* the root of a hierarchy is its first file */
			return id;
	}
	if (SETTING(SETTING_CGROUPS) == CGROUPS_NONE)
		return 0;
	return id_of_v1(state_of_v1()) | CGROUP_OF_V1;
}

static __always_inline int is_in_chosen_cgroup(void)
{
	if (SETTING(SETTING_CGROUPS) == CGROUPS_V1) {
		__u64 state = state_of_v1();

		for (int level = 0; level < MOST_LEVELS; level++) {
			__u64 id = id_of_v1(state);

			if (chosen_v1.lookup(&id))
				return 1;
			state = kernel_word(state + SETTING(SETTING_CSS_PARENT));
			if (!state)
				break;
		}
		return 0;
	}
	for (int number = 0; number < MOST_CGROUPS; number++) {
		long is_below = chosen_v2.check_current_task(number);

		if (is_below > 0)
			return 1;
		if (is_below < 0) /* no more are chosen */
			break;
	}
	return 0;
}

/* What tells the thread's samples apart from others'. */
static __always_inline int name_sample(struct sample_key *key)
{
	if (current_thread(&key->pid, &key->tid))
		return 1;
	key->cgroup = current_cgroup();
	bpf_get_current_comm(key->comm, sizeof(key->comm));
	return 0;
}

/* The user stack of a sample that has all else. */
static __always_inline int take_user_stack(struct bpf_perf_event_data *ctx, struct walk *walk)
{
	struct sample_key *key = &walk->key;

	key->user_stack = 0;
	enum walk_start start = SETTING(SETTING_LEAF_ONLY) ? WALK_BY_KERNEL : prepare_walk(ctx, walk);

	__u32 end = UNWIND_END_FRAME_POINTERS_ONLY;

	if (start == WALK_BEGUN && walk->space.count)
		steps.call(ctx, STEP_WALK);
	if (start == WALK_BEGUN) { /* the process was never seen before */
		steps.call(ctx, STEP_COPY);
		end = UNWIND_END_NO_TABLE;
	}
	if (start != WALK_NO_USER_STACK)
		key->user_stack = take_stack(ctx, &walk->stack, end);
	return add_sample(walk);
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
	walk->period = ctx->sample_period;
	key->kernel_stack = *event & WITH_KERNEL ? take_stack(ctx, &walk->stack, 0) : 0;
	return take_user_stack(ctx, walk);
}

/* Note how a walk went. */
static __always_inline void end_walk(struct walk *walk, int end)
{
	struct stack_record *stack = &walk->stack;

	stack->end = end;
	stack->by_table = walk->state.methods[UNWIND_BY_TABLE];
	stack->by_fp = walk->state.methods[UNWIND_BY_FP];
	stack->by_lr = walk->state.methods[UNWIND_BY_LR];
	/* The last caller is none where its address is in no mapping; so is a guess that led nowhere. */
	if (stack->guessed_from >= stack->depth)
		stack->guessed_from = 0;
	if (end == UNWIND_END_NO_MAPPING && !stack->guessed_from)
		ask_for_mappings(walk->key.pid);
}

static __always_inline int has_python(void)
{
	__u32 which = ACTIVE_PYTHON;
	__u32 *is_there = active.lookup(&which);

	return is_there && *is_there;
}

/* Some frames of a user stack; then itself once more, or the last step. */
int walk(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct walk *walk = walks.lookup(&zero);
	int end = 0;

	if (!walk)
		return 0;
	for (int frame = 0; frame < FRAMES_PER_PROGRAM; frame++) {
		end = walk_frame(walk);
		if (end)
			break;
	}
	if (!end)
		steps.call(ctx, STEP_WALK);
	end_walk(walk, end);
	if (end == UNWIND_END_NO_TABLE || (end == UNWIND_END_NO_MAPPING && !walk->stack.guessed_from))
		steps.call(ctx, STEP_COPY);
	steps.call(ctx, has_python() ? STEP_PYTHON : STEP_STORE);
	return 0;
}

/* Get ready for the Python frames of a thread. */
static __always_inline void begin_python(const struct python_runtime *runtime, struct walk *walk,
                                         struct python_walk *python)
{
	__u32 tid = walk->key.tid, inner_tid = tid;
	__u64 *known = python_threads.lookup(&tid);
	__u64 thread = known ? *known : 0, frame;

	if (runtime->pidns_inode) {
		struct bpf_pidns_info ids = {};

		bpf_get_ns_current_pid_tgid(runtime->pidns_device, runtime->pidns_inode, &ids, sizeof(ids));
		inner_tid = ids.pid;
	}
	/* Its number, since what is there may be another thread's by now. */
	if (!thread || python_thread_id(runtime, thread) != inner_tid) {
		thread = find_python_thread(runtime, inner_tid);
		if (thread)
			python_threads.update(&tid, &thread);
	}
	frame = thread ? python_pointer(thread + runtime->thread_frame) : 0;
	if (frame && runtime->inner_frame != PYTHON_NONE)
		frame = python_pointer(frame + runtime->inner_frame);
	python->frame = frame;
	python->hash = walk->key.pid;
	python->process = mix(0, walk->key.pid);
	python->bytes = 0;
	python->count = 0;
	python->stack.pid = walk->key.pid;
	python->stack.is_cut = 0;
}

/* Some Python frames of a thread, whose user stack was walked; then itself once more, or the last step. */
int python(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct walk *walk = walks.lookup(&zero);
	struct python_walk *python = python_walks.lookup(&zero);
	struct python_code *code = python_codes.lookup(&zero);

	if (!walk || !python || !code)
		return 0;
	const struct python_runtime *runtime = python_runtimes.lookup(&walk->key.pid);

	if (runtime) {
		if (!walk->python_calls)
			begin_python(runtime, walk, python);
		walk->python_calls += 1;
		for (int i = 0; i < PYTHON_FRAMES_PER_PROGRAM; i++) {
			if (!python->frame)
				break;
			python->frame = walk_python_frame(runtime, python, code, python->frame);
		}
		if (python->frame) {
			/* One call is left for the last step. */
			if (walk->stack.depth / FRAMES_PER_PROGRAM + walk->python_calls + 5 < MOST_TAIL_CALLS)
				steps.call(ctx, STEP_PYTHON);
			python->stack.is_cut = 1;
		}
		if (python->count)
			walk->interpreted = python->hash | 1;
	}
	steps.call(ctx, STEP_STORE);
	return 0;
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

	if (*is_copied && space && space->copies_left && begin_walk(ctx, walk) == WALK_BEGUN) {
		space->copies_left -= 1;
		copy->identity = mix(mix(bpf_ktime_get_ns(), walk->key.tid), cpu) | 1;
		copy->time_ns = bpf_ktime_get_ns();
		copy->pid = walk->key.pid;
		copy_registers(copy, &walk->state);
		__u64 size = sizeof(*copy) - sizeof(copy->stack) + copy_stack(copy, walk->state.sp);

		asm volatile("" : "+r"(size)); /* as in send_stack() */
		if (size <= sizeof(*copy) && copies.ringbuf_output(copy, size, BPF_RB_NO_WAKEUP) == 0) {
			count(COUNTER_STACKS_COPIED);
			walk->copied = copy->identity;
			steps.call(ctx, has_python() ? STEP_PYTHON : STEP_STORE);
			return 0;
		}
	}
	count(COUNTER_STACKS_NOT_COPIED);
	if (walk->stack.depth)
		steps.call(ctx, STEP_STORE);
	walk->key.user_stack = take_stack(ctx, &walk->stack, UNWIND_END_NO_TABLE);
	return add_sample(walk);
}

/* Whether the Python frames of a stack are on their way, if it was not sent lately. */
static __always_inline int send_python_stack(__u64 hash)
{
	__u32 zero = 0, slot = hash & (STACK_SLOTS - 1);
	__u64 *sent = sent_stacks.lookup(&slot);
	struct python_walk *python = python_walks.lookup(&zero);

	if (!sent || *sent == in_segment(hash) || !python)
		return 1;
	__u32 frames = python->count;
	__u64 size = sizeof(python->stack) - sizeof(python->stack.frame) + frames * sizeof(python->stack.frame[0]);

	python->stack.stack = hash;
	python->stack.count = frames;
	asm volatile("" : "+r"(size)); /* as in send_stack() */
	if (size <= sizeof(python->stack) && python_stacks.ringbuf_output(&python->stack, size, BPF_RB_NO_WAKEUP) == 0)
		return 1;
	count(COUNTER_STACKS_NOT_SENT);
	return 0;
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

/* A process executes another program, or its first thread ends: what was mapped is not there any more. */
int forget_mappings(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid;

	if (current_thread(&pid, &tid))
		return 0;
	python_threads.delete(&tid);
	if (pid == tid) {
		spaces.delete(&pid);
		python_runtimes.delete(&pid);
	}
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

/* Whether the time of the running thread is recorded; not of a CPU that idles, which is no thread. */
static __always_inline int is_timed(void)
{
	__u32 which = ACTIVE_FOLLOW;
	__u32 *is_filtered = active.lookup(&which);

	if (!is_filtered || !(__u32)bpf_get_current_pid_tgid())
		return 0;
	if (*is_filtered == FILTER_THREADS)
		return is_followed();
	return *is_filtered == FILTER_NONE || is_in_chosen_cgroup();
}

/* Of the running thread. Not 0: it cannot be named. */
static __always_inline int name_thread(struct thread_times *thread)
{
	bpf_get_current_comm(thread->comm, sizeof(thread->comm));
	return thread->pid ? 0 : current_thread(&thread->pid, &thread->tid);
}

static __always_inline __u64 recorded_since(void)
{
	__u32 zero = 0;
	__u64 *since_ns = times_since.lookup(&zero);

	return since_ns ? *since_ns : 0;
}

/* The running thread leaves its CPU. */
static __always_inline void leave(__u64 task, __u64 is_preempted, __u64 now_ns)
{
	struct thread_times *thread = times.lookup(&task);

	/* One that has not been seen has run ever since. */
	if (!thread)
		thread = is_timed() ? begin_times(task, THREAD_RUNNING, recorded_since()) : 0;
	if (!thread)
		return;
	__u32 kernel_state = kernel_word(task + SETTING(SETTING_TASK_STATE));

	pass_time(thread, now_ns);
	thread->left_ns = now_ns;
	/* It was new, and came to its CPU by another way than back from where it left one. */
	for (__u32 state = THREAD_RUNNABLE; state < THREAD_STATES; state++) {
		count_all(COUNTER_WAITS_NOT_SAMPLED, thread->due[state]);
		thread->due[state] = 0;
	}
	thread->waits += 1;
	thread->state = waiting_state(kernel_state, is_preempted);
	if ((!thread->pid || kernel_state & TASK_DEAD) && name_thread(thread)) {
		times.delete(&task); /* nobody here knows it by any number */
		return;
	}
	if (kernel_state & TASK_DEAD) {
		thread->state = THREAD_RUNNING;
		if (ended.ringbuf_output(thread, sizeof(*thread), BPF_RB_NO_WAKEUP))
			count(COUNTER_THREADS_NOT_TIMED);
		times.delete(&task);
	}
}

/* A thread takes the CPU; not 0: that is all. */
static __always_inline __u32 take_cpu(struct thread_times *thread, __u64 now_ns)
{
	pass_time(thread, now_ns);
	thread->state = THREAD_RUNNING;
	return !thread->due[THREAD_RUNNABLE] && !thread->due[THREAD_INTERRUPTIBLE] &&
	       !thread->due[THREAD_UNINTERRUPTIBLE];
}

/* At the tracepoint sched_switch: whether the thread is preempted, itself, and the next one. */
int switch_threads(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 next = ctx->args[2];
	__u32 zero = 0;
	struct last_switch *last = last_switches.lookup(&zero);

	if (!last || !recorded_since())
		return 0;
	leave(bpf_get_current_task(), ctx->args[0] & 1, now_ns);
	struct thread_times *thread = times.lookup(&next);

	last->is_settled = thread && take_cpu(thread, now_ns);
	last->task = next;
	return 0;
}

/* A thread that slept has what it waited for, and waits for a CPU. */
int wake_thread(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];
	struct thread_times *thread = times.lookup(&task);

	if (thread && thread->state >= THREAD_INTERRUPTIBLE) {
		pass_time(thread, bpf_ktime_get_ns());
		thread->state = THREAD_RUNNABLE;
	}
	return 0;
}

/* The running thread has started another, which waits for its first CPU. */
int start_thread(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];
	__u32 which = ACTIVE_FOLLOW;
	__u32 *is_filtered = active.lookup(&which);

	if (!is_filtered || !recorded_since())
		return 0;
	if (*is_filtered == FILTER_THREADS ? !followed.lookup(&task) : !is_timed())
		return 0;
	struct thread_times *thread = begin_times(task, THREAD_RUNNABLE, bpf_ktime_get_ns());

	if (thread && !SETTING(SETTING_PIDNS_INODE)) {
		__u64 ids = kernel_word(task + SETTING(SETTING_TASK_PID));

		thread->tid = ids;
		thread->pid = ids >> 32;
	}
	return 0;
}

/*
 * After a switch, in the thread that has come back to a CPU: its user stack is as it was when it left, and its
 * kernel's shows what it waited for. Some kernels run no program at the switch from some threads.
 */
int end_wait(struct bpf_perf_event_data *ctx)
{
	__u64 task = bpf_get_current_task(), since_ns = recorded_since();
	__u32 zero = 0;
	struct last_switch *last = last_switches.lookup(&zero);
	struct walk *walk = walks.lookup(&zero);

	if (!last || !walk || !since_ns || (last->task == task && last->is_settled))
		return 0;
	struct thread_times *thread = times.lookup(&task);

	if (!thread && is_timed())
		thread = begin_times(task, THREAD_INTERRUPTIBLE, since_ns);
	if (thread && thread->state != THREAD_RUNNING)
		take_cpu(thread, bpf_ktime_get_ns());
	last->task = task;
	last->is_settled = 1;
	if (!thread)
		return 0;
	__u32 samples = 0;

	for (__u32 state = THREAD_RUNNABLE; state < THREAD_STATES; state++) {
		walk->due[state] = thread->due[state];
		samples += thread->due[state];
		thread->due[state] = 0;
	}
	if (!samples)
		return 0;
	count_all(COUNTER_SAMPLES, samples);
	if (name_thread(thread) || name_sample(&walk->key)) {
		count_all(COUNTER_SAMPLES_OUTSIDE_NAMESPACE, samples);
		return 0;
	}
	walk->key.kernel_stack = take_stack(ctx, &walk->stack, 0);
	return take_user_stack(ctx, walk);
}
