/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Callers of what a JVM (HotSpot) has compiled: its code heaps say of each address whose code that is, and the code's
 * beginning how large its frames are. x86-64. Part of walk.h; the structure is filled in by
 * tdprof/recorder/code_heaps.py.
 */
#ifndef TDPROF_CODE_HEAP_H
#define TDPROF_CODE_HEAP_H

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

/* Whether the frame of interrupted code is not there yet. */
static __always_inline int is_before_frame(const struct code_heap *heap, __u64 blob, __u64 pc)
{
	__s32 complete = 0;
	__s16 short_complete = 0;
	__u64 begin = 0;
	__u32 distance = 0;

	if (heap->complete_bytes == sizeof(short_complete)) {
		walk_read_user(&short_complete, sizeof(short_complete), (void *)(blob + heap->frame_complete));
		complete = short_complete;
	} else {
		walk_read_user(&complete, sizeof(complete), (void *)(blob + heap->frame_complete));
	}
	if (heap->code_begin_bytes == sizeof(begin)) {
		walk_read_user(&begin, sizeof(begin), (void *)(blob + heap->code_begin));
	} else {
		walk_read_user(&distance, sizeof(distance), (void *)(blob + heap->code_begin));
		begin = blob + distance;
	}
	return (__s64)(pc - begin) < complete;
}

#define BYTES(word, first, count) ((word) >> (8 * (first)) & ((1ULL << (8 * (count))) - 1))

/* Whether the word at an address of the stack is where a call returns to. */
static __always_inline int is_return_address(struct unwind_memory *memory, __u64 at)
{
	__u64 word = 0;

	return !walk_read_user(&word, sizeof(word), (void *)at) && unwind_follows_call(memory, word, 0);
}

/* Before a frame is made, and where it is given back, which the instructions tell that HotSpot uses for that. */
static __always_inline void adjust_rule(const struct code_heap *heap, __u64 blob, __u64 pc, struct unwind_rule *rule)
{
	__u64 next = 0, before = 0;

	walk_read_user(&next, sizeof(next), (void *)pc);
	walk_read_user(&before, sizeof(before), (void *)(pc - sizeof(before)));
	if (is_before_frame(heap, blob, pc)) {
		if (BYTES(next, 0, 4) == 0x246c8948 || BYTES(next, 0, 4) == 0x24ac8948) { /* mov %rbp, n(%rsp) */
			rule->fp = UNWIND_FP_SAME;
			return;
		}
		/* Behind push %rbp, and mov %rsp, %rbp */
		int is_pushed = BYTES(before, 7, 1) == 0x55 || BYTES(before, 5, 3) == 0xec8b48 ||
		                BYTES(before, 5, 3) == 0xe58948;

		rule->offset = is_pushed ? 16 : 8;
		if (!is_pushed)
			rule->fp = UNWIND_FP_SAME;
		return;
	}
	if (BYTES(next, 0, 1) == 0x5d) { /* pop %rbp */
		rule->offset = 16;
		return;
	}
	/* ret; cmp n(%r15), %rsp with n of 1 or 4 bytes, which looks for a safepoint, and ja behind it; what that goes
	 * to */
	int is_checked = BYTES(next, 0, 3) == 0xa73b49 || BYTES(next, 0, 3) == 0x673b49;
	int is_behind =
		BYTES(next, 0, 2) == 0x870f && (BYTES(before, 1, 3) == 0xa73b49 || BYTES(before, 4, 3) == 0x673b49);
	int is_at_safepoint = BYTES(next, 0, 3) == 0x158d4c || BYTES(before, 1, 3) == 0x158d4c; /* lea n(%rip), %r10 */

	if (BYTES(next, 0, 1) == 0xc3 || is_checked || is_behind || is_at_safepoint) {
		rule->offset = 8;
		rule->fp = UNWIND_FP_SAME;
	}
}

/* Where strings are compared a register is pushed meanwhile. */
static __always_inline void find_pushed(struct unwind_memory *memory, __u64 sp, struct unwind_rule *rule)
{
	__u64 end = sp + rule->offset;

	if (!is_return_address(memory, end - 8) && is_return_address(memory, end))
		rule->offset += 8;
}

/* The rule for an address of a heap, where that is known; else it stays as it was. */
static __always_inline void heap_rule(struct unwind_memory *memory, const struct code_heap *heap,
                                      struct unwind_state *state, __u64 address, struct unwind_rule *rule)
{
	__u32 is_exact = state->flags & UNWIND_EXACT;
	__s32 words = 0;

	if (address - heap->interpreter < heap->interpreter_bytes) {
		/* Below its frame pointer it keeps its caller's stack pointer. As it begins and ends a method that is
		 * another frame's, so where it was interrupted this is a guess; no call precedes where it returns to.
		 */
		if (is_exact)
			state->flags |= UNWIND_GUESSED;
		rule->cfa = UNWIND_CFA_FP_DEREF;
		rule->ra = UNWIND_RA_NEAR + 1;
		rule->fp = UNWIND_FP_BY_FP;
		rule->offset = -8 * 256;
		return;
	}
	if (state->pc == heap->call_return && !is_exact) {
		rule->cfa = UNWIND_FP_RECORD;
		return;
	}
	__u64 blob = find_blob(heap, address);

	if (!blob || walk_read_user(&words, sizeof(words), (void *)(blob + heap->frame_size)))
		return;
	if (words == 0 && is_exact) { /* stubs and adapters, with no frame or one that no size tells */
		rule->cfa = UNWIND_CFA_SP | UNWIND_INFERRED;
		rule->ra = UNWIND_RA_CFA;
		rule->fp = UNWIND_FP_SAME;
		rule->offset = 8;
	}
	if (words < 2 || words > MOST_FRAME_WORDS)
		return;
	rule->cfa = UNWIND_CFA_SP;
	rule->ra = UNWIND_RA_CFA;
	rule->fp = -16;
	rule->offset = 8 * words;
	if (is_exact) {
		adjust_rule(heap, blob, state->pc, rule);
		find_pushed(memory, state->sp, rule);
	}
}

#endif
