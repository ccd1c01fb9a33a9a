// SPDX-License-Identifier: Apache-2.0
/* Go's stack switches of aarch64, as unwind_go_switch.c has those of x86-64: systemstack and asmcgocall of
 * runtime/asm_arm64.s. The goroutine is in x28, and a return address lies at the lower end of its frame. */
#include "arm_instruction.h"
#include "unwind_go.h"

enum { G = 28, FRAME = 16, G_END = 8, G_M = 48, WORD = 4 };

#define PUSH_LR 0xf81f0ffeU /* STR x30, [sp, #-16]! */

struct code {
	const uint8_t *bytes;
	uint32_t size;
};

static uint32_t word_at(const struct code *code, uint32_t at)
{
	uint32_t word = 0;

	if (at + WORD <= code->size)
		memcpy(&word, code->bytes + at, sizeof(word));
	return word;
}

/* Behind the next MOV sp, register; 0: there is none. */
static uint32_t next_switch(const struct code *code, uint32_t from)
{
	for (uint32_t at = from; at + WORD <= code->size; at += WORD) {
		struct arm_instruction i = arm_decode(word_at(code, at));

		if (i.kind == ARM_ADD && i.first == ARM_SP && i.base != ARM_SP && i.base != ARM_FP && i.offset == 0)
			return at + WORD;
	}
	return 0;
}

/* Behind the next load or store of one register at base + any offset, which is written to `offset`; 0. */
static uint32_t next_access(const struct code *code, uint32_t from, enum arm_kind kind, uint8_t base, int64_t *offset)
{
	for (uint32_t at = from; at + WORD <= code->size; at += WORD) {
		struct arm_instruction i = arm_decode(word_at(code, at));

		if (i.kind == kind && i.base == base && i.second == ARM_NO_REGISTER && !i.writeback && i.offset >= 0 &&
		    i.offset <= UINT8_MAX * 8) {
			*offset = i.offset;
			return at + WORD;
		}
	}
	return 0;
}

static void add_part(struct go_parts *parts, uint32_t start, uint32_t end, packed_rule rule)
{
	parts->part[parts->count++] = (struct go_part){ start, end, rule, false };
}

/* From the goroutine's stack to the thread's and, behind the call, back: LDR xN, [x28, #48]; LDR x28, [xN, #current]
 * tell where the thread has its goroutine. */
static bool find_systemstack(const struct code *code, struct go_parts *parts)
{
	uint32_t away = next_switch(code, 0), back = away;
	struct arm_instruction thread, current;

	if (!away)
		return false;
	do {
		thread = arm_decode(word_at(code, back));
		current = arm_decode(word_at(code, back + WORD));
		back += WORD;
	} while (back + WORD <= code->size &&
	         !(thread.kind == ARM_LOAD && thread.base == G && thread.offset == G_M && current.kind == ARM_LOAD &&
	           current.base == thread.first && current.first == G));
	uint32_t end = next_switch(code, back);

	if (!end || current.offset <= 0 || current.offset > INT16_MAX)
		return false;
	parts->current = (uint32_t)current.offset;
	add_part(parts, away, end,
	         pack_rule(UNWIND_GO_SWITCH, UNWIND_RA_CFA, (int16_t)current.offset,
	                   (int32_t)(current.offset << 16 | FRAME)));
	return true;
}

/* From Go's stack to the thread's, on which the goroutine and how deep its stack was are kept. Where it is on that
 * stack already, the stack pointer itself is. */
static bool find_asmcgocall(const struct code *code, struct go_parts *parts)
{
	uint32_t away = next_switch(code, 0), room = next_switch(code, away);
	int64_t goroutine = 0, end_of_stack = 0, depth = 0, zero = 0, same_at = 0;
	uint32_t kept = next_access(code, room, ARM_STORE, ARM_SP, &goroutine);
	struct arm_instruction top = arm_decode(word_at(code, kept));
	uint32_t start = next_access(code, kept, ARM_STORE, ARM_SP, &depth), end = next_switch(code, start);
	uint32_t same_away = next_switch(code, end);
	uint32_t same =
		next_access(code, next_access(code, same_away, ARM_STORE, ARM_SP, &zero), ARM_STORE, ARM_SP, &same_at);
	uint32_t same_end = next_switch(code, same);

	end_of_stack = top.offset;
	if (!away || !room || !kept || !start || !end || !same_away || !same || !same_end || top.kind != ARM_LOAD ||
	    end_of_stack != G_END || goroutine > UINT8_MAX || depth > UINT8_MAX || same_at > UINT8_MAX)
		return false;
	add_part(parts, away, start, UNWIND_UNSUPPORTED);
	add_part(parts, start, end,
	         pack_rule(UNWIND_GO_CALL_OF_C, UNWIND_RA_CFA, FRAME, (int32_t)(goroutine << 8 | depth)));
	add_part(parts, same_away, same, UNWIND_UNSUPPORTED);
	add_part(parts, same, same_end,
	         pack_rule(UNWIND_CFA_SP_DEREF, UNWIND_RA_SLOT, -FRAME, (int32_t)(same_at << 8 | FRAME)));
	return true;
}

bool find_go_arm_parts(enum go_switch kind, const uint8_t *bytes, uint32_t size, struct go_parts *parts)
{
	struct code code = { bytes, size };

	parts->count = 0;
	if (kind == GO_CROSSCALL)
		return true; /* callbacks are not followed that far */
	if (word_at(&code, 0) != PUSH_LR)
		return false;
	return kind == GO_SYSTEMSTACK  ? find_systemstack(&code, parts)
	       : kind == GO_ASMCGOCALL ? find_asmcgocall(&code, parts)
	                               : false;
}
