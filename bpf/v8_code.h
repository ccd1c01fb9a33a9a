/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The rule within code that V8 has made. All of it has frames by frame pointers, which V8 itself goes along, and which
 * are there whenever it calls; but for what makes the frame of baseline code, which that calls first. Where a thread
 * stands in such code, the frame may not be there yet, or not any more: then the return address is on top of the
 * stack, or behind FP that was pushed there (x86-64).
 */
#ifndef TDPROF_V8_CODE_H
#define TDPROF_V8_CODE_H

#define V8_BYTES(word, first, count) ((word) >> (8 * (first)) & ((1ULL << (8 * (count))) - 1))

/* Whether the return address may be in a register: a frame is given back, with arguments that lie above that. */
static __always_inline int v8_moves_return(__u64 next)
{
	/* lea n(%rsp, …), %rsp; add $n, %rsp; push of a register and ret, of two bytes and of three */
	return (V8_BYTES(next, 0, 2) == 0x8d48 && (V8_BYTES(next, 2, 1) & 0x38) == 0x20) ||
	       V8_BYTES(next, 0, 3) == 0xc48348 || V8_BYTES(next, 0, 3) == 0xc48148 || (next & 0xfff8) == 0xc350 ||
	       (next & 0xfff8ff) == 0xc35041;
}

/* `callees`: frames above this one. */
static __always_inline void v8_rule(struct unwind_memory *memory, const struct unwind_state *state, __u32 callees,
                                    struct unwind_rule *rule)
{
	int is_leaf = state->flags & UNWIND_EXACT;
	__u64 top[2] = {}, next = 0;

	rule->cfa = UNWIND_FP_RECORD;
	if (!is_leaf && callees > 1)
		return;
	if (UNWIND_MACHINE == UNWIND_AARCH64) {
		rule->cfa = UNWIND_FP_GUESS;
		return;
	}
	if (is_leaf)
		walk_read_user(&next, sizeof(next), (void *)state->pc);
	walk_read_user(top, sizeof(top), (void *)state->sp);
	/* push %rbp; mov %rsp, %rbp; ret; ret $n */
	int is_first = V8_BYTES(next, 0, 4) == 0xe5894855, is_second = V8_BYTES(next, 0, 3) == 0xe58948;
	int is_last = V8_BYTES(next, 0, 1) == 0xc3 || V8_BYTES(next, 0, 1) == 0xc2;
	int is_on_top = unwind_follows_call(memory, top[0], 1), is_behind = unwind_follows_call(memory, top[1], 1);

	/* Where none is on top there is a frame. One may be there that nobody has written over yet. */
	if (is_on_top || is_second || v8_moves_return(next))
		rule->cfa = UNWIND_FP_GUESS;
	if ((is_on_top && (is_first || is_last)) || (is_behind && is_second)) {
		rule->cfa = UNWIND_CFA_SP;
		rule->fp = is_second ? -16 : UNWIND_FP_SAME;
		rule->offset = is_second ? 16 : 8;
	}
}

#endif
