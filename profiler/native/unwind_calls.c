// SPDX-License-Identifier: Apache-2.0
/* Where execution returns to, for walks of copied stacks, which have no code at hand. */
#include "unwind_calls.h"
#include "unwind_build.h"

enum {
	MOST_CODE = 16 << 20,
	LONGEST_CALL = 7,
	BYTES_OF_SMALL = 512, /* code that a function without padding before it stands for, where most are such */
};

/* Whether execution may return to a place of the segment that rows are being added to. */
static bool may_be_returned_to(struct unwind_table *table, place_t place)
{
	uint64_t before, after = 0;
	place_t first;
	const uint8_t *code = segment_code(table, &first);

	if (!code || place - first < sizeof(before))
		return true;
	memcpy(&before, code + (place - first) - sizeof(before), sizeof(before));
	if (segment_end(table, place) - place >= sizeof(after))
		memcpy(&after, code + (place - first), sizeof(after));
	if (table->header.machine == MACHINE_AARCH64)
		return unwind_ends_with_branch_and_link(before) || unwind_begins_with_arm_sigreturn(after);
	return unwind_ends_with_call(before) || unwind_begins_with_sigreturn(after);
}

void check_beginnings(struct unwind_table *table)
{
	const uint32_t *doubtful = table->doubtful.items;
	uint32_t bytes = table->segments[table->segment].bytes, next = 0, kept = 0;
	/* To read all code of x86-64 takes half as long as all else, and few functions lie without padding, unless the
	 * compiler was to save room. */
	bool is_read = table->header.machine == MACHINE_AARCH64 || table->doubtful.count >= bytes / BYTES_OF_SMALL;

	if (!table->doubtful.count)
		return;
	for (uint32_t i = 0; i < table->beginnings.count; i++) {
		place_t place = table->beginnings.items[i];
		bool is_doubtful = next < table->doubtful.count && doubtful[next] == i;

		next += is_doubtful;
		if (!is_doubtful || (is_read && !may_be_returned_to(table, place)))
			table->beginnings.items[kept++] = place;
	}
	table->beginnings.count = kept;
	table->doubtful.count = 0;
}

/* Whether a caller's CFA may be relative to a register that only the topmost frame knows. */
static bool has_register_rules(const struct unwind_table *table)
{
	if (table->header.machine != MACHINE_X86_64)
		return false;
	for (uint32_t i = 0; i < table->rules.count; i++)
		if ((table->rules.items[i] & 0xff & ~(packed_rule)UNWIND_INFERRED) >= UNWIND_CFA_REGISTER)
			return true;
	return false;
}

/* Of `size` bytes of code, 8 more of which are 0, and of the address behind them; `place` is the first's. */
static void note_calls(struct unwind_table *table, const uint8_t *code, uint32_t size, place_t place)
{
	uint64_t before = 0, after;
	uint32_t since = LONGEST_CALL + 1; /* bytes since the last that an indirect call begins with */

	for (uint32_t at = 0;; at++, place++) {
		memcpy(&after, code + at, sizeof(after));
		/* Few bytes are one of the two that calls begin with. */
		if (((since <= LONGEST_CALL || (before >> 24 & 0xff) == 0xe8) && unwind_ends_with_call(before)) ||
		    unwind_begins_with_sigreturn(after))
			PUSH(table->calls, &table->budget, place);
		if (at == size)
			return;
		before = before >> 8 | (uint64_t)code[at] << 56;
		since = code[at] == 0xff ? 1 : since + 1;
	}
}

static bool read_calls(struct unwind_table *table, const struct unwind_segment *segment)
{
	bool is_read;
	uint8_t *code;

	if (segment->bytes > MOST_CODE)
		return false;
	code = calloc((size_t)segment->bytes + 8, 1);
	is_read = code && !table->input->read_code(segment->elf_address, code, segment->bytes);
	if (is_read)
		note_calls(table, code, segment->bytes, segment_start(segment));
	free(code);
	return is_read;
}

void find_calls(struct unwind_table *table)
{
	if (!table->input->read_code || !has_register_rules(table))
		return;
	for (uint32_t i = 0; i < table->header.segments; i++)
		if (!read_calls(table, &table->segments[i]))
			return; /* no call is told from one that is not known: all or none */
	table->header.calls = table->calls.count;
}
