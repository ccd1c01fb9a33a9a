// SPDX-License-Identifier: Apache-2.0
/* The walk over a unit's DIEs: finds functions and the calls inlined into them. */
#include "dwarf_scratch.h"

#define DEEPEST_DIE 1024

bool open_worker(struct worker *worker, struct dwarf_index *index)
{
	*worker = (struct worker){ .index = index, .scratch = calloc(1, sizeof(struct function_scratch)) };
	worker->budget.common = &index->common_budget;
	if (!worker->scratch)
		return false;
	worker->scratch->lines.budget = worker->scratch->ranges.budget = &worker->budget;
	worker->scratch->foreign.budget = &worker->budget;
	return true;
}

static void release_lines(struct line_table *lines)
{
	RELEASE(lines->rows);
	RELEASE(lines->sequences);
	RELEASE(lines->files);
	RELEASE(lines->directories);
	free(lines->program.bytes);
}

void close_worker(struct worker *worker)
{
	struct function_scratch *scratch = worker->scratch;

	RELEASE(worker->segments);
	RELEASE(worker->runs);
	RELEASE(worker->nodes);
	RELEASE(worker->functions);
	for (uint32_t i = 0; i < worker->own_names.count; i++)
		free(worker->own_names.items[i]);
	RELEASE(worker->own_names);
	RELEASE(worker->unscoped);
	RELEASE(worker->foreign);
	RELEASE(worker->files);
	RELEASE(worker->file_text);
	free(worker->file_ids);
	close_unit_memory(&worker->unit_memory);
	free(worker->function_by_name.slots);
	free(worker->described_by_die.slots);
	free(worker->file_by_hash.slots);
	free(worker->file_by_place.slots);
	RELEASE(worker->described);
	if (!scratch)
		return;
	release_lines(&scratch->lines);
	release_lines(&scratch->foreign);
	RELEASE(scratch->file_ids);
	RELEASE(scratch->candidates);
	RELEASE(scratch->intervals);
	RELEASE(scratch->edges);
	RELEASE(scratch->owners);
	RELEASE(scratch->free_cells);
	RELEASE(scratch->covered);
	RELEASE(scratch->ranges.list);
	free(scratch);
	worker->scratch = NULL;
}

