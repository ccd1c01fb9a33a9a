/* SPDX-License-Identifier: GPL-2.0 */
/* The Java methods of a sample's stack: the program that names them, and what it sends. A part of sample.bpf.c. */

#include "java_walk.h"

static __always_inline int was_method_sent(__u64 identity)
{
	__u32 slot = identity & (METHOD_SLOTS - 1);
	__u64 *sent = sent_methods.lookup(&slot);

	return !sent || *sent == in_segment(identity);
}

static __always_inline void send_method(struct java_method *method, __u64 bytes)
{
	__u32 slot = method->identity & (METHOD_SLOTS - 1);
	__u64 *sent = sent_methods.lookup(&slot);

	if (!sent || bytes > sizeof(*method) || methods.ringbuf_output(method, bytes, BPF_RB_NO_WAKEUP))
		return; /* at its next sample */
	*sent = in_segment(method->identity);
}

static __always_inline int was_java_code_sent(__u64 identity)
{
	__u32 slot = identity >> 32 & (METHOD_SLOTS - 1);
	__u64 *sent = sent_java_codes.lookup(&slot);

	return sent && *sent == in_segment(identity);
}

static __always_inline void send_java_code(struct java_code *code, __u64 identity)
{
	__u32 slot = identity >> 32 & (METHOD_SLOTS - 1);
	__u64 *sent = sent_java_codes.lookup(&slot);

	if (!sent || (code && methods.ringbuf_output(code, sizeof(*code), BPF_RB_NO_WAKEUP)))
		return; /* at its next sample */
	*sent = in_segment(identity);
}

/* The next frame of those that are to be named; 0: there is none. */
static __always_inline int name_java_frame(const struct code_heap *heap, struct walk *walk, struct java_walk *java)
{
	__u32 number = walk->java_done;

	if (number >= walk->java_count)
		return 0;
	walk->java_done = number + 1;
	const struct java_place *place = &walk->java[number & (JAVA_SLOTS - 1)];
	__u64 depth = place->depth;

	if (depth == JAVA_COMPILED) {
		note_java_code(heap, java, walk->key.pid, place->fp, place->sp);
		return 1;
	}
	__u64 frame =
		java_frame(&heap->methods, java, &walk->memory, walk->key.pid, place, depth ? 0 : walk->state.leaf[13]);

	if (!frame || depth >= MAX_STACK_DEPTH)
		return 1;
	walk->stack.address[depth] = frame;
	if (!depth)
		walk->stack.guessed_from = walk->guessed_from;
	return 1;
}

/* Some interpreted frames of a user stack that was walked; then itself once more, or the next step. */
int java(struct bpf_perf_event_data *ctx)
{
	__u32 zero = 0;
	struct walk *walk = walks.lookup(&zero);
	struct java_walk *java = java_walks.lookup(&zero);

	if (!walk || !java)
		return 0;
	const struct code_heap *heap = code_heap_at(walk->java_heap);

	walk->java_calls += 1;
	java->time_ns = bpf_ktime_get_ns();
	if (heap && heap->methods.constant) {
		for (int i = 0; i < JAVA_FRAMES_PER_PROGRAM; i++) {
			if (!name_java_frame(heap, walk, java))
				break;
		}
		/* Calls are left for the steps that follow. */
		if (walk->java_done < walk->java_count && walk->calls + walk->java_calls + 4 < MOST_TAIL_CALLS)
			steps.call(ctx, STEP_JAVA);
	}
	steps.call(ctx, has_python() ? STEP_PYTHON : STEP_STORE);
	return 0;
}
