// SPDX-License-Identifier: Apache-2.0
/* What each instruction of aarch64 does to the stack pointer, to FP and LR, and to the slots where these are saved. */
#include "unwind_arm_code.h"

enum { MOST_DEPTH = 1 << 24 }; /* bytes of a frame; more is no frame but data taken for code */

static const packed_rule INFERRED_FP = UNWIND_INFERRED | UNWIND_FP_GUESS;

/* A slot of a rule; false if a rule cannot say it. */
static bool slot_of_rule(const struct arm_state *state, int32_t slot, int16_t *out)
{
	if (slot & 7)
		return false;
	if (slot >= INT16_MIN) {
		*out = (int16_t)slot;
		return slot < 0;
	}
	int64_t above = (int64_t)slot + state->depth;

	*out = (int16_t)(above | UNWIND_FP_BY_SP);
	return state->cfa == ARM_CFA_SP && above >= 0 && above < UNWIND_FP_SAME - 7;
}

packed_rule arm_rule(const struct arm_state *state)
{
	bool is_by_fp = state->fp_depth > 0;
	uint8_t cfa = is_by_fp ? UNWIND_CFA_FP : UNWIND_CFA_SP, ra;
	int32_t offset = is_by_fp ? state->fp_depth : state->depth;
	int16_t slot = UNWIND_FP_SAME;
	bool is_saved = state->lr_slot != NOT_SAVED;
	/* V8's callers have frame pointers: how far SP is from where it was called does not matter to them. */
	bool is_free = state->is_builtin && state->has_lr && state->fp_slot == NOT_SAVED && !is_by_fp;

	if (is_free && state->cfa != ARM_CFA_SP)
		return pack_rule(UNWIND_INFERRED | UNWIND_CFA_SP, UNWIND_RA_LR, slot, 0);
	if (!is_by_fp && state->cfa != ARM_CFA_SP)
		return INFERRED_FP;
	/* More was taken from the stack than put there: a thread's first function. */
	if (offset < 0)
		return state->doubt || state->is_builtin ? INFERRED_FP : (packed_rule)UNWIND_STOP;
	if (state->fp_slot != NOT_SAVED && !slot_of_rule(state, state->fp_slot, &slot))
		return INFERRED_FP;
	if (!is_saved && !state->has_lr)
		return INFERRED_FP;
	if (!is_saved) {
		ra = UNWIND_RA_LR;
	} else if (state->fp_slot == NOT_SAVED) {
		ra = UNWIND_RA_SLOT;
		if (!slot_of_rule(state, state->lr_slot, &slot))
			return INFERRED_FP;
	} else {
		int32_t words = (state->lr_slot - state->fp_slot) / 8;

		if (words < -64 || words > 255 - UNWIND_RA_NEAR || state->lr_slot & 7)
			return INFERRED_FP;
		ra = (uint8_t)(UNWIND_RA_NEAR + words);
	}
	return pack_rule(UNWIND_INFERRED | cfa, ra, slot, offset);
}

static bool is_in_frame(int64_t bytes)
{
	return bytes >= -MOST_DEPTH && bytes <= MOST_DEPTH;
}

static void set_depth(struct arm_state *state, int64_t depth)
{
	state->cfa = is_in_frame(depth) ? ARM_CFA_SP : ARM_CFA_LOST;
	state->depth = is_in_frame(depth) ? (int32_t)depth : 0;
}

static void lose_sp(struct arm_state *state)
{
	state->cfa = state->fp_depth ? ARM_CFA_FP : ARM_CFA_LOST;
}

/* A register is written with what is not known. */
static void lose(struct arm_state *state, uint8_t number)
{
	if (number == state->constant)
		state->constant = ARM_NO_REGISTER;
	if (number == ARM_LR)
		state->has_lr = false;
	if (number == ARM_FP) {
		state->fp_depth = 0;
		if (state->cfa == ARM_CFA_FP)
			state->cfa = ARM_CFA_LOST;
	}
}

