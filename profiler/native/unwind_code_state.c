// SPDX-License-Identifier: Apache-2.0
/* What each instruction does to the stack pointer, to FP, and to what else tells where the frame begins. */
#include "unwind_code.h"

enum {
	RSP = 4,
	RBP = 5,              /* as instructions number them */
	MOST_DEPTH = 1 << 20, /* bytes of a frame; more is no frame but data taken for code */
};

/* The number by which DWARF knows a register. */
static uint8_t dwarf_number(uint8_t number)
{
	static const uint8_t OF_LOW[8] = { 0, 2, 1, 3, 7, 6, 4, 5 };

	return number < 8 ? OF_LOW[number] : number;
}

static const packed_rule INFERRED_FP = UNWIND_INFERRED | UNWIND_FP_GUESS;

packed_rule code_rule(const struct code_state *state)
{
	/* A frame pointer, where there is one, is surer than what was added up. */
	switch (state->cfa == CODE_SP && state->fp_depth ? CODE_FP : state->cfa) {
	case CODE_SP:
		/* Its return address is popped, or never was: a thread's first function. */
		if (state->depth < 8)
			return state->doubt ? INFERRED_FP : (packed_rule)UNWIND_STOP;
		return pack_rule(UNWIND_INFERRED | UNWIND_CFA_SP, UNWIND_RA_CFA, state->fp_slot, state->depth);
	case CODE_FP: return pack_rule(UNWIND_INFERRED | UNWIND_CFA_FP, UNWIND_RA_CFA, state->fp_slot, state->fp_depth);
	case CODE_COPY:
		return pack_rule((uint8_t)(UNWIND_INFERRED | (UNWIND_CFA_REGISTER + dwarf_number(state->copy))),
		                 UNWIND_RA_CFA, state->fp_slot, state->copy_depth);
	case CODE_POPPED:
		return pack_rule(UNWIND_INFERRED | UNWIND_CFA_SP, UNWIND_RA_REGISTER + dwarf_number(state->ra),
		                 UNWIND_FP_SAME, 0);
	case CODE_WORD:
	case CODE_FP_WORD:
		if (state->copy_depth < 0 || state->copy_depth > 0xff)
			return INFERRED_FP;
		return pack_rule(UNWIND_INFERRED |
		                         (state->cfa == CODE_WORD ? UNWIND_CFA_SP_DEREF : UNWIND_CFA_FP_DEREF),
		                 UNWIND_RA_CFA, state->fp_slot,
		                 (int32_t)((uint32_t)state->word << 8 | (uint32_t)state->copy_depth));
	default: return INFERRED_FP;
	}
}

packed_rule builtin_rule(const struct code_state *state)
{
	packed_rule rule = code_rule(state);

	uint8_t kind = rule & 0x7f;

	return state->doubt || (kind >= UNWIND_NONE && kind < UNWIND_CFA_REGISTER)
	               ? rule
	               : rule & ~(packed_rule)UNWIND_INFERRED;
}

static bool is_in_frame(int64_t bytes)
{
	return bytes >= -MOST_DEPTH && bytes <= MOST_DEPTH;
}

/* The stack pointer goes down by so many bytes. */
static void grow(struct code_state *state, int64_t bytes)
{
	int32_t *place = state->cfa == CODE_WORD ? &state->word : &state->depth;
	int64_t sum = *place + bytes;

	if (is_in_frame(sum))
		*place = (int32_t)sum;
	else
		state->cfa = CODE_LOST;
	/* Of a builtin only the instructions that `pop` knows take the return address. */
	if (state->is_builtin && state->cfa == CODE_SP && state->depth < 8) {
		state->cfa = CODE_LOST;
		state->doubt = 2;
	}
}

/* How far the stack pointer moves is not known: what else marks the frame takes over. */
static void lose_sp(struct code_state *state)
{
	if (state->cfa == CODE_SP)
		state->cfa = state->fp_depth ? CODE_FP : state->copy != NO_COPY ? CODE_COPY : CODE_LOST;
	else if (state->cfa == CODE_WORD)
		state->cfa = CODE_LOST;
}

