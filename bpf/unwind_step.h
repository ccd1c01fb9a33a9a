/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The step from a frame to its caller, beside unwind_search.h: one code for BPF (through bcc's rewriter, without BTF)
 * and for the host. Who includes this says before what memory and tables are:
 *
 *   UNWIND_MACHINE          UNWIND_X86_64 or UNWIND_AARCH64. A constant drops the other's code; a member of `memory`
 * serves both struct unwind_memory    and  static int unwind_read(struct unwind_memory *, __u64 address, __u64 *word)
 *                           a word of the stack; not 0 is the enum unwind_end that the stack then has
 *   static int unwind_returns_to(struct unwind_memory *, __u64 pc)
 *                           whether execution returns to an address (unwind_calls.h); negative: not known
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
#include "unwind_calls.h"
#include "unwind_search.h"

/* Frame pointers that are guessed lead at most this far. */
#define UNWIND_MOST_GUESSED_BYTES (1 << 20)

/*
 * Where registers lie when a signal handler returns (uc: struct ucontext). x86-64: sp points to uc, rbp, rsp and rip
 * are in arch/x86/include/uapi/asm/sigcontext.h. aarch64: sp points to a siginfo_t of 128 bytes, uc's mcontext is at
 * 176, its regs at 8; arch/arm64/include/uapi/asm/{ucontext,sigcontext}.h.
 */
#define UNWIND_X86_64_SIGNAL_RBP  120
#define UNWIND_X86_64_SIGNAL_RSP  160
#define UNWIND_X86_64_SIGNAL_RIP  168
#define UNWIND_AARCH64_SIGNAL_X29 (312 + 8 * 29)
#define UNWIND_AARCH64_SIGNAL_X30 (312 + 8 * 30)
#define UNWIND_AARCH64_SIGNAL_SP  (312 + 8 * 31)
#define UNWIND_AARCH64_SIGNAL_PC  (312 + 8 * 32)

/* Bits 48 and up of a user address are never set on x86-64; on aarch64 a signed return address has its signature there.
 */
#define UNWIND_ADDRESS_MASK ((1ULL << 48) - 1)

/* Set the topmost frame. x86-64: `leaf` has been filled where flags say UNWIND_REGISTERS. */
UNWIND_INLINE void unwind_begin(struct unwind_state *state, __u64 pc, __u64 sp, __u64 fp, __u64 lr, __u32 flags)
{
	state->pc = pc & UNWIND_ADDRESS_MASK;
	state->sp = sp;
	state->fp = fp;
	state->lr = lr;
	state->callback = 0;
	state->flags = flags | UNWIND_EXACT;
	state->methods[UNWIND_BY_TABLE] = 0;
	state->methods[UNWIND_BY_FP] = 0;
	state->methods[UNWIND_BY_LR] = 0;
	state->recent = 0;
}

/* Whether a guess may be right: execution returns to where it leads. */
UNWIND_INLINE int unwind_follows_call(struct unwind_memory *memory, __u64 pc, int if_not_known)
{
	int is_known = pc ? unwind_returns_to(memory, pc) : 0;

	return is_known < 0 ? if_not_known : is_known;
}

/* Where the caller's registers are. */
struct unwind_places {
	__u64 cfa;   /* the caller's sp */
	__u64 fp_at; /* address of the saved FP; 0: it is the caller's already */
	__u64 pc_at; /* of the return address; 0: it is `pc` */
	__u64 pc;
};

/* Along a frame record, {caller's FP, return address}, the same on both machines. */
UNWIND_INLINE int unwind_by_fp(const struct unwind_state *state, int is_guess, struct unwind_places *places)
{
	__u64 fp = state->fp;

	/* Both machines' ABIs let the outermost frame have FP 0. Where FP may be any value, that says nothing. */
	if (fp == 0 && !is_guess)
		return UNWIND_END_COMPLETE;
	if (fp < state->sp || fp & 7 || fp - state->sp > UNWIND_MOST_GUESSED_BYTES)
		return is_guess ? UNWIND_END_NO_UNWIND_INFO : UNWIND_END_BAD_SP;
	places->cfa = fp + 16;
	places->fp_at = fp;
	places->pc_at = fp + 8;
	return 0;
}

/* Whether the caller stands where it was interrupted, its x30 known. */
UNWIND_INLINE int unwind_is_interrupted(int machine, const struct unwind_rule *rule)
{
	return machine == UNWIND_AARCH64 && rule->ra == UNWIND_RA_INTERRUPTED;
}

/* Whether the CFA is relative to a register other than FP and SP, which may have changed in the callees. */
UNWIND_INLINE int unwind_is_old(const struct unwind_state *state, const struct unwind_rule *rule)
{
	return (rule->cfa & ~UNWIND_INFERRED) >= UNWIND_CFA_REGISTER && !(state->flags & UNWIND_EXACT);
}

/* The CFA by a rule that is no command; not 0 is the end. */
UNWIND_INLINE int unwind_cfa(struct unwind_memory *memory, const struct unwind_state *state,
                             const struct unwind_rule *rule, __u64 *cfa)
{
	__u32 kind = rule->cfa & ~UNWIND_INFERRED;
	__s64 offset = rule->offset;
	int is_left = kind == UNWIND_CFA_FP_LEFT;
	__u64 base = kind == UNWIND_CFA_FP || kind == UNWIND_CFA_FP_DEREF || is_left ? state->fp : state->sp;
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
	} else if (kind > UNWIND_CFA_FP_DEREF && !is_left) {
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
	/* Compilers have x29 point to the frame record of who has one, whenever it calls. */
	if (UNWIND_MACHINE == UNWIND_AARCH64 && state->flags & UNWIND_SP_LOW && kind == UNWIND_CFA_SP &&
	    rule->ra == UNWIND_RA_NEAR + 1 && !(rule->fp & 7))
		*cfa = state->fp - rule->fp;
	if (UNWIND_MACHINE == UNWIND_AARCH64 && state->flags & UNWIND_SP_LOW && rule->ra == UNWIND_RA_KEPT)
		*cfa = state->fp + offset;
	/* Only a frame that has pushed nothing may have its caller's stack pointer: a leaf of aarch64, vfork. */
	if (*cfa & 7 || (*cfa < state->sp && !is_left) || (*cfa == state->sp && !(state->flags & UNWIND_EXACT)))
		return UNWIND_END_BAD_SP;
	return 0;
}

/* All bits if one is set: to choose without a branch, each of which doubles what a verifier goes through. */
UNWIND_INLINE __u64 unwind_mask(__u64 bits)
{
	__u64 mask = (bits | -bits) >> 63;

	mask = -mask;
	__asm__ volatile("" : "+r"(mask)); /* else the compiler makes a branch of it */
	return mask;
}

/* Of a frame that libgcc writes over: where it returns to is kept elsewhere, FP is lost once it is that of the
 * handler's function. */
UNWIND_INLINE void unwind_kept(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_rule *rule,
                               struct unwind_places *places)
{
	__u64 other_at = places->fp_at, saved_at = 0, fp = 0, other = 0;

	places->pc_at = places->fp_at;
	places->fp_at = places->cfa - rule->offset;
	other_at += UNWIND_MACHINE == UNWIND_X86_64 ? UNWIND_X86_64_CONTEXT_BYTES - UNWIND_X86_64_CONTEXT_RA + 8 * 6
	                                            : UNWIND_AARCH64_CONTEXT_BYTES - UNWIND_AARCH64_CONTEXT_RA + 8 * 29;
	if (unwind_read(memory, places->fp_at, &fp) || unwind_read(memory, other_at, &saved_at) ||
	    unwind_read(memory, saved_at, &other) || fp == other) {
		places->fp_at = 0;
		state->fp = 1; /* where no frame is */
	}
}

/* Where FP and the return address are, by a rule that is no command and has set the CFA; not 0 is the end. */
UNWIND_INLINE int unwind_saved(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_rule *rule,
                               struct unwind_places *places)
{
	__u32 kind = rule->ra;
	__s64 slot = rule->fp;
	int is_interrupted = unwind_is_interrupted(UNWIND_MACHINE, rule);

	places->pc_at = places->cfa - 8;
	if (slot != UNWIND_FP_SAME) {
		__u64 base = places->cfa, by_fp = unwind_mask(slot & UNWIND_FP_BY_FP),
		      by_sp = unwind_mask(slot & UNWIND_FP_BY_SP);
		__u64 at = (base ^ ((base ^ state->fp) & by_fp) ^ ((base ^ state->sp) & by_sp)) + (slot & ~7LL);

		if (kind == UNWIND_RA_SLOT || is_interrupted)
			places->pc_at = at;
		else
			places->fp_at = at;
		if (kind >= UNWIND_RA_NEAR - 64)
			places->pc_at = at + ((__s64)kind - UNWIND_RA_NEAR) * 8;
	}
	if (kind == UNWIND_RA_LR || (is_interrupted && slot == UNWIND_FP_SAME)) {
		if (!(state->flags & UNWIND_EXACT))
			return UNWIND_END_LR_MID_STACK;
		places->pc_at = 0;
		places->pc = state->lr;
	} else if (UNWIND_MACHINE == UNWIND_X86_64 && (kind & ~15U) == UNWIND_RA_REGISTER) {
		if ((state->flags & (UNWIND_REGISTERS | UNWIND_EXACT)) != (UNWIND_REGISTERS | UNWIND_EXACT))
			return UNWIND_END_UNSUPPORTED_RULE;
		places->pc_at = 0;
		places->pc = state->leaf[kind & 15];
	} else if (kind == UNWIND_RA_KEPT) {
		unwind_kept(memory, state, rule, places);
	}
	return is_interrupted ? unwind_read(memory, places->cfa - 16, &state->lr) : 0;
}

/* What a signal interrupted: all its registers are known, and the stack may be another one. */
UNWIND_INLINE int unwind_signal(struct unwind_memory *memory, struct unwind_state *state, struct unwind_places *places)
{
	__u64 frame = state->sp;
	int end;

	if (UNWIND_MACHINE == UNWIND_AARCH64) {
		places->pc_at = frame + UNWIND_AARCH64_SIGNAL_PC;
		places->fp_at = frame + UNWIND_AARCH64_SIGNAL_X29;
		end = unwind_read(memory, frame + UNWIND_AARCH64_SIGNAL_X30, &state->lr);
		return end ? end : unwind_read(memory, frame + UNWIND_AARCH64_SIGNAL_SP, &places->cfa);
	}
	places->pc_at = frame + UNWIND_X86_64_SIGNAL_RIP;
	places->fp_at = frame + UNWIND_X86_64_SIGNAL_RBP;
	return unwind_read(memory, frame + UNWIND_X86_64_SIGNAL_RSP, &places->cfa);
}

/*
 * Back from Go's stacks, by the goroutine's register, r14 or x28, and fields of its structures g and m
 * (runtime/runtime2.go): g begins with the two ends of its stack, has its m at 48, and at 56 and 64 the sp and the pc
 * that it left its stack with; m begins with its own g, on whose stack schedulers and C run. Where C calls Go, that g's
 * sp is where the last callback left C, and the word there (aarch64: the second behind) where the callback around it
 * did.
 */
#define UNWIND_GO_G_END 8
#define UNWIND_GO_G_M   48
#define UNWIND_GO_G_SP  56
#define UNWIND_GO_G_PC  64

/* From the sp that a callback left C's stack with to where the callback around it did. */
#define UNWIND_GO_CALLBACK_AROUND (UNWIND_MACHINE == UNWIND_AARCH64 ? 16 : 0)

/* Set in unwind_state.callback: C's stack is at least here where a callback has left it; none was met yet. */
#define UNWIND_NO_CALLBACK 1

/*
 * The sp that a callback from C has left C's stack with. Where the thread is on that stack it may be amid a callback
 * that is noted already, or still, but has not changed stacks: what is noted then lies below what C was called from.
 */
UNWIND_INLINE int unwind_callback(struct unwind_memory *memory, struct unwind_state *state, __u64 g, __u64 *sp)
{
	__u64 last = state->callback;
	__u64 at = last && !(last & UNWIND_NO_CALLBACK) ? last + UNWIND_GO_CALLBACK_AROUND : g + UNWIND_GO_G_SP;
	int end = unwind_read(memory, at, sp);

	if (!end && last & UNWIND_NO_CALLBACK && *sp < last)
		end = unwind_read(memory, *sp + UNWIND_GO_CALLBACK_AROUND, sp);
	state->callback = *sp;
	return end ? end : *sp <= last || *sp & 7 ? UNWIND_END_UNSUPPORTED_RULE : 0;
}

UNWIND_INLINE int unwind_go(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_rule *rule,
                            struct unwind_places *places)
{
	__u64 *cfa = &places->cfa;
	__u32 offset = rule->offset, flag = offset >> 16 ? UNWIND_SWITCHED : 0;
	__u64 g = 0, m = 0, word = 0;
	int end;

	if (rule->cfa == UNWIND_GO_CALL_OF_C) {
		end = unwind_read(memory, state->sp + (offset >> 8), &g);
		if (!end)
			end = unwind_read(memory, g + UNWIND_GO_G_END, cfa);
		if (!end)
			end = unwind_read(memory, state->sp + (offset & 0xff), &word);
		*cfa -= word; /* now the callee's sp; aarch64's return addresses lie at the lower end of the frame */
		places->pc_at = *cfa;
		*cfa += rule->fp;
		if (UNWIND_MACHINE == UNWIND_X86_64)
			places->pc_at = *cfa - 8;
		if (!state->callback)
			state->callback = state->sp | UNWIND_NO_CALLBACK;
		state->leaf[14] = g; /* C's code may have had another value there */
		return end;
	}
	if (!(state->flags & UNWIND_REGISTERS) || state->flags & flag)
		return UNWIND_END_UNSUPPORTED_RULE;
	state->flags |= flag;
	g = state->leaf[14];
	if (unwind_read(memory, g + UNWIND_GO_G_M, &m) || unwind_read(memory, m, &word))
		return UNWIND_END_UNSUPPORTED_RULE;
	/* r14 (x28) is a goroutine of this m if that is its own or its current one; in C's code it may be anything. */
	if (word != g && (unwind_read(memory, m + rule->fp, &word) || word != g))
		return UNWIND_END_UNSUPPORTED_RULE;
	end = unwind_read(memory, m + (offset >> 16), &g);
	if (end)
		return end;
	if (!g)
		return UNWIND_END_COMPLETE; /* the scheduler between two goroutines */
	end = flag ? unwind_read(memory, g + UNWIND_GO_G_SP, cfa) : unwind_callback(memory, state, g, cfa);
	places->pc_at = *cfa; /* where aarch64 has it */
	if (unwind_is_interrupted(UNWIND_MACHINE, rule)) {
		places->pc_at = g + UNWIND_GO_G_PC;
		return end ? end : unwind_read(memory, g + (offset & 0xffff), &state->lr);
	}
	*cfa += offset & 0xffff;
	if (UNWIND_MACHINE == UNWIND_X86_64)
		places->pc_at = rule->ra == UNWIND_RA_SLOT ? g + UNWIND_GO_G_PC : *cfa - 8;
	return end;
}

/* Where the caller's registers are, by any rule; not 0 is the end. */
UNWIND_INLINE int unwind_find(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_rule *rule,
                              struct unwind_places *places)
{
	__u32 kind = rule->cfa & ~UNWIND_INFERRED;
	int end;

	if (kind == UNWIND_GO_SWITCH || kind == UNWIND_GO_CALL_OF_C) {
		end = unwind_go(memory, state, rule, places);
		return end ? end : places->cfa & 7 ? UNWIND_END_BAD_SP : 0;
	}
	if (kind < UNWIND_NONE || kind > UNWIND_GO_CALL_OF_C) {
		end = unwind_cfa(memory, state, rule, &places->cfa);
		return end ? end : unwind_saved(memory, state, rule, places);
	}
	if (kind == UNWIND_STOP)
		return UNWIND_END_COMPLETE;
	if (kind == UNWIND_SIGNAL)
		return unwind_signal(memory, state, places);
	if (kind >= UNWIND_UNSUPPORTED)
		return UNWIND_END_UNSUPPORTED_RULE;
	if (kind == UNWIND_NONE)
		return UNWIND_END_NO_UNWIND_INFO;
	return unwind_by_fp(state, kind == UNWIND_FP_GUESS, places);
}

/* Makes `state` that of the caller; not 0 is the end. */
UNWIND_INLINE int unwind_enter(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_rule *rule,
                               const struct unwind_places *places)
{
	__u32 kind = rule->cfa & ~UNWIND_INFERRED, kept = UNWIND_GUESSED | UNWIND_REGISTERS | UNWIND_SWITCHED;
	int is_old = unwind_is_old(state, rule),
	    is_exact = kind == UNWIND_SIGNAL || unwind_is_interrupted(UNWIND_MACHINE, rule);
	int is_guess = rule->cfa & UNWIND_INFERRED || kind == UNWIND_FP_GUESS || is_old;
	__u64 fp = state->fp, pc = places->pc;
	__u32 method;
	int end;

	if (places->fp_at) {
		end = unwind_read(memory, places->fp_at, &fp);
		/* Below SP, where copies of stacks do not reach: an epilogue has popped it, so FP is the caller's
		 * again. */
		if (end && !(state->flags & UNWIND_EXACT && places->fp_at < state->sp))
			return end;
		if (end)
			fp = state->fp;
	}
	if (places->pc_at) {
		end = unwind_read(memory, places->pc_at, &pc);
		if (end)
			return end;
	}
	pc &= UNWIND_ADDRESS_MASK;
	if ((rule->cfa & UNWIND_INFERRED || is_old) && !unwind_follows_call(memory, pc, !is_old))
		return UNWIND_END_NO_UNWIND_INFO;
	if (is_guess)
		state->flags |= UNWIND_GUESSED;
	if (kind == UNWIND_SIGNAL)
		kept = UNWIND_GUESSED;
	state->pc = pc;
	state->sp = places->cfa;
	state->fp = fp;
	state->flags = (state->flags & kept) | (is_exact ? UNWIND_EXACT : 0);
	if (UNWIND_MACHINE == UNWIND_AARCH64 && (kind == UNWIND_FP_GUESS || kind == UNWIND_FP_RECORD))
		state->flags |= UNWIND_SP_LOW;
	method = rule->ra == UNWIND_RA_LR && kind != UNWIND_FP_GUESS && kind != UNWIND_FP_RECORD ? UNWIND_BY_LR
	         : kind == UNWIND_FP_RECORD || kind == UNWIND_FP_GUESS                           ? UNWIND_BY_FP
	                                                                                         : UNWIND_BY_TABLE;
	state->methods[method] += 1;
	state->recent = state->recent << 2 | method;
	/* Who is called at the bottom of a thread finds 0 where its return address would be. What a signal interrupted
	 * there has called a function pointer that was 0. */
	if (pc == 0)
		return state->flags & (UNWIND_GUESSED | UNWIND_EXACT) ? UNWIND_END_NO_MAPPING : UNWIND_END_COMPLETE;
	return UNWIND_NOT_ENDED;
}

/*
 * Makes `state` that of the caller, or leaves it as it was and returns why the stack ends here; or, after a rule that
 * was inferred, sets UNWIND_TRY_FP and nothing else: then the step is made again, with the rule UNWIND_INFERRED |
 * UNWIND_FP_GUESS. The caller's pc is checked only by looking it up: who finds no executable mapping there ends the
 * stack with UNWIND_END_NO_MAPPING.
 */
UNWIND_INLINE int unwind_step(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_rule *rule)
{
	struct unwind_places places = {};
	int end = unwind_find(memory, state, rule, &places);

	if (!end)
		end = unwind_enter(memory, state, rule, &places);
	if (end && rule->cfa & UNWIND_INFERRED) {
		if (rule->cfa == (UNWIND_INFERRED | UNWIND_FP_GUESS))
			return UNWIND_END_NO_UNWIND_INFO;
		state->flags |= UNWIND_TRY_FP;
		return UNWIND_NOT_ENDED;
	}
	if (end && unwind_is_old(state, rule))
		return UNWIND_END_UNSUPPORTED_RULE;
	return end;
}

/*
 * Whether the last caller of a stack is none. A coroutine that another one switches to by a return finds its own
 * beginning where it returns to (aarch64), or that of what is to end it: no call stands before, but another function.
 * Where rules say that a stack ends nobody calls, either.
 */
UNWIND_INLINE int unwind_is_no_caller(struct unwind_memory *memory, const struct unwind_state *state, __u64 last,
                                      int end)
{
	if (end == UNWIND_END_NO_TABLE || end == UNWIND_END_TOO_DEEP || (end == UNWIND_END_COMPLETE && state->pc))
		return 0;
	return !unwind_follows_call(memory, last, 1);
}

/* What led to no caller does not count, once it is known how deep the stack is: the last two steps at most. */
UNWIND_INLINE void unwind_count_callers(struct unwind_state *state, __u32 depth)
{
	for (int step = 0; step < 2; step++) {
		__u32 found =
			state->methods[UNWIND_BY_TABLE] + state->methods[UNWIND_BY_FP] + state->methods[UNWIND_BY_LR];

		if (found < depth)
			break;
		state->methods[state->recent & 3] -= 1;
		state->recent >>= 2;
	}
}

#endif
