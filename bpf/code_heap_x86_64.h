/* SPDX-License-Identifier: GPL-2.0 */
/* Where a JVM's compiled code has no whole frame, by its instructions on x86-64. Part of code_heap.h. */
#ifndef TDPROF_CODE_HEAP_X86_64_H
#define TDPROF_CODE_HEAP_X86_64_H

#define BYTES(word, first, count) ((word) >> (8 * (first)) & ((1ULL << (8 * (count))) - 1))

/*
 * Behind what makes a frame collectors may look whether the method may still run, before HotSpot calls the frame
 * complete: cmpl $n, m(%r15), behind padding; je or jne; call.
 */
static __always_inline int is_at_entry_barrier(__u64 next, __u64 before)
{
	int is_made = BYTES(before, 4, 3) == 0xec8348 || BYTES(before, 1, 3) == 0xec8148;      /* sub $n, %rsp */
	int is_saved = BYTES(before, 3, 4) == 0x246c8948 || BYTES(before, 0, 4) == 0x24ac8948; /* mov %rbp, n(%rsp) */
	int is_behind =
		BYTES(before, 0, 3) == 0x7f8141 || BYTES(before, 6, 2) == 0x0574 || BYTES(before, 2, 2) == 0x840f;

	return is_made || is_saved || is_behind || BYTES(next, 0, 3) == 0x7f8141;
}

/* Before a frame is made, and where it is given back, which the instructions tell that HotSpot uses for that. */
static __always_inline void adjust_frame(const struct code_heap *heap, __u64 blob, __u64 pc, struct unwind_rule *rule)
{
	__u64 next = 0, before = 0;

	walk_read_user(&next, sizeof(next), (void *)pc);
	walk_read_user(&before, sizeof(before), (void *)(pc - sizeof(before)));
	if (is_before_frame(heap, blob, pc)) {
		if (BYTES(next, 0, 4) == 0x246c8948 || BYTES(next, 0, 4) == 0x24ac8948) { /* mov %rbp, n(%rsp) */
			rule->fp = UNWIND_FP_SAME;
			return;
		}
		if (is_at_entry_barrier(next, before))
			return;
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
static __always_inline void find_pushed(struct unwind_memory *memory, const struct code_heap *heap, __u64 sp,
                                        struct unwind_rule *rule)
{
	__u64 end = sp + rule->offset;

	if (!returns_by(memory, heap, end - 8) && returns_by(memory, heap, end))
		rule->offset += 8;
}

/* The rule where a thread stands in the midst of a compiled method, of which it holds while there is a frame. */
static __always_inline void adjust_rule(struct unwind_memory *memory, const struct code_heap *heap, __u64 blob,
                                        const struct unwind_state *state, struct unwind_rule *rule)
{
	adjust_frame(heap, blob, state->pc, rule);
	find_pushed(memory, heap, state->sp, rule);
}

/* As if a stub had no frame. */
static __always_inline void stub_rule(const struct unwind_state *state, struct unwind_rule *rule)
{
	(void)state;
	rule->cfa = UNWIND_CFA_SP | UNWIND_INFERRED;
	rule->ra = UNWIND_RA_CFA;
	rule->fp = UNWIND_FP_SAME;
	rule->offset = 8;
}

#endif
