// SPDX-License-Identifier: Apache-2.0
#include "code_reach.h"

#include <string.h>

#include "arm_instruction.h"
#include "x86_instruction.h"

/* What one instruction does to what comes behind it. */
struct step {
	uint8_t length; /* 0: nobody knows how it goes on */
	bool is_end;    /* nothing falls through */
	int64_t target; /* of a branch, from the instruction on; 0: none */
};

static struct step x86_step(const uint8_t *code, uint64_t size)
{
	struct x86_instruction i = x86_decode(code, size);
	struct step step = { i.length, x86_is_end(&i), 0 };

	if (x86_is_table_jump(&i))
		step.length = 0;
	else if (i.length && (x86_is_conditional(&i) || x86_is_jump(&i)))
		step.target = i.length + i.immediate;
	return step;
}

static struct step arm_step(const uint8_t *code, uint64_t size)
{
	uint32_t word = 0;
	struct step step = { 0 };

	if (size < sizeof(word))
		return step;
	memcpy(&word, code, sizeof(word));
	struct arm_instruction i = arm_decode(word);

	/* The lowest words are no instructions. */
	step.length = i.kind == ARM_JUMP || word >> 16 == 0 ? 0 : sizeof(word);
	step.is_end = i.kind == ARM_BRANCH || i.kind == ARM_END;
	if (i.kind == ARM_BRANCH || i.kind == ARM_CONDITIONAL)
		step.target = i.offset;
	return step;
}

/* From an offset on, as an offset; 0: not told. */
static uint64_t reach(const uint8_t *code, uint64_t at, uint64_t limit, bool is_aarch64)
{
	uint64_t furthest = at; /* that a branch leads to */

	while (at < limit) {
		uint64_t left = limit - at;
		struct step step = is_aarch64 ? arm_step(code + at, left) : x86_step(code + at, left);

		if (!step.length)
			return 0;
		/* Beyond the limit is another function. */
		if (step.target > 0 && (uint64_t)step.target < left && at + (uint64_t)step.target > furthest)
			furthest = at + (uint64_t)step.target;
		at += step.length;
		if (step.is_end && at > furthest)
			return at;
	}
	return 0;
}

__attribute__((visibility("default"))) void tdprof_code_reach(const uint8_t *code, uint64_t size, uint64_t address,
                                                              bool is_aarch64, const uint64_t *start,
                                                              const uint64_t *limit, uint64_t count, uint64_t *end)
{
	for (uint64_t i = 0; i < count; i++) {
		uint64_t from = start[i] - address, to = limit[i] - address, found = 0;

		if (from < to && to <= size)
			found = reach(code, from, to, is_aarch64);
		end[i] = found ? address + found : 0;
	}
}