/* The stack pointer is `below` bytes below the CFA again. */
static void set_depth(struct code_state *state, int64_t below)
{
	state->cfa = is_in_frame(below) ? CODE_SP : CODE_LOST;
	if (is_in_frame(below))
		state->depth = (int32_t)below;
}

/* Of a builtin whose frame is gone, or was never there: only the return address is to be found. */
static bool is_free_of_frame(const struct code_state *state)
{
	return state->is_builtin && !state->fp_depth && state->fp_slot == UNWIND_FP_SAME &&
	       (state->cfa == CODE_SP || state->cfa == CODE_POPPED);
}

static void push(struct code_state *state, uint8_t number)
{
	if (is_free_of_frame(state) && number == state->ra)
		return set_depth(state, 8);
	/* A frame is made for who has called this. */
	if (state->cfa == CODE_POPPED && number == RBP)
		state->doubt = 1;
	grow(state, 8);
	if (number == RBP && state->cfa == CODE_SP && state->fp_slot == UNWIND_FP_SAME && !state->fp_depth &&
	    state->depth <= -INT16_MIN)
		state->fp_slot = (int16_t)-state->depth;
}

/* What held the stack pointer is written. Where V8 makes room for arguments, it has moved the return address with them
 * to the stack's new end by then. */
static void lose_copy(struct code_state *state)
{
	state->cfa = CODE_LOST;
	if (state->is_builtin && state->copy_depth == 8 && !state->fp_depth) {
		set_depth(state, 8);
		state->doubt = 1;
	}
}

/* A register is written that is not the stack pointer. */
static void lose(struct code_state *state, uint8_t number)
{
	if (number == state->copy) {
		state->copy = NO_COPY;
		if (state->cfa == CODE_COPY)
			lose_copy(state);
	}
	if (number == state->ra) {
		state->ra = NO_COPY;
		if (state->cfa == CODE_POPPED)
			state->cfa = CODE_LOST;
	}
	if (number == RBP && state->fp_depth) {
		state->fp_depth = 0;
		if (state->cfa == CODE_FP)
			state->cfa = CODE_LOST;
	}
	if (number == RBP && state->cfa == CODE_FP_WORD)
		state->cfa = CODE_LOST;
}

static void pop(struct code_state *state, uint8_t number)
{
	if (state->is_builtin && state->cfa == CODE_SP && state->depth == 8 && !state->fp_depth) {
		state->cfa = CODE_POPPED;
		state->ra = number;
		return;
	}
	if (number == RSP && state->cfa == CODE_WORD && state->word == 0)
		return set_depth(state, state->copy_depth);
	grow(state, -8);
	if (number == RBP) {
		if (state->cfa == CODE_FP)
			state->cfa = CODE_SP;
		state->fp_slot = UNWIND_FP_SAME;
		state->fp_depth = 0;
	}
	lose(state, number);
	if (number == RSP)
		lose_sp(state);
}

/* mov to, from; both registers of 64 bits. */
static void move(struct code_state *state, uint8_t to, uint8_t from)
{
	if (from == RSP && to != RSP) {
		if (state->cfa == CODE_WORD && to == RBP) {
			state->cfa = CODE_FP_WORD;
			return;
		}
		if (state->cfa != CODE_SP)
			return lose(state, to);
		if (to == RBP) {
			state->fp_depth = state->frame_depth = state->depth;
			state->prologue = CODE_BEGUN;
		} else {
			state->copy = to;
			state->copy_depth = state->depth;
		}
	} else if (to == RSP) {
		if (from == RBP && state->fp_depth)
			set_depth(state, state->fp_depth);
		else if (from == state->copy)
			set_depth(state, state->copy_depth);
		else if (from == RBP && state->cfa == CODE_FP_WORD)
			state->cfa = CODE_WORD;
		else
			lose_sp(state);
	} else {
		lose(state, to);
	}
}