/* The first wanted address at or above `address`, as an index. */
static uint64_t next_wanted(const struct dwarf_index *index, uint64_t address)
{
	uint64_t low = 0, high = index->wanted_count;

	while (low < high) {
		uint64_t middle = low + (high - low) / 2;

		if (index->wanted[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool is_wanted(const struct dwarf_index *index, uint64_t start, uint64_t end)
{
	uint64_t next;

	if (!index->wanted)
		return true;
	next = next_wanted(index, start);
	return next < index->wanted_count && index->wanted[next] < end;
}

static bool any_wanted(const struct dwarf_index *index, const struct ranges *ranges)
{
	for (uint32_t i = 0; i < ranges->list.count; i++)
		if (is_wanted(index, ranges->list.items[i].start, ranges->list.items[i].end))
			return true;
	return false;
}

/* --- the walk --- */

struct die {
	uint64_t offset;
	struct value low, high, ranges, origin, sibling, call_file, call_line;
};

static struct die read_die(struct cursor *c, const struct abbrev *abbrev, const struct unit *unit, uint64_t offset)
{
	struct die die = { .offset = offset };

	for (uint32_t i = 0; i < abbrev->count; i++) {
		const struct attribute *attribute = &unit->table->attributes.items[abbrev->first + i];
		struct value *value = NULL;

		switch (attribute->name) {
		case DW_AT_sibling: value = &die.sibling; break;
		case DW_AT_low_pc: value = &die.low; break;
		case DW_AT_high_pc: value = &die.high; break;
		case DW_AT_ranges: value = &die.ranges; break;
		case DW_AT_abstract_origin: value = &die.origin; break;
		case DW_AT_call_file: value = &die.call_file; break;
		case DW_AT_call_line: value = &die.call_line; break;
		}
		if (value)
			*value = read_value(c, attribute, unit);
		else
			skip_value(c, attribute, unit);
	}
	return die;
}

static uint32_t add_candidate(struct worker *worker, const struct unit *unit, const struct die *die, uint32_t parent)
{
	struct function_scratch *scratch = worker->scratch;
	struct candidate candidate = {
		unit, die->offset, parent, (uint32_t)die->call_file.number, (uint32_t)die->call_line.number, NO_ID
	};
	const struct unit *origin;
	uint64_t offset;

	/* Many calls of one function share their origin, and so the search for its name. */
	origin = parent == NO_ID ? NULL : value_reference(unit, &die->origin, &offset);
	if (origin) {
		candidate.named_by = origin;
		candidate.named_at = offset;
	}
	if (!PUSH(scratch->candidates, &worker->budget, candidate))
		return NO_ID;
	for (uint32_t i = 0; i < scratch->ranges.list.count; i++) {
		struct interval interval = { scratch->ranges.list.items[i].start, scratch->ranges.list.items[i].end,
			                     scratch->candidates.count - 1 };

		/* Tombstones of discarded code lie outside the text. */
		if (interval.start >= worker->index->text_start && interval.end <= worker->index->text_end)
			PUSH(scratch->intervals, &worker->budget, interval);
	}
	return scratch->candidates.count - 1;
}

/* Read all functions of the unit that are wanted; false if a DIE breaks a rule. With `may_skip`, DIEs below a type, or
 * a function that is not wanted, are not looked at: fast, but a nested function there may be wanted. */
static bool walk(struct worker *worker, const struct unit *unit, bool may_skip)
{
	struct function_scratch *scratch = worker->scratch;
	const uint8_t *info = unit->info;
	uint32_t scope[DEEPEST_DIE]; /* the candidate that encloses each level, or NO_ID */
	int depth = 0, function_depth = -1;
	struct cursor c = all_dies(unit);

	scope[0] = NO_ID;
	scratch->candidates.count = scratch->intervals.count = 0;
	while (cursor_has(&c, 1) && !worker->budget.exhausted && !worker->budget.is_spent) {
		uint64_t offset = (uint64_t)(c.at - info), code = read_uleb(&c);
		const struct abbrev *abbrev;
		uint32_t self;

		if (!code) {
			depth -= depth > 0;
			if (depth == function_depth) {
				finish_function(worker);
				function_depth = -1;
			}
			continue;
		}
		abbrev = find_abbrev(unit->table, code);
		if (!abbrev)
			return false;
		self = scope[depth];
		if (abbrev->is_code) {
			struct die die = read_die(&c, abbrev, unit, offset);
			bool is_function = abbrev->tag == DW_TAG_subprogram;

			scratch->ranges.list.count = 0;
			if (c.bad || !value_ranges(unit, &die.low, &die.high, &die.ranges, &scratch->ranges))
				return false;
			if (function_depth < 0 && is_function && !any_wanted(worker->index, &scratch->ranges)) {
				if (may_skip && skip_children(&c, unit, &die.sibling)) {
					scratch->has_skipped |= abbrev->has_children;
					continue;
				}
				self = NO_ID;
			} else if (is_function || self != NO_ID) {
				self = add_candidate(worker, unit, &die, is_function ? NO_ID : self);
				if (function_depth < 0) {
					function_depth = depth;
					if (!abbrev->has_children) {
						finish_function(worker);
						function_depth = -1;
					}
				}
			}
		} else if (may_skip && function_depth < 0 && abbrev->tag != DW_TAG_module) {
			if (skip_die(&c, abbrev, unit)) {
				scratch->has_skipped |= abbrev->has_children;
				continue;
			}
		} else {
			skip_values(&c, abbrev, unit);
		}
		if (c.bad)
			return false;
		if (abbrev->has_children) {
			if (++depth == DEEPEST_DIE)
				return false;
			scope[depth] = self;
		}
	}
	finish_function(worker); /* of a unit that was cut off */
	return !c.bad;
}

static int compare_ranges(const void *a, const void *b)
{
	const struct range *x = a, *y = b;

	return x->start < y->start ? -1 : x->start > y->start;
}

/* Thunks and assembly have lines without functions. Of what the unit's sequences cover and its functions do not,
 * emit all; or, where only some addresses are wanted, just the row that each falls into, since code there may belong
 * to functions that were not wanted. Returns whether any wanted address fell into a gap. */
static bool add_gaps(struct worker *worker)
{
	struct function_scratch *scratch = worker->scratch;
	const struct dwarf_index *index = worker->index;
	const struct line_table *lines = &scratch->lines;
	bool found = false;
	uint32_t next = 0;

	scratch->covered.count = 0;
	for (uint32_t i = scratch->first_run; i < worker->runs.count; i++)
		PUSH(scratch->covered, &worker->budget,
		     (struct range){ worker->runs.items[i].start, worker->runs.items[i].end });
	if (scratch->covered.count)
		qsort(scratch->covered.items, scratch->covered.count, sizeof(struct range), compare_ranges);
	for (uint32_t i = 0; i < lines->sequences.count && !worker->budget.exhausted; i++) {
		const struct line_sequence *sequence = &lines->sequences.items[i];
		uint64_t at = sequence->start;

		while (at < sequence->end) {
			uint64_t end = sequence->end;

			while (next < scratch->covered.count && scratch->covered.items[next].end <= at)
				next++;
			if (next < scratch->covered.count) {
				if (scratch->covered.items[next].start <= at) {
					at = scratch->covered.items[next].end;
					continue;
				}
				if (scratch->covered.items[next].start < end)
					end = scratch->covered.items[next].start;
			}
			if (!index->wanted) {
				add_gap(worker, at, end);
				at = end;
				continue;
			}
			for (uint64_t w = next_wanted(index, at); w < index->wanted_count && index->wanted[w] < end;
			     w = next_wanted(index, at)) {
				uint32_t row = row_at(lines, sequence, index->wanted[w]);
				uint64_t start = lines->rows.items[row].address;
				uint64_t stop = row + 1 < sequence->last ? lines->rows.items[row + 1].address : end;

				found = true;
				start = start < at ? at : start;
				stop = stop > end ? end : stop;
				add_gap(worker, start, stop);
				at = stop > index->wanted[w] ? stop : index->wanted[w] + 1;
			}
			at = end;
		}
	}
	return found;
}

static bool unit_is_wanted(struct worker *worker, const struct unit *skeleton)
{
	struct ranges *ranges = &worker->scratch->ranges;
	struct value low = { .form = skeleton->low_pc ? DW_FORM_addr : 0, .number = skeleton->low_pc };

	ranges->list.count = 0;
	/* A unit that does not say what it covers has to be read. */
	if (!worker->index->wanted || !value_ranges(skeleton, &low, &skeleton->high_pc, &skeleton->ranges, ranges) ||
	    !ranges->list.count)
		return true;
	return any_wanted(worker->index, ranges);
}

bool index_unit(struct worker *worker, const struct unit *unit, uint32_t number)
{
	struct function_scratch *scratch = worker->scratch;
	const struct unit *full = unit->split ? unit->split : unit;
	uint32_t segments = worker->segments.count, runs = worker->runs.count;
	uint64_t entries;
	bool fine;

	/* A list of ranges belongs to one DIE, so a unit has no more entries than bytes to write them in. Damage that
	 * sends many DIEs to one long list would cost the square of the size. */
	entries = cursor_left(&full->dies) + full->file->sections[SECTION_RNGLISTS].size +
	          unit->file->sections[SECTION_RANGES].size;
	scratch->ranges.entries_left = entries;
	if (!unit_is_wanted(worker, unit))
		return spend_work(&worker->budget, entries - scratch->ranges.entries_left);
	full = open_unit(full, &worker->unit_memory, &worker->budget);
	scratch->unit = full;
	scratch->line_unit = unit;
	scratch->unit_number = number;
	scratch->first_run = runs;
	scratch->lines_read = scratch->has_skipped = false;
	scratch->lines_fine = true;
	/* Lines tell what was missed. */
	fine = walk(worker, full, worker->index->wanted && unit->has_lines);
	load_lines(worker);
	if (add_gaps(worker) && scratch->has_skipped) {
		worker->segments.count = segments;
		worker->runs.count = runs;
		fine = walk(worker, full, false);
		add_gaps(worker);
	}
	scope_names(worker, worker->unscoped.items, worker->unscoped.count);
	worker->unscoped.count = 0;
	spend_work(&worker->budget, entries - scratch->ranges.entries_left);
	return fine && scratch->lines_fine && scratch->segment_budget && !worker->budget.is_spent;
}
