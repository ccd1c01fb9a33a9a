// SPDX-License-Identifier: Apache-2.0
/* The walk over a unit's DIEs: functions and the calls inlined into them, painted over the unit's line rows. */
#include "dwarf.h"

#include <stdio.h>

#define DEEPEST_DIE 1024
#define LONGEST_PATH 8192
#define FEW_EDGES 24 /* up to here insertion sort beats qsort's calls */

/* A function or inlined call that has addresses, as read; becomes a `struct node` once code is left to it. */
struct candidate {
	const struct unit *named_by; /* where and */
	uint64_t named_at;	     /* at which offset its name is to be found */
	uint32_t parent;	     /* candidate, or NO_ID for a function of its own */
	uint32_t call_file, call_line;
	uint32_t node; /* NO_ID until needed */
};

struct interval {
	uint64_t start, end;
	uint32_t candidate;
};

/* Memory that is used again for each unit and function. */
struct function_scratch {
	struct line_table lines;
	bool lines_read, lines_fine;
	const struct unit *unit, *line_unit;
	uint32_t unit_number, first_run;
	bool has_skipped;
	uint64_t segment_budget; /* that the unit may still add */
	VECTOR(uint32_t) file_ids; /* of the unit's file numbers; FILE_UNRESOLVED until asked for */
	VECTOR(struct candidate) candidates;
	VECTOR(struct interval) intervals;
	VECTOR(uint64_t) edges;
	VECTOR(uint32_t) owners; /* candidate that owns the code from each edge to the next */
	VECTOR(uint32_t) free_cells; /* union-find: the next cell that nobody owns yet */
	VECTOR(struct range) covered;
	struct ranges ranges;
};

#define FILE_UNRESOLVED (UINT32_MAX - 1)

bool open_worker(struct worker *worker, struct dwarf_index *index)
{
	*worker = (struct worker){ .index = index, .scratch = calloc(1, sizeof(struct function_scratch)) };
	return worker->scratch != NULL;
}