static uint8_t modrm_reg(const struct x86_instruction *i)
{
	return (uint8_t)((i->modrm >> 3 & 7) | (i->rex & 4) << 1);
}

static uint8_t modrm_rm(const struct x86_instruction *i)
{
	return (uint8_t)((i->modrm & 7) | (i->rex & 1) << 3);
}

/* The operand is the word at sp + displacement. */
static bool is_at_sp(const struct x86_instruction *i)
{
	return i->has_modrm && i->modrm >> 6 != 3 && modrm_rm(i) == RSP && i->sib == 0x24 && !(i->rex & 3);
}

/* The operand is the word at FP + displacement. */
static bool is_at_fp(const struct x86_instruction *i)
{
	return i->has_modrm && i->modrm >> 6 != 3 && i->modrm >> 6 != 0 && modrm_rm(i) == RBP;
}

/* The operand is the return address in its place. */
static bool is_return_address(const struct code_state *state, const struct x86_instruction *i)
{
	return (state->cfa == CODE_SP && is_at_sp(i) && i->displacement == state->depth - 8) ||
	       (state->fp_depth && is_at_fp(i) && i->displacement == state->fp_depth - 8);
}

/* and, add, sub, lea with the stack pointer as result. */
static void compute_sp(struct code_state *state, const struct x86_instruction *i)
{
	uint8_t operation = i->modrm >> 3 & 7;

	if (i->opcode == 0x8d) {
		if (is_at_sp(i))
			grow(state, -(int64_t)i->displacement);
		else if (modrm_rm(i) == RBP && i->modrm >> 6 != 0 && state->fp_depth)
			set_depth(state, (int64_t)state->fp_depth - i->displacement);
		else
			lose_sp(state);
	} else if (operation == 5) {
		grow(state, i->immediate);
	} else if (operation == 0) {
		grow(state, -i->immediate);
	} else if (operation != 7) {
		lose_sp(state); /* aligned */
	}
}

/* mov of the caller's FP out of its slot, while the frame's other words stay; of the return address to another place.
 */
static bool leave_frame(struct code_state *state, const struct x86_instruction *i)
{
	uint8_t number = modrm_reg(i);

	if (i->opcode == 0x8b && number == RBP && state->fp_depth && is_at_fp(i) && state->fp_slot != UNWIND_FP_SAME &&
	    i->displacement == state->fp_depth + state->fp_slot) {
		state->fp_depth = 0;
		state->fp_slot = UNWIND_FP_SAME;
		if (state->is_builtin && state->ra != NO_COPY)
			state->cfa = CODE_POPPED;
		else if (state->is_builtin)
			set_depth(state, state->frame_depth);
		else if (state->cfa == CODE_FP)
			state->cfa = CODE_LOST;
		return true;
	}
	if (!state->is_builtin)
		return false;
	if (i->opcode == 0x8b && number != RSP && number != RBP && is_return_address(state, i)) {
		lose(state, number);
		state->ra = number;
		return true;
	}
	if (i->opcode == 0x89 && number == state->ra && is_free_of_frame(state) && is_at_sp(i)) {
		set_depth(state, (int64_t)i->displacement + 8);
		return true;
	}
	return false;
}

/* mov between a register and memory at sp: a saved FP, a saved stack pointer. */
static bool move_memory(struct code_state *state, const struct x86_instruction *i)
{
	uint8_t number = modrm_reg(i);

	if (i->rex & 8 && leave_frame(state, i))
		return true;
	if (!is_at_sp(i) || !(i->rex & 8))
		return false;
	if (i->opcode == 0x89 && number == state->copy && state->cfa == CODE_COPY) {
		state->cfa = is_in_frame(i->displacement) ? CODE_WORD : CODE_LOST;
		state->word = i->displacement;
		return true;
	}
	if (i->opcode == 0x89 && number == RBP && state->cfa == CODE_SP && state->fp_slot == UNWIND_FP_SAME &&
	    !state->fp_depth) {
		int64_t slot = (int64_t)i->displacement - state->depth;

		if (slot < 0 && slot >= INT16_MIN && !(slot & 7))
			state->fp_slot = (int16_t)slot;
		return true;
	}
	if (i->opcode == 0x8b && number == RSP) {
		if (state->cfa == CODE_WORD && i->displacement == state->word)
			set_depth(state, state->copy_depth);
		else
			lose_sp(state);
		return true;
	}
	return false;
}