/* CFA - (base + offset); false if it is not known. */
static bool depth_of(const struct arm_state *state, uint8_t base, int64_t offset, int64_t *depth)
{
	if (base == ARM_SP && state->cfa == ARM_CFA_SP)
		*depth = state->depth - offset;
	else if (base == ARM_FP && state->fp_depth)
		*depth = state->fp_depth - offset;
	else
		return false;
	return is_in_frame(*depth);
}

static void add(struct arm_state *state, const struct arm_instruction *i)
{
	int64_t depth;
	bool is_known = depth_of(state, i->base, i->offset, &depth);

	if (i->first == ARM_SP && is_known)
		set_depth(state, depth);
	else if (i->first == ARM_SP)
		lose_sp(state);
	else if (i->first == ARM_FP && is_known && depth > 0 && state->fp_slot != NOT_SAVED)
		state->fp_depth = (int32_t)depth;
	else
		lose(state, i->first);
}

/* SP is moved by a register: by more than an instruction holds, or by what only the program knows. */
static void add_register(struct arm_state *state, const struct arm_instruction *i)
{
	if (state->cfa == ARM_CFA_SP && i->first == state->constant && is_in_frame(state->value))
		set_depth(state, state->depth - i->offset * state->value);
	else
		lose_sp(state);
}

static void set_constant(struct arm_state *state, const struct arm_instruction *i)
{
	bool is_part = i->kind == ARM_CONSTANT_16;

	if (is_part && i->first != state->constant)
		return;
	lose(state, i->first);
	state->constant = i->first;
	if (is_part)
		state->value =
			(int64_t)(((uint64_t)state->value & ~(0xffffULL << i->base)) | (uint64_t)i->offset << i->base);
	else
		state->value = i->offset;
}

/* A register is written to where the stack is so many bytes below the CFA. */
static void save(struct arm_state *state, uint8_t number, int64_t below)
{
	if (number == ARM_FP && state->fp_slot == NOT_SAVED && !state->fp_depth)
		state->fp_slot = (int32_t)-below;
	if (number == ARM_LR && state->lr_slot == NOT_SAVED && state->has_lr)
		state->lr_slot = (int32_t)-below;
}

/* A register is read from there. */
static void reload(struct arm_state *state, uint8_t number, int64_t below, bool is_known)
{
	lose(state, number);
	if (number == ARM_FP && is_known && state->fp_slot == -below)
		state->fp_slot = NOT_SAVED;
	if (number == ARM_LR && is_known && state->lr_slot == -below) {
		state->lr_slot = NOT_SAVED;
		state->has_lr = true;
	}
}

static void access_memory(struct arm_state *state, const struct arm_instruction *i)
{
	const uint8_t numbers[2] = { i->first, i->second };
	int64_t below = 0;
	bool is_known = depth_of(state, i->base, i->offset, &below);

	for (unsigned n = 0; n < 2; n++) {
		if (numbers[n] == ARM_NO_REGISTER)
			continue;
		if (i->kind == ARM_LOAD)
			reload(state, numbers[n], below - 8 * n, is_known);
		else if (i->kind == ARM_STORE && is_known)
			save(state, numbers[n], below - 8 * n);
		else if (i->kind == ARM_OTHER)
			lose(state, numbers[n]);
	}
	if (i->writeback && i->base == ARM_SP && state->cfa == ARM_CFA_SP)
		set_depth(state, state->depth - i->writeback);
	else if (i->writeback && i->base == ARM_FP)
		lose(state, ARM_FP);
}

void apply_arm_instruction(struct arm_state *state, const struct arm_instruction *i)
{
	if (i->kind == ARM_ADD)
		add(state, i);
	else if (i->kind == ARM_ADD_SP)
		add_register(state, i);
	else if (i->kind == ARM_SET_SP)
		lose_sp(state);
	else if (i->kind == ARM_CONSTANT || i->kind == ARM_CONSTANT_16)
		set_constant(state, i);
	else if (i->kind == ARM_CALL)
		lose(state, ARM_LR);
	else if (i->base != ARM_NO_REGISTER)
		access_memory(state, i);
	else if (i->first != ARM_NO_REGISTER)
		lose(state, i->first);
}
