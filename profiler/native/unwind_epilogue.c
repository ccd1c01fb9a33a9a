// SPDX-License-Identifier: Apache-2.0
/* Prologues and epilogues of aarch64 of which call-frame information says nothing: LLVM 14 has one row up to a
 * prologue's end and one from there on. What lies between is read from the instructions. */
#include "arm_instruction.h"
#include "unwind_build.h"

enum {
	MOST_CODE = 64 << 20, /* bytes of a segment that are read */
	MOST_EPILOGUE = 32,   /* instructions */
};

/* Of an instruction on what a rule speaks of. */
struct effect {
	int64_t sp; /* added to it */
	bool loads_fp, loads_lr;
	bool is_end; /* branches, or makes SP something else */
};

/* All registers are as in the caller, but for the return address in LR. */
static const packed_rule LEAF = UNWIND_CFA_SP | (packed_rule)UNWIND_RA_LR << 8 | (packed_rule)UNWIND_FP_SAME << 16;

static struct effect effect_of(uint32_t word)
{
	struct arm_instruction i = arm_decode(word);
	struct effect effect = { 0 };

	switch (i.kind) {
	case ARM_CONDITIONAL:
	case ARM_BRANCH:
	case ARM_CALL:
	case ARM_JUMP:
	case ARM_END:
	case ARM_ADD_SP:
	case ARM_SET_SP: effect.is_end = true; return effect;
	case ARM_ADD:
		if (i.first == ARM_SP && i.base == ARM_SP)
			effect.sp = i.offset;
		else
			effect.is_end = i.first == ARM_SP;
		return effect;
	default: break;
	}
	if (i.base != ARM_SP)
		return effect;
	effect.sp = i.writeback;
	if (i.kind == ARM_LOAD) {
		effect.loads_fp = i.first == ARM_FP || i.second == ARM_FP;
		effect.loads_lr = i.first == ARM_LR || i.second == ARM_LR;
	}
	return effect;
}

const uint8_t *segment_code(struct unwind_table *table, place_t *first)
{
	const struct unwind_segment *segment = &table->segments[table->segment];

	*first = (segment->first_bucket << UNWIND_BUCKET_SHIFT) + (place_t)(segment->elf_address & 0xff);
	if (!table->input->read_code || segment->bytes > MOST_CODE)
		return NULL;
	if (!table->code || table->code_segment != table->segment) {
		free(table->code);
		table->code_segment = table->segment;
		table->code = malloc((uint64_t)segment->bytes + 1);
		if (table->code && table->input->read_code(segment->elf_address, table->code, segment->bytes))
			memset(table->code, 0, segment->bytes);
	}
	return table->code;
}

/* The rule where `bytes` of a frame with this rule are left, and some of its registers are the caller's again. */
static bool rule_within(packed_rule whole, int64_t bytes, bool has_fp, bool has_lr, packed_rule *out)
{
	uint8_t cfa = whole & 0xff, ra = whole >> 8 & 0xff;
	int16_t slot = (int16_t)(whole >> 16);
	bool saves_fp = ra != UNWIND_RA_SLOT && slot != UNWIND_FP_SAME;

	if (cfa == UNWIND_CFA_FP && !has_fp) {
		*out = whole;
		return true;
	}
	has_fp = has_fp || !saves_fp;
	if (has_fp && has_lr) {
		*out = pack_rule(UNWIND_CFA_SP, UNWIND_RA_LR, UNWIND_FP_SAME, (int32_t)bytes);
		return true;
	}
	if (slot & 7)
		return false; /* counted from something that is not as it was */
	if (has_lr)
		ra = UNWIND_RA_LR;
	else if (has_fp && ra != UNWIND_RA_SLOT)
		slot = (int16_t)(slot + (ra - UNWIND_RA_NEAR) * 8);
	if (!has_lr && has_fp)
		ra = UNWIND_RA_SLOT;
	*out = pack_rule(UNWIND_CFA_SP, ra, slot, (int32_t)bytes);
	return true;
}

/* What is known of a function, and a row of it: one rule from `start` to `end`. */
struct stretch {
	struct unwind_table *table;
	const uint8_t *code; /* of the first place */
	place_t start, end;
	packed_rule rule;
};

static uint32_t word_at(const struct stretch *stretch, place_t place)
{
	uint32_t word;

	memcpy(&word, stretch->code + (place - stretch->start), sizeof(word));
	return word;
}