static void push_memory(struct code_state *state, const struct x86_instruction *i)
{
	/* V8 has the return address once more above arguments, and goes on elsewhere. */
	if (is_free_of_frame(state) && is_return_address(state, i))
		set_depth(state, 8);
	else
		grow(state, 8);
}

static void apply_one_byte(struct code_state *state, const struct x86_instruction *i)
{
	uint8_t opcode = i->opcode, low = (uint8_t)((opcode & 7) | (i->rex & 1) << 3);
	bool is_register = i->has_modrm && i->modrm >> 6 == 3, is_wide = i->rex & 8;

	if ((opcode & 0xf8) == 0x50)
		return push(state, low);
	if ((opcode & 0xf8) == 0x58)
		return pop(state, low);
	switch (opcode) {
	case 0x68:
	case 0x6a:
	case 0x9c: return grow(state, 8);
	case 0x9d: return grow(state, -8);
	case 0x8f: return grow(state, -8);
	case 0xc9: /* leave */
		if (!state->fp_depth) {
			state->cfa = CODE_LOST;
			return;
		}
		set_depth(state, state->fp_depth);
		return pop(state, RBP);
	case 0x81:
	case 0x83:
		if (is_register && modrm_rm(i) == RSP && is_wide)
			return compute_sp(state, i);
		if (is_register && (i->modrm >> 3 & 7) != 7)
			lose(state, modrm_rm(i));
		return;
	case 0x8d:
		if (modrm_reg(i) != RSP || !is_wide)
			return lose(state, modrm_reg(i));
		return compute_sp(state, i);
	case 0x89:
	case 0x8b:
		if (is_register && is_wide)
			return opcode == 0x89 ? move(state, modrm_rm(i), modrm_reg(i))
			                      : move(state, modrm_reg(i), modrm_rm(i));
		if (move_memory(state, i))
			return;
		if (opcode == 0x8b)
			lose(state, modrm_reg(i));
		else if (is_register)
			lose(state, modrm_rm(i));
		return;
	case 0xff:
		if ((i->modrm >> 3 & 7) == 6)
			push_memory(state, i);
		return;
	default: break;
	}
	/* Arithmetic on registers: reg is the result of those whose second bit is set, rm of the others. */
	if (opcode < 0x40 && i->has_modrm && (opcode & 0x38) != 0x38) {
		uint8_t result = opcode & 2 ? modrm_reg(i) : modrm_rm(i);

		if (!(opcode & 2) && !is_register)
			return;
		if (result == RSP && opcode & 1)
			lose_sp(state);
		else
			lose(state, result);
	} else if ((opcode & 0xf8) == 0xb8) {
		lose(state, low);
	}
}

/* Of a register that is written. */
static enum code_effect effect_on(uint8_t number)
{
	return number == RSP || number == RBP ? EFFECT_ANY : EFFECT_REGISTER;
}

/* mov, 89 or 8b. */
static enum code_effect move_effect(const struct x86_instruction *i)
{
	bool is_load = i->opcode == 0x8b;
	uint8_t number = modrm_reg(i), other = modrm_rm(i);

	if (i->modrm >> 6 == 3) {
		if (number == RSP || number == RBP || other == RSP || other == RBP)
			return EFFECT_ANY;
		return EFFECT_REGISTER;
	}
	if (is_at_sp(i) && is_load)
		return number == RSP || number == RBP ? EFFECT_ANY : EFFECT_BUILTIN;
	if (is_at_fp(i) && is_load && i->displacement >= 0)
		return number == RSP || number == RBP ? EFFECT_ANY : EFFECT_BUILTIN;
	if (is_at_sp(i))
		return effect_on(number);
	return is_load ? effect_on(number) : EFFECT_NONE;
}

