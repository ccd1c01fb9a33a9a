// SPDX-License-Identifier: Apache-2.0
#include "arm_instruction.h"

/* A field of a word as a signed number. */
static int64_t signed_field(uint32_t word, unsigned low, unsigned bits)
{
	return (int32_t)(word << (32 - low - bits)) >> (32 - bits);
}

static uint8_t register_at(uint32_t word, unsigned low)
{
	return word >> low & 31;
}

/* 31 is SP for some instructions; for these it is no register. */
static uint8_t general_at(uint32_t word, unsigned low)
{
	uint8_t number = register_at(word, low);

	return number == 31 ? ARM_NO_REGISTER : number;
}

/* Branches, exceptions and system. */
static void decode_branch(uint32_t word, struct arm_instruction *i)
{
	if (word >> 26 == 5 || word >> 26 == 37) { /* B, BL */
		i->kind = word >> 31 ? ARM_CALL : ARM_BRANCH;
		i->offset = signed_field(word, 0, 26) * 4;
	} else if (word >> 24 == 0x54 || (word & 0x7e000000) == 0x34000000) { /* B.cond, CBZ, CBNZ */
		i->kind = ARM_CONDITIONAL;
		i->offset = signed_field(word, 5, 19) * 4;
	} else if ((word & 0x7e000000) == 0x36000000) { /* TBZ, TBNZ */
		i->kind = ARM_CONDITIONAL;
		i->offset = signed_field(word, 5, 14) * 4;
	} else if (word >> 25 == 0x6b) { /* by register, with authentication or without */
		i->kind = (word >> 21 & 3) == 1 ? ARM_CALL : (word >> 21 & 7) == 0 ? ARM_JUMP : ARM_END;
	} else if (word >> 24 == 0xd4) { /* SVC, BRK, HLT */
		i->kind = (word >> 21 & 7) == 1 || (word >> 21 & 7) == 2 ? ARM_END : ARM_OTHER;
	} else if (word >> 20 == 0xd53) { /* MRS */
		i->first = general_at(word, 0);
	}
}

/* Data processing with an immediate. */
static void decode_immediate(uint32_t word, struct arm_instruction *i)
{
	bool is_logical = (word >> 23 & 7) == 4, is_add = (word >> 23 & 7) == 2;
	bool sets_flags = is_logical ? (word >> 29 & 3) == 3 : word >> 29 & 1;
	int64_t immediate = (int64_t)(word >> 10 & 0xfff) << (word >> 22 & 1 ? 12 : 0);

	i->first = general_at(word, 0);
	if ((word & 0xff800000) == 0xd2800000) { /* MOVZ */
		i->kind = ARM_CONSTANT;
		i->offset = (int64_t)((uint64_t)(word >> 5 & 0xffff) << (word >> 21 & 3) * 16);
		return;
	}
	if ((word & 0xff800000) == 0xf2800000) { /* MOVK */
		i->kind = ARM_CONSTANT_16;
		i->offset = word >> 5 & 0xffff;
		i->base = (word >> 21 & 3) * 16;
		return;
	}
	if (is_add && word >> 31 && !sets_flags) {
		i->kind = ARM_ADD;
		i->first = register_at(word, 0);
		i->base = register_at(word, 5);
		i->offset = word >> 30 & 1 ? -immediate : immediate;
	} else if ((is_logical || is_add) && !sets_flags && register_at(word, 0) == 31) {
		i->kind = ARM_SET_SP;
	}
}

/* Data processing with registers. */
static void decode_register(uint32_t word, struct arm_instruction *i)
{
	/* ADD, SUB of an extended register. */
	bool is_extended = (word & 0x1fe00000) == 0x0b200000;

	/* With SP, the extension that is none and no shift. */
	bool is_plain = word >> 31 && (word & 0xfc00) == 0x6000 && register_at(word, 5) == 31;

	if (is_extended && !(word >> 29 & 1) && register_at(word, 0) == 31) {
		i->kind = is_plain ? ARM_ADD_SP : ARM_SET_SP;
		i->first = general_at(word, 16);
		i->offset = word >> 30 & 1 ? -1 : 1;
	} else if ((word & 0x1fe00000) != 0x1a400000) { /* CCMP writes flags only */
		i->first = general_at(word, 0);
	}
}

