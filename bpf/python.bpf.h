/* SPDX-License-Identifier: GPL-2.0 */
/* Python's frames of a sample: the program that walks them, and what it sends. A part of sample.bpf.c. */

#include "python_walk.h"

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

static __always_inline int has_python(void)
{
	__u32 which = ACTIVE_PYTHON;
	__u32 *is_there = active.lookup(&which);

	return is_there && *is_there;
}

/* The CPython that a thread's process runs; until user space has told of that, what its first thread was started
 * with. */
static __always_inline struct python_runtime *find_runtime(__u64 pid)
{
	struct python_runtime *runtime = python_runtimes.lookup(&pid);
	__u64 task = bpf_get_current_task();

	return runtime ? runtime : python_runtimes.lookup(&task);
}

/* The current thread's number, as its own pid namespace has it. */
static __always_inline __u32 own_thread_id(const struct python_runtime *runtime, __u32 tid)
{
	struct bpf_pidns_info ids = {};

	if (!runtime->pidns_inode)
		return tid;
	bpf_get_ns_current_pid_tgid(runtime->pidns_device, runtime->pidns_inode, &ids, sizeof(ids));
	return ids.pid;
}

#define CLONE_THREAD 0x10000

/* A process starts another, which has its memory. */
int begin_copy(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];
	__u32 pid, tid;

	if (ctx->args[1] & CLONE_THREAD || current_thread(&pid, &tid))
		return 0;
	const struct python_runtime *runtime = find_runtime(pid);

	if (!runtime)
		return 0;
	struct python_runtime copy = *runtime;

	copy.forked_by = own_thread_id(runtime, tid);
	python_runtimes.update(&task, &copy);
	return 0;
}

/* A process has executed a program: of one that was met before all is known. `binprm` is the kernel's of that. */
static __always_inline void begin_python_program(__u64 binprm, __u64 pid)
{
	__u32 zero = 0;
	const struct exec_places *places = exec_places.lookup(&zero);

	if (!places || !places->binprm_file)
		return;
	__u64 inode = kernel_word(kernel_word(binprm + places->binprm_file) + places->file_inode);
	struct python_program program = {
		.device = (__u32)kernel_word(kernel_word(inode + places->inode_super) + places->super_device),
		.inode = kernel_word(inode + places->inode_number),
		.bytes = kernel_word(inode + places->inode_bytes),
	};
	const struct python_runtime *known = python_programs.lookup(&program);
	struct bpf_pidns_info ids = {};

	/* In another namespace threads have other numbers. */
	if (!known || bpf_get_ns_current_pid_tgid(known->pidns_device, known->pidns_inode, &ids, sizeof(ids)))
		return;
	struct python_runtime runtime = *known;

	runtime.first_interpreter += code_start(places);
	__u32 moment = bpf_ktime_get_ns() >> 20 & (PYTHON_OWN_EXECUTION - 1);

	runtime.process = (PYTHON_OWN_EXECUTION | moment) << PYTHON_PROCESS_BITS | pid;
	python_runtimes.update(&pid, &runtime);
}

/*
 * Get ready for the Python frames of a thread. Of one that was met before it is known where CPython has it, unless
 * there are more interpreters by now: each has its own structures of a thread, and adds frames to its stack.
 */
static __always_inline void begin_python(const struct python_runtime *runtime, const struct walk *walk,
                                         struct python_walk *python)
{
	__u32 tid = walk->key.tid;
	struct python_thread *known = python_threads.lookup(&tid);

	python->tid = own_thread_id(runtime, tid);
	python->forked_by = walk->key.pid == tid ? runtime->forked_by : 0;
	python->interpreter = python_pointer(runtime->first_interpreter);
	python->frame = 0;
	/* Its number, since what is there may be another thread's by now. */
	if (known && known->interpreter == python->interpreter && is_python_thread(runtime, python, known->thread))
		python->frame = python_thread_frame(runtime, known->thread);
	if (python->frame) {
		python->interpreter = 0;
	} else { /* or that structure was for a call from C, which the thread makes another of for each */
		python->thread = python_pointer(python->interpreter + runtime->first_thread);
		python->is_alone = !python_pointer(python->interpreter + runtime->next_interpreter);
	}
	python->process = mix(mix(0, walk->key.pid), runtime->process);
	python->hash = python->process;
	python->bytes = 0;
	python->count = 0;
	python->subinterpreters = 0;
	python->stack.process = runtime->process;
	python->stack.is_cut = 0;
}

/*
 * Two subinterpreters have frames of a thread. Their list has the newest first, which does not say who called whom;
 * only the main one, its last, is known to be the outermost. So the stack is left native: user space counts those that
 * have no frame and are cut.
 */
static __always_inline void leave_python(struct python_walk *python)
{
	python->frame = 0;
	python->interpreter = 0;
	python->count = 0;
	python->hash = python->process;
	python->stack.is_cut = 1;
}

/* Look for the thread where it was not looked for yet. */
static __always_inline void search_python(const struct python_runtime *runtime, const struct walk *walk,
                                          struct python_walk *python)
{
	__u32 tid = walk->key.tid;
	struct python_thread found = { find_python_thread(runtime, python), python->interpreter };

	if (!found.thread)
		return;
	python->frame = python_thread_frame(runtime, found.thread);
	if (python->is_alone) {
		python->interpreter = 0;
		python_threads.update(&tid, &found);
	} else if (python->frame && python_pointer(found.interpreter + runtime->next_interpreter)) {
		python->subinterpreters += 1;
		if (python->subinterpreters > 1)
			leave_python(python);
	}
}

/* What `python_told` says of a process that is sampled before user space has looked at it. */
static __always_inline void send_program(struct python_runtime *runtime, struct python_stack *stack)
{
	stack->stack = 0;
	stack->process = runtime->process;
	stack->count = 1;
	stack->is_cut = 0;
	stack->frame[0].code = runtime->first_interpreter;
	stack->frame[0].instruction = runtime->program;
	stack->frame[0].call = 0;
	if (!python_stacks.ringbuf_output(stack, sizeof(*stack) - sizeof(stack->frame) + sizeof(stack->frame[0]),
	                                  BPF_RB_NO_WAKEUP))
		runtime->told = PYTHON_SENT;
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
	struct python_runtime *runtime = find_runtime(walk->key.pid);

	if (runtime) {
		if (runtime->told == PYTHON_UNTOLD)
			send_program(runtime, &python->stack);
		if (!walk->python_calls)
			begin_python(runtime, walk, python);
		walk->python_calls += 1;
		if (!python->frame)
			search_python(runtime, walk, python);
		for (int i = 0; i < PYTHON_FRAMES_PER_PROGRAM; i++) {
			if (!python->frame)
				break;
			python->frame = walk_python_frame(runtime, python, code, python->frame);
		}
		if (python->frame || python->interpreter) {
			/* One call is left for the last step. */
			if (walk->calls + walk->java_calls + walk->python_calls + 5 < MOST_TAIL_CALLS)
				steps.call(ctx, STEP_PYTHON);
			python->stack.is_cut = 1;
		}
		if (python->count || python->subinterpreters > 1)
			walk->interpreted = python->hash | 1;
	}
	steps.call(ctx, STEP_STORE);
	return 0;
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