/* Before the frame is whole: the return address is in LR, and FP the caller's until it is that of a frame record. */
static void add_prologue(const struct stretch *stretch)
{
	int64_t bytes = 0;

	add_row(stretch->table, stretch->start, LEAF);
	for (place_t place = stretch->start; place + 8 <= stretch->end; place += 4) {
		uint32_t word = word_at(stretch, place);
		struct effect effect = effect_of(word);

		if (bytes && effect.is_end)
			return;
		if ((word & 0xff8003ff) == 0x910003fd) { /* ADD x29, sp */
			int64_t above = bytes - (int64_t)(word >> 10 & 0xfff);

			if (above >= 16 && above <= INT16_MAX)
				add_row(stretch->table, place + 4,
				        pack_rule(UNWIND_CFA_FP, UNWIND_RA_NEAR + 1, (int16_t)-above, (int32_t)above));
			return;
		}
		bytes -= effect.sp;
		if (effect.sp && bytes >= 0 && bytes <= INT32_MAX)
			add_row(stretch->table, place + 4,
			        pack_rule(UNWIND_CFA_SP, UNWIND_RA_LR, UNWIND_FP_SAME, (int32_t)bytes));
	}
}

/* What leads to where a function is left, at `last`, found from there backwards: at the end all is the caller's. */
static void add_epilogue(const struct stretch *stretch, place_t from, place_t last)
{
	packed_rule rules[MOST_EPILOGUE] = { LEAF };
	bool has_fp = true, has_lr = true;
	uint32_t count = 1;
	int64_t bytes = 0;

	while (count < MOST_EPILOGUE && last - 4 * count >= from && last >= 4 * count) {
		struct effect effect = effect_of(word_at(stretch, last - 4 * count));

		has_fp = has_fp && !effect.loads_fp;
		has_lr = has_lr && !effect.loads_lr;
		bytes += effect.sp;
		if (effect.is_end || effect.sp < 0 || bytes > INT32_MAX ||
		    !rule_within(stretch->rule, bytes, has_fp, has_lr, &rules[count]) || rules[count] == stretch->rule)
			break;
		count++;
	}
	/* Who jumps elsewhere may do so from within the function. */
	if (has_lr && !arm_is_return(word_at(stretch, last)))
		return;
	while (count--)
		add_row(stretch->table, last - 4 * count, rules[count]);
	if (last + 4 < stretch->end)
		add_row(stretch->table, last + 4, stretch->rule);
}

static bool leaves(uint32_t word, place_t place, place_t start, place_t end)
{
	int64_t target = (int64_t)place + ((int32_t)(word << 6) >> 4);

	return arm_is_return(word) || (word >> 26 == 5 && (target < start || target >= end));
}

static void add_body(const struct stretch *stretch, place_t start, place_t end)
{
	uint8_t cfa = stretch->rule & 0xff, ra = stretch->rule >> 8 & 0xff;
	place_t from = stretch->start;

	add_row(stretch->table, stretch->start, stretch->rule);
	if ((cfa != UNWIND_CFA_SP && cfa != UNWIND_CFA_FP) || (ra != UNWIND_RA_SLOT && ra < UNWIND_RA_NEAR - 64))
		return;
	for (place_t place = stretch->start; place + 4 <= stretch->end; place += 4) {
		if (!leaves(word_at(stretch, place), place, start, end))
			continue;
		add_epilogue(stretch, from, place);
		from = place + 4;
	}
}

void add_function(struct unwind_table *table, place_t start, place_t end)
{
	const struct placed_rule *rows = table->function.items;
	uint32_t count = table->function.count;
	place_t first;
	bool is_told = count < 2 || rows[0].rule != LEAF || rows[0].place != start || start & 3;

	for (uint32_t i = 1; i < count; i++)
		is_told = is_told || rows[i].rule == LEAF || rows[i].place & 3;
	const uint8_t *code = is_told ? NULL : segment_code(table, &first);

	for (uint32_t i = 0; i < count; i++) {
		struct stretch stretch = { .table = table, .start = rows[i].place, .rule = rows[i].rule };

		stretch.end = i + 1 < count ? rows[i + 1].place : end;
		if (!code) {
			add_row_until(table, stretch.start, stretch.end, stretch.rule);
			continue;
		}
		stretch.code = code + (stretch.start - first);
		if (i == 0)
			add_prologue(&stretch);
		else
			add_body(&stretch, start, end);
	}
	table->function.count = 0;
}