void close_worker(struct worker *worker)
{
	struct function_scratch *scratch = worker->scratch;

	RELEASE(worker->segments);
	RELEASE(worker->runs);
	RELEASE(worker->nodes);
	RELEASE(worker->functions);
	RELEASE(worker->files);
	RELEASE(worker->file_text);
	free(worker->file_ids);
	free(worker->function_by_name.slots);
	free(worker->function_by_die.slots);
	free(worker->file_by_hash.slots);
	if (!scratch)
		return;
	RELEASE(scratch->lines.rows);
	RELEASE(scratch->lines.sequences);
	RELEASE(scratch->lines.files);
	RELEASE(scratch->lines.directories);
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

/* --- names and files --- */

uint32_t intern_file(struct worker *worker, const char *text, size_t length)
{
	uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
	uint32_t id;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
	id = map_find(&worker->file_by_hash, hash);
	if (id != MAP_NOTHING && !strcmp(worker->file_text.items + worker->files.items[id], text))
		return id;
	if (!PUSH(worker->files, &worker->exhausted, worker->file_text.count))
		return NO_ID;
	if (!grow_vector((void **)&worker->file_text.items, &worker->file_text.capacity,
			 (uint64_t)worker->file_text.count + length + 1, 1, &worker->exhausted)) {
		worker->files.count--;
		return NO_ID;
	}
	memcpy(worker->file_text.items + worker->file_text.count, text, length + 1);
	worker->file_text.count += (uint32_t)length + 1;
	if (id == MAP_NOTHING) /* two paths of one hash: the second is found anew each time, which is still right */
		map_add(&worker->file_by_hash, hash, worker->files.count - 1, &worker->exhausted);
	return worker->files.count - 1;
}

static const char *separator(const char *directory)
{
	size_t length = strlen(directory);

	return length && directory[length - 1] != '/' ? "/" : "";
}

/* The path of a file number of the unit: unit's directory, include directory, name, as far as each is relative. */
static uint32_t compose_file(struct worker *worker, const struct line_file *file)
{
	const char *unit_directory = worker->scratch->line_unit->directory;
	const char *first = "", *second = file->directory ? file->directory : "";
	char path[LONGEST_PATH];
	int length;

	if (!file->name)
		return NO_ID;
	if (*file->name == '/')
		second = "";
	else if (*second != '/' && file->below_unit_directory && unit_directory)
		first = unit_directory;
	length = snprintf(path, sizeof(path), "%s%s%s%s%s", first, separator(first), second, separator(second), file->name);
	if (length < 0 || (size_t)length >= sizeof(path))
		return NO_ID;
	return intern_file(worker, path, (size_t)length);
}

static uint32_t file_id(struct worker *worker, uint32_t number)
{
	struct function_scratch *scratch = worker->scratch;

	if (scratch->lines.version < 5)
		number--; /* they count from 1; 0, no file, becomes too large */
	if (number >= scratch->file_ids.count)
		return NO_ID;
	if (scratch->file_ids.items[number] == FILE_UNRESOLVED)
		scratch->file_ids.items[number] = compose_file(worker, &scratch->lines.files.items[number]);
	return scratch->file_ids.items[number];
}

static uint32_t function_id(struct worker *worker, const struct unit *unit, uint64_t offset)
{
	/* Where the DIE stands in memory tells it from those of every other file. */
	uint64_t die = (uint64_t)(uintptr_t)unit->file->sections[SECTION_INFO].data + offset;
	uint32_t id = map_find(&worker->function_by_die, die);
	const char *name;

	if (id != MAP_NOTHING)
		return id;
	name = function_name(unit, offset);
	if (!name || !*name)
		return NO_ID;
	id = map_find(&worker->function_by_name, (uint64_t)(uintptr_t)name);
	if (id == MAP_NOTHING) {
		id = worker->functions.count;
		if (!PUSH(worker->functions, &worker->exhausted, name))
			return NO_ID;
		map_add(&worker->function_by_name, (uint64_t)(uintptr_t)name, id, &worker->exhausted);
	}
	map_add(&worker->function_by_die, die, id, &worker->exhausted);
	return id;
}

static uint32_t node_of(struct worker *worker, uint32_t number)
{
	struct candidate *candidate = &worker->scratch->candidates.items[number];
	struct node node;

	if (candidate->node != NO_ID)
		return candidate->node;
	node.function = function_id(worker, candidate->named_by, candidate->named_at);
	node.parent = candidate->parent == NO_ID ? NO_ID : node_of(worker, candidate->parent);
	node.call_file = node.parent == NO_ID ? NO_ID : file_id(worker, candidate->call_file);
	node.call_line = candidate->call_line;
	if (!PUSH(worker->nodes, &worker->exhausted, node))
		return NO_ID;
	candidate->node = worker->nodes.count - 1;
	return candidate->node;
}

/* --- line rows --- */

static void load_lines(struct function_scratch *scratch, struct worker *worker)
{
	if (scratch->lines_read)
		return;
	scratch->lines_read = true;
	scratch->lines_fine =
		read_lines(scratch->line_unit, worker->index->text_start, worker->index->text_end, &scratch->lines);
	scratch->file_ids.count = 0;
	for (uint32_t i = 0; i < scratch->lines.files.count; i++)
		PUSH(scratch->file_ids, &worker->exhausted, FILE_UNRESOLVED);
	/* Functions hardly overlap, so rows are used once. Damage that lays many functions over the same rows would
	 * cost their product. */
	scratch->segment_budget = cursor_left(&scratch->unit->dies) + 16 * (uint64_t)scratch->lines.rows.count;
}

static void add_segment(struct worker *worker, uint64_t start, uint32_t node, uint32_t file, uint32_t line,
			uint32_t run_first)
{
	if (worker->segments.count > run_first) {
		const struct segment *last = &worker->segments.items[worker->segments.count - 1];

		if (last->node == node && last->file == file && last->line == line)
			return;
	}
	if (worker->scratch->segment_budget && worker->scratch->segment_budget--)
		PUSH(worker->segments, &worker->exhausted, (struct segment){ start, node, file, line });
}

/* The last sequence that starts at or below `address`, or -1. */
static int64_t sequence_at(const struct line_table *lines, uint64_t address)
{
	uint32_t low = 0, high = lines->sequences.count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (lines->sequences.items[middle].start <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return (int64_t)low - 1;
}

/* The last row of the sequence that starts at or below `address`, which lies inside it. */
static uint32_t row_at(const struct line_table *lines, const struct line_sequence *sequence, uint64_t address)
{
	uint32_t low = sequence->first, high = sequence->last;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (lines->rows.items[middle].address <= address)
			low = middle;
		else
			high = middle;
	}
	return low;
}

/* Segments of the line rows from `start` to `end`, all belonging to `node`. */
static void add_lines(struct worker *worker, uint64_t start, uint64_t end, uint32_t node, uint32_t run_first)
{
	const struct line_table *lines = &worker->scratch->lines;

	while (start < end) {
		int64_t number = sequence_at(lines, start);
		const struct line_sequence *sequence = number < 0 ? NULL : &lines->sequences.items[number];
		uint64_t stop = end;

		if (!sequence || sequence->end <= start) { /* no row says anything of this */
			if (number + 1 < lines->sequences.count && lines->sequences.items[number + 1].start < stop)
				stop = lines->sequences.items[number + 1].start;
			add_segment(worker, start, node, NO_ID, 0, run_first);
			start = stop;
			continue;
		}
		if (sequence->end < stop)
			stop = sequence->end;
		for (uint32_t i = row_at(lines, sequence, start); i < sequence->last; i++) {
			const struct line_row *row = &lines->rows.items[i];

			if (row->address >= stop)
				break;
			add_segment(worker, row->address < start ? start : row->address, node,
				    file_id(worker, row->file), row->line, run_first);
		}
		start = stop;
	}
}

static void close_run(struct worker *worker, uint64_t start, uint64_t end, uint32_t first, bool is_gap)
{
	struct run run = { start, end, first, worker->segments.count, worker->scratch->unit_number, is_gap };

	if (run.last > run.first)
		PUSH(worker->runs, &worker->exhausted, run);
}

/* --- painting --- */

static int compare_addresses(const void *a, const void *b)
{
	uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;

	return x < y ? -1 : x > y;
}

static void sort_addresses(uint64_t *items, uint32_t count)
{
	if (count > FEW_EDGES) {
		qsort(items, count, sizeof(*items), compare_addresses);
		return;
	}
	for (uint32_t i = 1; i < count; i++) {
		uint64_t item = items[i];
		uint32_t j = i;

		for (; j && items[j - 1] > item; j--)
			items[j] = items[j - 1];
		items[j] = item;
	}
}

static uint32_t edge_index(const struct function_scratch *scratch, uint64_t address)
{
	uint32_t low = 0, high = scratch->edges.count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (scratch->edges.items[middle] < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint32_t next_free(uint32_t *free_cells, uint32_t cell)
{
	while (free_cells[cell] != cell) {
		free_cells[cell] = free_cells[free_cells[cell]];
		cell = free_cells[cell];
	}
	return cell;
}

/* Cut the intervals at each other's edges and find who owns each cell between two edges: the last DIE in reading
 * order, so the innermost. Backwards and skipping owned cells, so that each cell is visited once whatever the input. */
static bool paint(struct function_scratch *scratch, bool *exhausted)
{
	uint32_t cells = 0;

	scratch->edges.count = 0;
	for (uint32_t i = 0; i < scratch->intervals.count; i++)
		if (!PUSH(scratch->edges, exhausted, scratch->intervals.items[i].start) ||
		    !PUSH(scratch->edges, exhausted, scratch->intervals.items[i].end))
			return false;
	sort_addresses(scratch->edges.items, scratch->edges.count);
	for (uint32_t i = 0; i < scratch->edges.count; i++)
		if (!cells || scratch->edges.items[cells - 1] != scratch->edges.items[i])
			scratch->edges.items[cells++] = scratch->edges.items[i];
	scratch->edges.count = cells;
	scratch->owners.count = scratch->free_cells.count = 0;
	for (uint32_t i = 0; i < cells; i++)
		if (!PUSH(scratch->owners, exhausted, NO_ID) || !PUSH(scratch->free_cells, exhausted, i))
			return false;
	for (uint32_t i = scratch->intervals.count; i--;) {
		const struct interval *interval = &scratch->intervals.items[i];
		uint32_t end = edge_index(scratch, interval->end);
		uint32_t cell = next_free(scratch->free_cells.items, edge_index(scratch, interval->start));

		while (cell < end) {
			scratch->owners.items[cell] = interval->candidate;
			scratch->free_cells.items[cell] = cell + 1;
			cell = next_free(scratch->free_cells.items, cell + 1);
		}
	}
	return true;
}

/* Turn the collected function, with all that stands below it, into runs of segments. */
static void finish_function(struct worker *worker)
{
	struct function_scratch *scratch = worker->scratch;
	uint32_t run_first = 0;
	uint64_t run_start = 0;
	bool in_run = false;

	if (scratch->intervals.count && paint(scratch, &worker->exhausted)) {
		load_lines(scratch, worker);
		/* The last edge ends the last cell, and owns nothing. */
		for (uint32_t cell = 0; cell < scratch->edges.count; cell++) {
			uint64_t start = scratch->edges.items[cell];

			if (scratch->owners.items[cell] == NO_ID) {
				if (in_run)
					close_run(worker, run_start, start, run_first, false);
				in_run = false;
				continue;
			}
			if (!in_run) {
				in_run = true;
				run_start = start;
				run_first = worker->segments.count;
			}
			add_lines(worker, start, scratch->edges.items[cell + 1],
				  node_of(worker, scratch->owners.items[cell]), run_first);
		}
	}
	scratch->candidates.count = scratch->intervals.count = 0;
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
		case DW_AT_sibling:
			value = &die.sibling;
			break;
		case DW_AT_low_pc:
			value = &die.low;
			break;
		case DW_AT_high_pc:
			value = &die.high;
			break;
		case DW_AT_ranges:
			value = &die.ranges;
			break;
		case DW_AT_abstract_origin:
			value = &die.origin;
			break;
		case DW_AT_call_file:
			value = &die.call_file;
			break;
		case DW_AT_call_line:
			value = &die.call_line;
			break;
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
	struct candidate candidate = { unit,   die->offset,			    parent, (uint32_t)die->call_file.number,
				       (uint32_t)die->call_line.number, NO_ID };
	const struct unit *origin;
	uint64_t offset;

	/* Many calls of one function share their origin, and so the search for its name. */
	origin = parent == NO_ID ? NULL : value_reference(unit, &die->origin, &offset);
	if (origin) {
		candidate.named_by = origin;
		candidate.named_at = offset;
	}
	if (!PUSH(scratch->candidates, &worker->exhausted, candidate))
		return NO_ID;
	for (uint32_t i = 0; i < scratch->ranges.list.count; i++) {
		struct interval interval = { scratch->ranges.list.items[i].start, scratch->ranges.list.items[i].end,
					     scratch->candidates.count - 1 };

		/* Tombstones of discarded code lie outside the text. */
		if (interval.start >= worker->index->text_start && interval.end <= worker->index->text_end)
			PUSH(scratch->intervals, &worker->exhausted, interval);
	}
	return scratch->candidates.count - 1;
}

/* Read all functions of the unit that are wanted; false if a DIE breaks a rule. With `may_skip`, DIEs below a
 * function that is not wanted are not looked at: fast, but a nested function there may be wanted. */
static bool walk(struct worker *worker, const struct unit *unit, bool may_skip)
{
	struct function_scratch *scratch = worker->scratch;
	const uint8_t *info = unit->file->sections[SECTION_INFO].data;
	uint32_t scope[DEEPEST_DIE]; /* the candidate that encloses each level, or NO_ID */
	int depth = 0, function_depth = -1;
	struct cursor c = unit->dies;

	scope[0] = NO_ID;
	scratch->candidates.count = scratch->intervals.count = 0;
	while (cursor_left(&c) && !worker->exhausted) {
		uint64_t offset = (uint64_t)(c.at - info), code = read_uleb(&c), next;
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
				if (may_skip && value_reference(unit, &die.sibling, &next) == unit &&
				    next > offset && next < (uint64_t)(c.end - info) && info + next >= c.at) {
					scratch->has_skipped |= abbrev->has_children;
					c.at = info + next;
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

/* Emit `start` to `end`, which no function claims, as lines without a function. */
static void add_gap(struct worker *worker, uint64_t start, uint64_t end)
{
	uint32_t first = worker->segments.count;

	add_lines(worker, start, end, NO_ID, first);
	close_run(worker, start, end, first, true);
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
		PUSH(scratch->covered, &worker->exhausted,
		     (struct range){ worker->runs.items[i].start, worker->runs.items[i].end });
	if (scratch->covered.count)
		qsort(scratch->covered.items, scratch->covered.count, sizeof(struct range), compare_ranges);
	for (uint32_t i = 0; i < lines->sequences.count && !worker->exhausted; i++) {
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
	bool fine;

	/* A list of ranges belongs to one DIE, so a unit has no more entries than bytes to write them in. Damage that
	 * sends many DIEs to one long list would cost the square of the size. */
	scratch->ranges.budget = cursor_left(&full->dies) + full->file->sections[SECTION_RNGLISTS].size +
				 unit->file->sections[SECTION_RANGES].size;
	if (!unit_is_wanted(worker, unit))
		return true;
	scratch->unit = full;
	scratch->line_unit = unit;
	scratch->unit_number = number;
	scratch->first_run = runs;
	scratch->lines_read = scratch->has_skipped = false;
	scratch->lines_fine = true;
	fine = walk(worker, full, worker->index->wanted != NULL);
	load_lines(scratch, worker);
	if (add_gaps(worker) && scratch->has_skipped) {
		worker->segments.count = segments;
		worker->runs.count = runs;
		fine = walk(worker, full, false);
		add_gaps(worker);
	}
	if (scratch->ranges.exhausted)
		worker->exhausted = true;
	return fine && scratch->lines_fine && scratch->segment_budget;
}
