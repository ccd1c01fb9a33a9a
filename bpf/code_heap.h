/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Callers of what a JVM (HotSpot) has compiled: its code heaps say of each address whose code that is, and the code's
 * beginning how large its frames are: FP and the return address are a frame's two highest words, on both machines.
 * Part of walk.h; the structure is filled in by tdprof/recorder/code_heaps.py.
 */
#ifndef TDPROF_CODE_HEAP_H
#define TDPROF_CODE_HEAP_H

#include "mix.h"
#include "sample.h"

/* Code that is compiled goes back at most so many times from its end to its beginning in the heap's map. */
#define MOST_SEGMENT_STEPS 8
#define SEGMENT_UNUSED     0xff
#define MOST_FRAME_WORDS   4000 /* which a rule's slot can say */

/* The CodeBlob that holds an address; 0 if none does. */
static __always_inline __u64 find_blob(const struct code_heap *heap, __u64 address)
{
	__u64 at = (address - heap->low) >> (heap->segment_shift & 63);

	for (int step = 0; step < MOST_SEGMENT_STEPS; step++) {
		__u8 back = SEGMENT_UNUSED;

		if (walk_read_user(&back, sizeof(back), (void *)(heap->segments + at)) || back == SEGMENT_UNUSED)
			return 0;
		if (back == 0)
			return heap->low + (at << (heap->segment_shift & 63)) + heap->header_bytes;
		at -= back;
	}
	return 0;
}

/* What a member of a CodeBlob points to. */
static __always_inline __u64 blob_place(const struct code_heap *heap, __u64 blob, __u16 member)
{
	__u64 place = 0;
	__u32 distance = 0;

	if (heap->code_begin_bytes == sizeof(place)) {
		walk_read_user(&place, sizeof(place), (void *)(blob + member));
		return place;
	}
	walk_read_user(&distance, sizeof(distance), (void *)(blob + member));
	return blob + distance;
}

/* What tells a compilation from others that have its place later, and from those of other processes; 0: none is known.
 */
static __always_inline __u64 compilation_identity(const struct code_heap *heap, __u64 blob, __u32 pid)
{
	__u32 number = 0;

	if (!heap->kind || walk_read_user(&number, sizeof(number), (void *)(blob + heap->compilation)))
		return 0;
	return mix(mix(mix(pid, heap->segments), blob), number) | 1;
}

/* Whether the frame of interrupted code is not there yet. */
static __always_inline int is_before_frame(const struct code_heap *heap, __u64 blob, __u64 pc)
{
	__s32 complete = 0;
	__s16 short_complete = 0;

	if (heap->complete_bytes == sizeof(short_complete)) {
		walk_read_user(&short_complete, sizeof(short_complete), (void *)(blob + heap->frame_complete));
		complete = short_complete;
	} else {
		walk_read_user(&complete, sizeof(complete), (void *)(blob + heap->frame_complete));
	}
	return (__s64)(pc - blob_place(heap, blob, heap->code_begin)) < complete;
}

/* Whether a word of the stack leads to where execution returns to: behind a call, or the interpreter. */
static __always_inline int returns_by(struct unwind_memory *memory, const struct code_heap *heap, __u64 at)
{
	__u64 word = 0;

	if (walk_read_user(&word, sizeof(word), (void *)at))
		return 0;
	word &= UNWIND_ADDRESS_MASK;
	return word - heap->interpreter < heap->interpreter_bytes || unwind_follows_call(memory, word, 0);
}

#ifdef __aarch64__
#include "code_heap_aarch64.h"
#else
#include "code_heap_x86_64.h"
#endif

/*
 * The rule for an address of a heap that is not the interpreter's, where that is known; else it stays as it was.
 * Returns the CodeBlob that holds the address; 0: none, or what called Java.
 */
static __always_inline __u64 heap_rule(struct unwind_memory *memory, const struct code_heap *heap,
                                       struct unwind_state *state, __u64 address, struct unwind_rule *rule)
{
	__u32 is_exact = state->flags & UNWIND_EXACT;
	__s32 words = 0;

	if (state->pc == heap->call_return && !is_exact) {
		rule->cfa = UNWIND_FP_RECORD;
		return 0;
	}
	__u64 blob = find_blob(heap, address);

	if (!blob || walk_read_user(&words, sizeof(words), (void *)(blob + heap->frame_size)))
		return 0;
	if (words == 0 && is_exact) /* stubs and adapters, with no frame or one that no size tells */
		stub_rule(state, rule);
	if (words < 2 || words > MOST_FRAME_WORDS)
		return blob;
	rule->cfa = UNWIND_CFA_SP;
	rule->ra = UNWIND_RA_CFA;
	rule->fp = -16;
	rule->offset = 8 * words;
	if (is_exact)
		adjust_rule(memory, heap, blob, state, rule);
	return blob;
}

#endif