static void decode_pair(uint32_t word, struct arm_instruction *i)
{
	bool is_vector = word >> 26 & 1, is_wide = word >> 30 == 2;
	int64_t scale = is_vector ? 4 << (word >> 30) : is_wide ? 8 : 4, offset = signed_field(word, 15, 7) * scale;
	unsigned index = word >> 23 & 3; /* 1: afterwards, 3: before */

	i->base = register_at(word, 5);
	i->offset = index == 1 ? 0 : offset;
	i->writeback = index & 1 ? offset : 0;
	if (is_vector)
		return;
	bool is_load = word >> 22 & 1;

	if (is_load || is_wide) {
		i->first = general_at(word, 0);
		i->second = general_at(word, 10);
	}
	if (is_wide)
		i->kind = is_load ? ARM_LOAD : ARM_STORE;
}

static void decode_single(uint32_t word, struct arm_instruction *i)
{
	bool is_vector = word >> 26 & 1, is_unsigned = word >> 24 & 1;
	unsigned size = word >> 30, operation = word >> 22 & 3, index = word >> 10 & 3;

	i->base = register_at(word, 5);
	if (is_unsigned) {
		i->offset = (int64_t)(word >> 10 & 0xfff) << size;
	} else if (!(word >> 21 & 1)) {
		int64_t offset = signed_field(word, 12, 9);

		i->offset = index == 1 ? 0 : offset;
		i->writeback = index & 1 ? offset : 0;
	}
	if (is_vector)
		return;
	/* By a register, or atomic, which reads and writes: the place is not known. */
	bool is_elsewhere = !is_unsigned && word >> 21 & 1, is_atomic = is_elsewhere && index != 2;

	if (size == 3 && operation == 2 && !is_atomic)
		return; /* PRFM */
	if (operation || is_atomic || (size == 3 && !is_elsewhere))
		i->first = general_at(word, 0);
	if (size == 3 && !is_elsewhere)
		i->kind = operation ? ARM_LOAD : ARM_STORE;
}

/* Vectors and floating point: what moves to a general register. */
static void decode_vector(uint32_t word, struct arm_instruction *i)
{
	unsigned operation = word >> 16 & 7;
	bool is_move = (word & 0x5f20fc00) == 0x1e200000 && operation != 2 && operation != 3 && operation != 7;

	if (is_move || (word & 0xbfe0f400) == 0x0e003400 || (word & 0xbfe0fc00) == 0x0e002c00)
		i->first = general_at(word, 0);
}

struct arm_instruction arm_decode(uint32_t word)
{
	struct arm_instruction i = { .first = ARM_NO_REGISTER, .second = ARM_NO_REGISTER, .base = ARM_NO_REGISTER };

	if (word >> 16 == 0)
		i.kind = ARM_END; /* UDF */
	else if ((word & 0x1c000000) == 0x14000000)
		decode_branch(word, &i);
	else if ((word & 0x1c000000) == 0x10000000)
		decode_immediate(word, &i);
	else if ((word & 0x0e000000) == 0x0a000000)
		decode_register(word, &i);
	else if ((word & 0x3a000000) == 0x28000000)
		decode_pair(word, &i);
	else if ((word & 0x3a000000) == 0x38000000)
		decode_single(word, &i);
	else if ((word & 0x0e000000) == 0x0e000000)
		decode_vector(word, &i);
	else if ((word & 0x3b000000) == 0x18000000 || (word & 0x3f400000) == 0x08400000) /* of literals, exclusive */
		i.first = general_at(word, 0);
	return i;
}
