// SPDX-License-Identifier: Apache-2.0
/* A file's sections to its unwind table. */
#include "unwind_build.h"
#include "unwind_file.h"

#define EXPORT __attribute__((visibility("default")))

static void add_entries(struct unwind_table *table, const struct unwind_input *input)
{
	struct entries entries = { .machine = input->machine };

	read_entries(&entries, table, &input->eh_frame, ENTRY_EH_FRAME);
	read_entries(&entries, table, &input->debug_frame, ENTRY_DEBUG_FRAME);
	read_go_functions(&entries, table, input);
	sort_entries(&entries);
	table->header.entries = entries.fdes.count;
	table->header.bad_entries = entries.bad;
	for (uint32_t i = 0; i < entries.fdes.count && !entries.budget.exhausted; i++) {
		const struct fde *fde = &entries.fdes.items[i];
		bool is_good = true;
		packed_rule rule;

		table->header.sources |= fde->kind == ENTRY_EH_FRAME      ? UNWIND_FROM_EH_FRAME
		                         : fde->kind == ENTRY_DEBUG_FRAME ? UNWIND_FROM_DEBUG_FRAME
		                                                          : UNWIND_FROM_GO;
		begin_rows(table, fde->start, fde->end);
		if (find_certain(table, fde->start, fde->end, &rule))
			add_row(table, fde->start, rule);
		else if (fde->kind == ENTRY_GO)
			is_good = run_go(table, fde, input->machine);
		else
			is_good = run_fde(table, &entries.cies.items[fde->cie], fde, input->machine);
		table->header.bad_entries += !is_good;
	}
	table->budget.exhausted = table->budget.exhausted || entries.budget.exhausted;
	RELEASE(entries.cies);
	RELEASE(entries.fdes);
}

EXPORT struct unwind_table *tdprof_unwind_build(const struct unwind_input *input)
{
	struct unwind_table *table = malloc(sizeof(*table));

	if (!table)
		return NULL;
	bool is_open = open_table(table, input);

	if (is_open) {
		add_entries(table, input);
		finish_table(table);
	}
	if (!is_open || table->budget.exhausted) {
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
	       (uint64_t)header->rows * 4;
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
	append(out, table->rows.items, (uint64_t)header.rows * 4);
}

EXPORT void tdprof_unwind_close(struct unwind_table *table)
{
	if (!table)
		return;
	RELEASE(table->rules);
	RELEASE(table->rows);
	RELEASE(table->functions);
	RELEASE(table->function);
	free(table->code);
	free(table->buckets);
	free(table->rule_numbers.slots);
	free(table);
}
