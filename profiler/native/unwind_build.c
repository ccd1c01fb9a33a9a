// SPDX-License-Identifier: Apache-2.0
/* A file's sections to its unwind table. */
#include "unwind_build.h"
#include "unwind_file.h"

#define EXPORT __attribute__((visibility("default")))

static void release(struct unwind_table *table)
{
	RELEASE(table->rules);
	RELEASE(table->rows);
	RELEASE(table->functions);
	RELEASE(table->function);
	free(table->code);
	RELEASE(table->calls);
	RELEASE(table->beginnings);
	RELEASE(table->doubtful);
	free(table->buckets);
	free(table->rule_numbers.slots);
}

/* The rows of all entries. How many of .eh_frame turn out to be wrong. */
static uint32_t add_rows(struct unwind_table *table, const struct entries *entries)
{
	uint32_t wrong = 0;

	for (uint32_t i = 0; i < entries->fdes.count && !entries->budget.exhausted; i++) {
		const struct fde *fde = &entries->fdes.items[i];
		bool is_good = true;
		packed_rule rule;

		table->header.sources |= fde->kind == ENTRY_EH_FRAME      ? UNWIND_FROM_EH_FRAME
		                         : fde->kind == ENTRY_DEBUG_FRAME ? UNWIND_FROM_DEBUG_FRAME
		                                                          : UNWIND_FROM_GO;
		begin_rows(table, fde->start, fde->end);
		if (find_certain(table, fde->start, fde->end, &rule))
			add_row(table, fde->start, rule);
		else if (fde->kind == ENTRY_GO)
			is_good = run_go(table, fde, entries->machine);
		else
			is_good = run_fde(table, &entries->cies.items[fde->cie], fde, entries->machine);
		table->header.bad_entries += !is_good;
		wrong += !is_good && fde->kind == ENTRY_EH_FRAME;
	}
	return wrong;
}

/* Once more from the beginning, now that calls are known from where the CFA is by RBX, or frames by RBP that functions
 * do not tell; false if there are none. */
static bool begin_again(struct unwind_table *table, const struct entries *entries)
{
	struct lazy_binding lazy = table->lazy;
	struct forgotten_frames forgotten = table->forgotten;
	const struct unwind_input *input = table->input;
	bool has_calls = lazy.row_count && find_rbx_calls(&lazy, table, entries);

	if (!has_calls && !forgotten.count)
		return false;
	release(table);
	if (!open_table(table, input))
		table->budget.exhausted = true;
	table->lazy = lazy;
	table->forgotten = forgotten;
	return !table->budget.exhausted;
}

/* How many entries of .eh_frame that could be read turn out to be wrong. */
static uint32_t add_entries(struct unwind_table *table, const struct unwind_input *input)
{
	struct entries entries = { .machine = input->machine };
	uint32_t wrong, overlaps;

	read_entries(&entries, table, &input->eh_frame, ENTRY_EH_FRAME);
	read_entries(&entries, table, &input->debug_frame, ENTRY_DEBUG_FRAME);
	read_go_functions(&entries, table, input);
	overlaps = sort_entries(&entries);
	wrong = add_rows(table, &entries);
	if (begin_again(table, &entries))
		wrong = add_rows(table, &entries);
	table->header.entries = entries.fdes.count;
	table->header.bad_entries += entries.bad + overlaps;
	table->budget.exhausted = table->budget.exhausted || entries.budget.exhausted;
	RELEASE(entries.cies);
	RELEASE(entries.fdes);
	return wrong + overlaps;
}

/* Fills a table that need not be initialised; false where it cannot be had. */
static bool build(struct unwind_table *table, const struct unwind_input *input, uint32_t *wrong)
{
	*wrong = 0;
	if (!open_table(table, input))
		return false;
	*wrong = add_entries(table, input);
	finish_table(table);
	find_calls(table);
	return !table->budget.exhausted;
}

EXPORT struct unwind_table *tdprof_unwind_build(const struct unwind_input *input)
{
	struct unwind_table *table = malloc(sizeof(*table));
	uint32_t wrong, none;

	if (!table)
		return NULL;
	bool is_built = build(table, input, &wrong);

	if (is_built && wrong) {
		/* Damage seldom comes alone: what is wrong with the section's others no rule tells. */
		struct unwind_input others = *input;
		uint32_t bad = table->header.bad_entries;

		others.eh_frame = (struct unwind_section){ 0 };
		release(table);
		is_built = build(table, &others, &none);
		table->header.bad_entries = bad;
		table->input = input;
	}
	if (!is_built) {
		tdprof_unwind_close(table);
		return NULL;
	}
	return table;
}

EXPORT uint64_t tdprof_unwind_size(const struct unwind_table *table)
{
	const struct unwind_header *header = &table->header;

	return sizeof(*header) + (uint64_t)header->segments * sizeof(struct unwind_segment) +
	       (uint64_t)header->rules * sizeof(struct unwind_rule) + (uint64_t)header->buckets * 4 +
	       ((uint64_t)header->rows + header->calls + header->beginnings) * 4;
}

static uint8_t *append(uint8_t *out, const void *data, uint64_t size)
{
	if (size)
		memcpy(out, data, size);
	return out + size;
}

EXPORT void tdprof_unwind_write(const struct unwind_table *table, uint8_t *out)
{
	struct unwind_header header = table->header;

	header.crc = unwind_crc(&header);
	out = append(out, &header, sizeof(header));
	out = append(out, table->segments, header.segments * sizeof(struct unwind_segment));
	out = append(out, table->rules.items, (uint64_t)header.rules * sizeof(struct unwind_rule));
	out = append(out, table->buckets, (uint64_t)header.buckets * 4);
	out = append(out, table->rows.items, (uint64_t)header.rows * 4);
	out = append(out, table->calls.items, (uint64_t)header.calls * 4);
	append(out, table->beginnings.items, (uint64_t)header.beginnings * 4);
}

EXPORT void tdprof_unwind_close(struct unwind_table *table)
{
	if (table)
		release(table);
	free(table);
}
