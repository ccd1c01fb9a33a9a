/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Where a JVM's compiled code has no whole frame, by its instructions on aarch64. Part of code_heap.h.
 *
 * HotSpot makes a frame by sub sp, sp, #n; stp x29, x30, [sp, #n - 16], a large one by stp x29, x30, [sp, #-16]! and
 * what sub it takes. It gives it back the other way round, looks for a safepoint, and returns.
 */
#ifndef TDPROF_CODE_HEAP_AARCH64_H
#define TDPROF_CODE_HEAP_AARCH64_H

#define IS_SUB_SP(code)      (((code) & 0xff8003ff) == 0xd10003ff) /* sub sp, sp, #n */
#define IS_ADD_SP(code)      (((code) & 0xff8003ff) == 0x910003ff) /* add sp, sp, #n */
#define ADD_SP_X8            0x8b2863ff                            /* add sp, sp, x8 */
#define SUB_SP_X8            0xcb2863ff                            /* sub sp, sp, x8 */
#define MOV_FP               0x910003fd                            /* mov x29, sp */
#define IS_STP(code)         (((code) & 0xffc07fff) == 0xa9007bfd) /* stp x29, x30, [sp, #n] */
#define STP_PAIR             0xa9bf7bfd                            /* stp x29, x30, [sp, #-16]! */
#define LDP_PAIR             0xa8c17bfd                            /* ldp x29, x30, [sp], #16 */
#define IS_THREAD_LOAD(code) (((code) & 0xffc003e0) == 0xf9400380) /* ldr x, [x28, #n] */
#define NOP                  0xd503201f
#define IS_SUB_X9_SP(code)   (((code) & 0xff8003ff) == 0xd10003e9) /* sub x9, sp, #n */
#define IS_MOV_X9(code)      (((code) & 0xff80001f) == 0x92800009) /* mov x9, #-n */
#define TOUCH_X9             0xf900013f                            /* str xzr, [x9] */
#define TOUCH_SP_X9          0xf8296bff                            /* str xzr, [sp, x9] */
#define CMP_SP_X8            0xeb2863ff
#define IS_B_HI(code)        (((code) & 0xff00001f) == 0x54000008)
#define RET                  0xd65f03c0

static __always_inline int is_word(__u64 at, __u64 value)
{
	__u64 word = 0;

	return !walk_read_user(&word, sizeof(word), (void *)at) && word == value;
}

/* Whether the next instruction is one before those that make a frame (nop, and what touches the stack's end), or the
 * first of them. */
static __always_inline int is_at_beginning(__u32 next)
{
	return next == NOP || IS_SUB_X9_SP(next) || IS_MOV_X9(next) || next == TOUCH_X9 || next == TOUCH_SP_X9 ||
	       IS_SUB_SP(next) || next == STP_PAIR;
}

/*
 * Whether the frame is made before HotSpot calls it complete: collectors look in between whether the method may still
 * run, and may call to ask. Else LR is what the frame has of it.
 */
static __always_inline int is_at_entry_barrier(const struct unwind_state *state, __u32 next, __s32 offset)
{
	return state->lr == state->pc || (!is_at_beginning(next) && is_word(state->sp + offset - 8, state->lr));
}

/* The caller is in LR still, or again, and so many bytes are on the stack. */
static __always_inline void rule_by_lr(struct unwind_rule *rule, __s32 offset)
{
	rule->ra = UNWIND_RA_LR;
	rule->fp = UNWIND_FP_SAME;
	rule->offset = offset;
}

/* Whether a frame was given back: where HotSpot returns, or looks for a safepoint before it does. */
static __always_inline int is_given_back(__u32 before, __u32 next)
{
	return next == RET || next == CMP_SP_X8 || (before == CMP_SP_X8 && IS_B_HI(next)) ||
	       ((IS_ADD_SP(before) || before == LDP_PAIR) && IS_THREAD_LOAD(next));
}

/* The rule where a thread stands in the midst of a compiled method; it is the one that holds while there is a frame. */
static __always_inline void adjust_rule(struct unwind_memory *memory, const struct code_heap *heap, __u64 blob,
                                        const struct unwind_state *state, struct unwind_rule *rule)
{
	__u64 pc = state->pc;
	__u32 before = 0, next = 0;

	walk_read_user(&before, sizeof(before), (void *)(pc - sizeof(before)));
	walk_read_user(&next, sizeof(next), (void *)pc);
	if (is_before_frame(heap, blob, pc)) {
		int is_pair = before == STP_PAIR || before == MOV_FP || next == SUB_SP_X8;
		int is_made = IS_SUB_SP(before) || before == SUB_SP_X8 || IS_STP(before);

		if (!is_made && !is_pair && is_at_entry_barrier(state, next, rule->offset))
			return;
		/* Registers hold what is stored, or about to be. */
		rule_by_lr(rule, is_made ? rule->offset : 16 * is_pair);
		if (before == MOV_FP)
			rule->fp = -16;
		return;
	}
	if (is_given_back(before, next)) {
		rule_by_lr(rule, 0);
	} else if (next == LDP_PAIR && (IS_ADD_SP(before) || before == ADD_SP_X8)) {
		rule->offset = 16;
	} else if (!returns_by(memory, heap, state->sp + rule->offset - 8)) {
		/* What looks for a safepoint, farther on */
		rule->cfa = UNWIND_CFA_SP | UNWIND_INFERRED;
		rule_by_lr(rule, 0);
	}
}

/* Stubs have no frame, or one with a record of FP and LR that FP points to. */
static __always_inline void stub_rule(const struct unwind_state *state, struct unwind_rule *rule)
{
	rule->cfa = UNWIND_CFA_SP | UNWIND_INFERRED;
	rule_by_lr(rule, 0);
	if (state->fp >= state->sp && is_word(state->fp + 8, state->lr)) {
		rule->cfa = UNWIND_CFA_FP | UNWIND_INFERRED;
		rule->ra = UNWIND_RA_CFA;
		rule->fp = -16;
		rule->offset = 16;
	}
}

#endif
