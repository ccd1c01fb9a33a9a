/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The search in a table and the step from a frame to its caller: one code for BPF (through bcc's rewriter, without BTF)
 * and for the host. Who includes this says before what memory and tables are:
 *
 *   UNWIND_MACHINE          UNWIND_X86_64 or UNWIND_AARCH64. A constant drops the other's code; a member of `memory` serves
 *                           both
 *   struct unwind_memory    and  static int unwind_read(struct unwind_memory *, __u64 address, __u64 *word)
 *                           a word of the stack; not 0 is the enum unwind_end that the stack then has
 *   struct unwind_tables    and  static int unwind_bucket(struct unwind_tables *, __u32 number, __u32 *first_row)
 *                                static int unwind_row(struct unwind_tables *, __u32 number, __u32 *row)
 *                           not 0 if there is no such element
 *
 * Made for the verifiers of Linux 5.10 to 6.18: no pointer arithmetic, few branches, loops bounded by constants, and
 * every value that indexes masked.
 */
#ifndef TDPROF_UNWIND_STEP_H
#define TDPROF_UNWIND_STEP_H

#include "unwind.h"

#define UNWIND_X86_64 0
#define UNWIND_AARCH64 1

#define UNWIND_INLINE static inline __attribute__((always_inline))

/* Frame pointers that are guessed lead at most this far. */
#define UNWIND_MOST_GUESSED_BYTES (1 << 20)

/*
 * Where registers lie when a signal handler returns (uc: struct ucontext). x86-64: sp points to uc, rbp, rsp and rip are
 * in arch/x86/include/uapi/asm/sigcontext.h. aarch64: sp points to a siginfo_t of 128 bytes, uc's mcontext is at 176,
 * its regs at 8; arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h.
 */
#define UNWIND_X86_64_SIGNAL_RBP 120
#define UNWIND_X86_64_SIGNAL_RSP 160
#define UNWIND_X86_64_SIGNAL_RIP 168
#define UNWIND_AARCH64_SIGNAL_X29 (312 + 8 * 29)
#define UNWIND_AARCH64_SIGNAL_X30 (312 + 8 * 30)
#define UNWIND_AARCH64_SIGNAL_SP (312 + 8 * 31)
#define UNWIND_AARCH64_SIGNAL_PC (312 + 8 * 32)

/* Bits 48 and up of a user address are never set on x86-64; on aarch64 a signed return address has its signature there. */
#define UNWIND_ADDRESS_MASK ((1ULL << 48) - 1)

/* Set the topmost frame. x86-64: `leaf` has been filled where flags say UNWIND_REGISTERS. */
UNWIND_INLINE void unwind_begin(struct unwind_state *state, __u64 pc, __u64 sp, __u64 fp, __u64 lr, __u32 flags)
{
	state->pc = pc & UNWIND_ADDRESS_MASK;
	state->sp = sp;
	state->fp = fp;
	state->lr = lr;
	state->flags = flags | UNWIND_EXACT;
	state->methods[UNWIND_BY_TABLE] = 0;
	state->methods[UNWIND_BY_FP] = 0;
	state->methods[UNWIND_BY_LR] = 0;
}

/* The address to look up: a return address may be the first of the next function, or of the next rule. */
UNWIND_INLINE __u64 unwind_lookup_pc(const struct unwind_state *state)
{
	return state->flags & UNWIND_EXACT ? state->pc : state->pc - 1;
}

/*
 * What to write into a call chain for a frame that is not the topmost. Readers take such addresses for return addresses
 * and look up the one before; an interrupted instruction is the one meant itself.
 */
UNWIND_INLINE __u64 unwind_caller_address(const struct unwind_state *state)
{
	return state->flags & UNWIND_EXACT ? state->pc + 1 : state->pc;
}

/* The number of the rule for an address of which `bucket` and the low byte are given; UNWIND_RULE_NONE if there is none. */
UNWIND_INLINE __u32 unwind_search(struct unwind_tables *tables, __u32 bucket, __u32 low)
{
	__u32 first, end, row;

	if (unwind_bucket(tables, bucket, &first) || unwind_bucket(tables, bucket + 1, &end))
		return UNWIND_RULE_NONE;
	/* A bucket has 256 addresses, so at most 256 rows; real ones have up to 45 and leave after six steps. */
	for (int step = 0; step < 9; step++) {
		if (first >= end)
			break;
		__u32 middle = first + ((end - first) >> 1);

		if (unwind_row(tables, middle, &row))
			return UNWIND_RULE_NONE;
		if (UNWIND_ROW_LOW(row) <= low)
			first = middle + 1;
		else
			end = middle;
	}
	if (first == 0 || unwind_row(tables, first - 1, &row))
		return UNWIND_RULE_NONE;
	return UNWIND_ROW_RULE(row);
}

UNWIND_INLINE int unwind_enter(struct unwind_state *state, __u64 pc, __u64 sp, __u64 fp, enum unwind_method method)
{
	state->pc = pc & UNWIND_ADDRESS_MASK;
	state->sp = sp;
	state->fp = fp;
	state->flags &= UNWIND_GUESSED;
	state->methods[method] += 1;
	/* Who is called at the bottom of a thread finds 0 where its return address would be. */
	if (state->pc == 0)
		return state->flags & UNWIND_GUESSED ? UNWIND_END_NO_MAPPING : UNWIND_END_COMPLETE;
	return UNWIND_NOT_ENDED;
}

/* Along a frame record, {caller's FP, return address}, the same on both machines. */
UNWIND_INLINE int unwind_step_fp(struct unwind_memory *memory, struct unwind_state *state, int is_guess)
{
	__u64 fp = state->fp, next_fp, pc;
	int end;

	/* Both machines' ABIs let the outermost frame have FP 0. Where FP may be any value, that says nothing. */
	if (fp == 0 && !is_guess)
		return UNWIND_END_COMPLETE;
	if (fp < state->sp || fp & 7 || fp - state->sp > UNWIND_MOST_GUESSED_BYTES)
		return is_guess ? UNWIND_END_NO_UNWIND_INFO : UNWIND_END_BAD_SP;
	if (is_guess)
		state->flags |= UNWIND_GUESSED;
	end = unwind_read(memory, fp, &next_fp);
	if (end)
		return end;
	end = unwind_read(memory, fp + 8, &pc);
	if (end)
		return end;
	return unwind_enter(state, pc, fp + 16, next_fp, UNWIND_BY_FP);
}

/* What a signal interrupted: all its registers are known, and the stack may be another one. */
UNWIND_INLINE int unwind_step_signal(struct unwind_memory *memory, struct unwind_state *state)
{
	__u64 frame = state->sp, pc, sp, fp;
	int end;

	if (UNWIND_MACHINE == UNWIND_AARCH64) {
		end = unwind_read(memory, frame + UNWIND_AARCH64_SIGNAL_PC, &pc);
		end = end ? end : unwind_read(memory, frame + UNWIND_AARCH64_SIGNAL_SP, &sp);
		end = end ? end : unwind_read(memory, frame + UNWIND_AARCH64_SIGNAL_X29, &fp);
		end = end ? end : unwind_read(memory, frame + UNWIND_AARCH64_SIGNAL_X30, &state->lr);
	} else {
		end = unwind_read(memory, frame + UNWIND_X86_64_SIGNAL_RIP, &pc);
		end = end ? end : unwind_read(memory, frame + UNWIND_X86_64_SIGNAL_RSP, &sp);
		end = end ? end : unwind_read(memory, frame + UNWIND_X86_64_SIGNAL_RBP, &fp);
	}
	if (end)
		return end;
	end = unwind_enter(state, pc, sp, fp, UNWIND_BY_TABLE);
	state->flags |= UNWIND_EXACT;
	return end;
}

/* The CFA by a rule that is no command; not 0 is the end. */
UNWIND_INLINE int unwind_cfa(struct unwind_memory *memory, const struct unwind_state *state,
			     const struct unwind_rule *rule, __u64 *cfa)
{
	__u32 kind = rule->cfa;
	__s64 offset = rule->offset;
	__u64 base = kind == UNWIND_CFA_FP || kind == UNWIND_CFA_FP_DEREF ? state->fp : state->sp;
	int is_deref = kind == UNWIND_CFA_SP_DEREF || kind == UNWIND_CFA_FP_DEREF;

	if (UNWIND_MACHINE == UNWIND_X86_64) {
		if (kind == UNWIND_CFA_PLT)
			offset = (__s64)(state->pc & 15) >= offset ? 16 : 8;
		if (kind >= UNWIND_CFA_REGISTER) {
			if (!(state->flags & UNWIND_REGISTERS))
				return UNWIND_END_UNSUPPORTED_RULE;
			base = state->leaf[kind & 15];
			if (kind >= UNWIND_CFA_INDEXED_DEREF)
				base = state->sp + 8 * base;
			is_deref = kind >= UNWIND_CFA_REGISTER_DEREF;
		}
	} else if (kind > UNWIND_CFA_FP_DEREF) {
		return UNWIND_END_UNSUPPORTED_RULE;
	}
	if (is_deref) {
		__u64 word;
		int end = unwind_read(memory, base + (offset >> 8), &word);

		if (end)
			return end;
		base = word;
		offset &= 0xff;
	}
	*cfa = base + offset;
	return 0;
}

/* The frame pointer and the return address by a rule that is no command; not 0 is the end. */
UNWIND_INLINE int unwind_saved(struct unwind_memory *memory, const struct unwind_state *state,
			       const struct unwind_rule *rule, __u64 cfa, __u64 *fp, __u64 *pc)
{
	__u32 kind = rule->ra;
	__s64 slot = rule->fp;
	__u64 at = cfa - 8, saved;
	int end;

	*fp = state->fp;
	if (kind == UNWIND_RA_SLOT) {
		at = cfa + slot;
	} else if (slot != UNWIND_FP_SAME) {
		__u64 fp_at = (slot & UNWIND_FP_BY_FP ? state->fp : slot & UNWIND_FP_BY_SP ? state->sp : cfa) +
			      (slot & ~7LL);

		end = unwind_read(memory, fp_at, &saved);
		/* Below SP, where copies of stacks do not reach: an epilogue has popped it, so FP is the caller's again. */
		if (end && !(state->flags & UNWIND_EXACT && fp_at < state->sp))
			return end;
		if (!end)
			*fp = saved;
		if (kind >= UNWIND_RA_NEAR - 64)
			at = fp_at + ((__s64)kind - UNWIND_RA_NEAR) * 8;
	}
	if (kind == UNWIND_RA_LR) {
		if (!(state->flags & UNWIND_EXACT))
			return UNWIND_END_LR_MID_STACK;
		*pc = state->lr;
		return 0;
	}
	if (UNWIND_MACHINE == UNWIND_X86_64 && (kind & ~15U) == UNWIND_RA_REGISTER) {
		if (!(state->flags & UNWIND_REGISTERS))
			return UNWIND_END_UNSUPPORTED_RULE;
		*pc = state->leaf[kind & 15];
		return 0;
	}
	return unwind_read(memory, at, pc);
}

/*
 * Makes `state` that of the caller, or leaves it partly changed and returns why the stack ends here. The caller's pc is
 * checked only by looking it up: who finds no executable mapping there ends the stack with UNWIND_END_NO_MAPPING.
 */
UNWIND_INLINE int unwind_step(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_rule *rule)
{
	__u32 kind = rule->cfa;
	__u64 cfa, fp, pc;
	int end;

	if (kind >= UNWIND_NONE && kind <= UNWIND_UNSUPPORTED) {
		if (kind == UNWIND_STOP)
			return UNWIND_END_COMPLETE;
		if (kind == UNWIND_SIGNAL)
			return unwind_step_signal(memory, state);
		if (kind == UNWIND_UNSUPPORTED)
			return UNWIND_END_UNSUPPORTED_RULE;
		if (kind == UNWIND_NONE)
			return UNWIND_END_NO_UNWIND_INFO;
		return unwind_step_fp(memory, state, kind == UNWIND_FP_GUESS);
	}
	end = unwind_cfa(memory, state, rule, &cfa);
	if (end)
		return end;
	/* Only a frame that has pushed nothing may have its caller's stack pointer: a leaf of aarch64, vfork. */
	if (cfa & 7 || cfa < state->sp || (cfa == state->sp && !(state->flags & UNWIND_EXACT)))
		return UNWIND_END_BAD_SP;
	end = unwind_saved(memory, state, rule, cfa, &fp, &pc);
	if (end)
		return end;
	return unwind_enter(state, pc, cfa, fp, rule->ra == UNWIND_RA_LR ? UNWIND_BY_LR : UNWIND_BY_TABLE);
}

#endif
