// SPDX-License-Identifier: Apache-2.0
/* Go's stack switches of aarch64, as unwind_go_switch.c has those of x86-64: systemstack, morestack, asmcgocall and
 * cgocallback of runtime/asm_arm64.s, and what reads clocks, of sys_linux_arm64.s. The goroutine is in x28, and a
 * return address lies at the lower end of its frame, the caller's FP below that. */
#include "arm_instruction.h"
#include "unwind_go.h"

enum { G = 28, FRAME = 16, G_END = 8, G_M = 48, G_SP = 56, AROUND = 16, WORD = 4 };

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

/* Called by C on the thread's stack, goes on on the goroutine's; the thread's keeps where it was, and beside that where
 * it was before (UNWIND_GO_CALLBACK_AROUND). */
static bool find_cgocallback(const struct code *code, uint32_t frame, struct go_parts *parts)
{
	uint32_t noted = 0, at = 0;
	int64_t current = 0;

	while (!noted && at + WORD <= code->size) {
		struct arm_instruction before = arm_decode(word_at(code, at));
		struct arm_instruction kept = arm_decode(word_at(code, at + WORD));

		at += WORD;
		if (before.kind == ARM_LOAD && before.offset == G_SP && kept.kind == ARM_STORE && kept.base == ARM_SP &&
		    kept.first == before.first && kept.offset == AROUND && !kept.writeback)
			noted = at;
	}
	for (at = noted; noted && !current && at + WORD <= code->size; at += WORD) {
		struct arm_instruction i = arm_decode(word_at(code, at));

		if (i.kind == ARM_LOAD && i.first == G && i.base != ARM_SP)
			current = i.offset;
	}
	uint32_t away = next_switch(code, at), back = next_switch(code, away);

	if (!noted || !away || !back || current <= 0 || current > INT16_MAX)
		return false;
	add_part(parts, away, back, pack_rule(UNWIND_GO_SWITCH, UNWIND_RA_CFA, (int16_t)current, (int32_t)frame));
	return true;
}

/* Calls the vDSO on the thread's stack, with FP where it has saved its caller's, and comes back. */
static bool find_clock(const struct code *code, uint32_t frame, struct go_parts *parts)
{
	struct arm_instruction saved = arm_decode(word_at(code, WORD)), kept = arm_decode(word_at(code, 2 * WORD));
	uint32_t away = next_switch(code, 0), back = next_switch(code, away);

	if (saved.kind != ARM_STORE || saved.first != ARM_FP || saved.base != ARM_SP || saved.offset != -8 ||
	    kept.kind != ARM_ADD || kept.first != ARM_FP || kept.base != ARM_SP || kept.offset != -8 || !away || !back)
		return false;
	add_part(parts, away, back,
	         pack_rule(UNWIND_CFA_FP_LEFT, UNWIND_RA_NEAR + 1, -(int16_t)(frame + 8), (int32_t)frame + 8));
	return true;
}

/* C calls Go by this, and may have frames by FP: it and the return address are at the upper end of the frame. */
static bool find_crosscall(const struct code *code, struct go_parts *parts)
{
	struct arm_instruction room = arm_decode(word_at(code, 0));
	int32_t frame = (int32_t)-room.offset;
	uint32_t saved = 0, restored = 0;

	if (room.kind != ARM_ADD || room.first != ARM_SP || room.base != ARM_SP || frame <= 0 || frame > INT16_MAX)
		return false;
	for (uint32_t at = WORD; at + WORD <= code->size && !restored; at += WORD) {
		struct arm_instruction i = arm_decode(word_at(code, at));

		if (i.first != ARM_FP || i.second != ARM_LR || i.base != ARM_SP || i.offset != frame - 16 ||
		    i.writeback)
			continue;
		if (i.kind == ARM_STORE && !saved)
			saved = at + WORD;
		else if (i.kind == ARM_LOAD && saved)
			restored = at + WORD;
	}
	if (!saved || !restored)
		return false;
	add_part(parts, WORD, saved, pack_rule(UNWIND_CFA_SP, UNWIND_RA_LR, UNWIND_FP_SAME, frame));
	add_part(parts, saved, restored, pack_rule(UNWIND_CFA_SP, UNWIND_RA_NEAR + 1, -16, frame));
	add_part(parts, restored, restored + WORD, pack_rule(UNWIND_CFA_SP, UNWIND_RA_LR, UNWIND_FP_SAME, frame));
	return true;
}

/* For good: what it calls grows the goroutine's stack. Who calls it has no frame yet, and keeps in x3 where it is to
 * return to itself; the goroutine has both. */
static bool find_morestack(const struct code *code, struct go_parts *parts)
{
	uint32_t away = next_switch(code, 0);
	int64_t caller = 0;

	for (uint32_t at = 0; at + WORD <= code->size && at < away; at += WORD) {
		struct arm_instruction i = arm_decode(word_at(code, at));

		if (i.kind == ARM_STORE && i.first == 3 && i.base == G)
			caller = i.offset;
	}
	if (!away || !parts->current || caller <= G_SP || caller > UINT8_MAX)
		return false;
	add_part(parts, away, code->size,
	         pack_rule(UNWIND_GO_SWITCH, UNWIND_RA_INTERRUPTED, (int16_t)parts->current,
	                   (int32_t)(parts->current << 16 | (uint32_t)caller)));
	return true;
}

bool find_go_arm_parts(enum go_switch kind, const uint8_t *bytes, uint32_t size, struct go_parts *parts)
{
	struct code code = { bytes, size };
	struct arm_instruction push = arm_decode(word_at(&code, 0));
	uint32_t frame = (uint32_t)-push.writeback;

	parts->count = 0;
	if (kind == GO_CROSSCALL)
		return find_crosscall(&code, parts);
	if (kind == GO_MORESTACK)
		return find_morestack(&code, parts);
	/* STR x30, [sp, #-frame]! */
	if (push.kind != ARM_STORE || push.first != ARM_LR || push.base != ARM_SP || push.offset != push.writeback ||
	    push.writeback >= 0)
		return false;
	switch (kind) {
	case GO_SYSTEMSTACK: return frame == FRAME && find_systemstack(&code, parts);
	case GO_ASMCGOCALL: return frame == FRAME && find_asmcgocall(&code, parts);
	case GO_CGOCALLBACK: return find_cgocallback(&code, frame, parts);
	case GO_CLOCK: return find_clock(&code, frame, parts);
	default: return false;
	}
}