static enum code_effect arithmetic_effect(const struct x86_instruction *i)
{
	bool is_result_reg = i->opcode & 2;

	if (!i->has_modrm || (i->opcode & 0x38) == 0x38 || (!is_result_reg && i->modrm >> 6 != 3))
		return EFFECT_NONE;
	return effect_on(is_result_reg ? modrm_reg(i) : modrm_rm(i));
}

static enum code_effect one_byte_effect(const struct x86_instruction *i)
{
	uint8_t opcode = i->opcode;

	if (opcode < 0x40)
		return arithmetic_effect(i);
	switch (opcode) {
	case 0x81:
	case 0x83: return i->modrm >> 6 == 3 ? effect_on(modrm_rm(i)) : EFFECT_NONE;
	case 0x8d: return effect_on(modrm_reg(i));
	case 0x89:
	case 0x8b: return move_effect(i);
	case 0x68:
	case 0x6a:
	case 0x8f:
	case 0x9c:
	case 0x9d:
	case 0xc2:
	case 0xc3:
	case 0xc7: /* where a signal handler returns to */
	case 0xc9:
	case 0xcc:
	case 0xf4:
	case 0xff: return EFFECT_ANY;
	default: break;
	}
	if ((opcode & 0xf8) == 0xb8)
		return i->immediate == 15 ? EFFECT_ANY : effect_on((uint8_t)((opcode & 7) | (i->rex & 1) << 3));
	/* push and pop, branches and calls. */
	return (opcode & 0xf0) == 0x50 || (opcode & 0xf0) == 0x70 || (opcode & 0xf0) == 0xe0 ? EFFECT_ANY : EFFECT_NONE;
}

enum code_effect instruction_effect(const struct x86_instruction *i)
{
	if (i->map == X86_ONE_BYTE)
		return one_byte_effect(i);
	if (i->map != X86_0F)
		return EFFECT_NONE;
	if ((i->opcode & 0xf0) == 0x40) /* cmov */
		return effect_on(modrm_reg(i));
	return (i->opcode & 0xf0) == 0x80 || i->opcode == 0x0b ? EFFECT_ANY : EFFECT_NONE;
}

enum code_effect least_effect(const struct code_state *state)
{
	/* With FP so near the CFA the return address would be below it. */
	bool is_odd_frame = state->fp_depth && state->fp_depth < 8;

	if (state->copy != NO_COPY || state->ra != NO_COPY || is_odd_frame)
		return EFFECT_REGISTER;
	return state->is_builtin ? EFFECT_BUILTIN : EFFECT_ANY;
}

/* The frame's size without what is pushed for calls: a mark of its kind, or three registers, and room. */
static void measure_frame(struct code_state *state, const struct x86_instruction *i, enum code_prologue before)
{
	bool is_mark = before == CODE_BEGUN && (i->opcode == 0x68 || i->opcode == 0x6a);
	bool is_register = before == CODE_BEGUN && (i->opcode & 0xf8) == 0x50 && state->depth <= 16 + 3 * 8;
	bool is_room = before && (i->opcode == 0x81 || i->opcode == 0x83) && i->modrm == 0xec;

	if (i->map != X86_ONE_BYTE || !(is_mark || is_register || is_room))
		return;
	state->frame_depth = state->depth;
	state->prologue = is_mark ? CODE_MARKED : is_register ? CODE_BEGUN : CODE_NO_PROLOGUE;
}

void apply_instruction(struct code_state *state, const struct x86_instruction *i)
{
	enum code_prologue before = state->prologue;

	state->prologue = CODE_NO_PROLOGUE;
	if (i->map == X86_ONE_BYTE)
		apply_one_byte(state, i);
	else if (i->map == X86_0F && (i->opcode & 0xf0) == 0x40) /* cmov */
		lose(state, modrm_reg(i));
	measure_frame(state, i, before);
}
