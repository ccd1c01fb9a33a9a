// SPDX-License-Identifier: Apache-2.0
/* Segments of code: names and files by number, line rows cut at the edges of inlined calls. */
#include "dwarf_scratch.h"

#include <stdio.h>

#define LONGEST_PATH    8192
#define FEW_EDGES       24 /* up to here insertion sort beats qsort's calls */
#define FILE_UNRESOLVED (UINT32_MAX - 1)

/* --- names and files --- */

const char *keep_name(struct worker *worker, const char *text, size_t bytes)
{
	/* Once for itself and once for the copy in the end. */
	char *name = take_memory(&worker->budget, 2 * bytes) ? malloc(bytes) : NULL;

	if (name && PUSH(worker->own_names, &worker->budget, name))
		return memcpy(name, text, bytes);
	worker->budget.exhausted = true;
	free(name);
	return NULL;
}

uint32_t intern_file(struct worker *worker, const char *text, size_t length)
{
	/* FNV-1a, from a beginning that nobody knows who wrote the file: paths of one hash cost memory. */
	uint64_t hash = 0xcbf29ce484222325u ^ (uint64_t)(uintptr_t)worker;
	uint32_t id;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ (uint8_t)text[i]) * 0x100000001b3u;
	id = map_find(&worker->file_by_hash, hash);
	if (id != MAP_NOTHING && !strcmp(worker->file_text.items + worker->files.items[id], text))
		return id;
	if (!PUSH(worker->files, &worker->budget, worker->file_text.count))
		return NO_ID;
	if (!grow_vector((void **)&worker->file_text.items, &worker->file_text.capacity,
	                 (uint64_t)worker->file_text.count + length + 1, 1, &worker->budget)) {
		worker->files.count--;
		return NO_ID;
	}
	memcpy(worker->file_text.items + worker->file_text.count, text, length + 1);
	worker->file_text.count += (uint32_t)length + 1;
	if (id == MAP_NOTHING) /* two paths of one hash: the second is found anew each time, which is still right */
		map_add(&worker->file_by_hash, hash, worker->files.count - 1, &worker->budget);
	return worker->files.count - 1;
}

static const char *separator(const char *directory)
{
	size_t length = strlen(directory);

	return length && directory[length - 1] != '/' ? "/" : "";
}

/* The path of a unit's file: unit's directory, include directory, name, as far as each is relative. */
static uint32_t compose_file(struct worker *worker, const struct line_file *file, const char *unit_directory)
{
	const char *first = "", *second = file->directory ? file->directory : "";
	char path[LONGEST_PATH];
	int length;

	if (!file->name)
		return NO_ID;
	if (*file->name == '/')
		second = "";
	else if (*second != '/' && file->below_unit_directory && unit_directory)
		first = unit_directory;
	length = snprintf(path, sizeof(path), "%s%s%s%s%s", first, separator(first), second, separator(second),
	                  file->name);
	if (length < 0 || (size_t)length >= sizeof(path) || !spend_work(&worker->budget, (uint64_t)length))
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
		scratch->file_ids.items[number] =
			compose_file(worker, &scratch->lines.files.items[number], scratch->line_unit->directory);
	return scratch->file_ids.items[number];
}

/* A file by its number in a unit that need not be the one that is read: link-time optimization and dwz leave what
 * describes a function in others. */
static uint32_t described_file(struct worker *worker, const struct unit *unit, uint32_t number)
{
	struct function_scratch *scratch = worker->scratch;
	struct line_table *lines = &scratch->foreign;
	uint64_t place;
	uint32_t id;

	if (!unit)
		return NO_ID;
	if (unit->file == scratch->unit->file && unit->offset == scratch->unit->offset)
		return file_id(worker, number);
	if (unit->skeleton)
		unit = unit->skeleton;
	if (!unit->has_lines)
		return NO_ID;
	/* Each file takes a byte of its table at least, so that no two have one place. */
	place = (uint64_t)(uintptr_t)unit->file->sections[SECTION_LINE].data + unit->line_offset + number;
	id = map_find(&worker->file_by_place, place);
	if (id != MAP_NOTHING)
		return id;
	if (unit != scratch->foreign_unit) {
		scratch->foreign_unit = unit;
		if (!read_line_files(unit, lines))
			lines->files.count = 0;
	}
	if (lines->version < 5)
		number--;
	if (number >= lines->files.count)
		return NO_ID;
	id = compose_file(worker, &lines->files.items[number], unit->directory);
	map_add(&worker->file_by_place, place, id, &worker->budget);
	return id;
}

/* Whether a name alone may be that of several functions, which what is around them tells apart. */
static bool has_scopes(const struct function_name *function)
{
	if (function->is_linkage || function->is_external)
		return false;
	switch (function->unit->language) {
	case 0: /* of what dwz moved into units of their own */
	case DW_LANG_C_plus_plus:
	case DW_LANG_C_plus_plus_03:
	case DW_LANG_C_plus_plus_11:
	case DW_LANG_C_plus_plus_14:
	case DW_LANG_C_plus_plus_17:
	case DW_LANG_C_plus_plus_20:
	case DW_LANG_C_plus_plus_23: return true;
	}
	return false;
}

static uint32_t function_id(struct worker *worker, struct function_name function)
{
	uint64_t place = place_of(function.text, &worker->unit_memory);
	bool is_scoped = has_scopes(&function);
	uint32_t id;

	id = is_scoped ? MAP_NOTHING : map_find(&worker->function_by_name, place);
	if (id == MAP_NOTHING) {
		id = worker->functions.count;
		if (place != (uint64_t)(uintptr_t)function.text)
			function.text = keep_name(worker, function.text, strlen(function.text) + 1);
		if (!function.text)
			return NO_ID;
		/* The names are copied in the end: those that are ends of one text, too. */
		if (!take_memory(&worker->budget, strlen(function.text) + 1) ||
		    !PUSH(worker->functions, &worker->budget, function.text))
			return NO_ID;
		if (!is_scoped)
			map_add(&worker->function_by_name, place, id, &worker->budget);
		else if (function.unit == worker->scratch->unit)
			PUSH(worker->unscoped, &worker->budget,
			     (struct unscoped){ function.unit, function.offset, id });
		else
			PUSH(worker->foreign, &worker->budget, (struct unscoped){ function.unit, function.offset, id });
	}
	return id;
}

static struct described describe(struct worker *worker, const struct unit *unit, uint64_t offset)
{
	/* Where the DIE stands in memory tells it from those of every other file. */
	uint64_t die = (uint64_t)(uintptr_t)unit->file->sections[SECTION_INFO].data + offset;
	uint32_t known = map_find(&worker->described_by_die, die);
	struct described described = { NO_ID, NO_ID };
	struct function_name function;
	uint64_t steps = 0;

	if (known != MAP_NOTHING)
		return worker->described.items[known];
	function = function_name(unit, offset, &steps);
	if (!spend_work(&worker->budget, steps))
		return described;
	described.file = described_file(worker, function.file_unit, function.file);
	if (function.text && *function.text)
		described.function = function_id(worker, function);
	if (PUSH(worker->described, &worker->budget, described))
		map_add(&worker->described_by_die, die, worker->described.count - 1, &worker->budget);
	return described;
}

static uint32_t node_of(struct worker *worker, uint32_t number)
{
	struct candidate *candidate = &worker->scratch->candidates.items[number];
	struct described described;
	struct node node;

	if (candidate->node != NO_ID)
		return candidate->node;
	described = describe(worker, candidate->named_by, candidate->named_at);
	node.function = described.function;
	node.file = described.file;
	node.parent = candidate->parent == NO_ID ? NO_ID : node_of(worker, candidate->parent);
	node.call_file = node.parent == NO_ID ? NO_ID : file_id(worker, candidate->call_file);
	node.call_line = candidate->call_line;
	if (!PUSH(worker->nodes, &worker->budget, node))
		return NO_ID;
	candidate->node = worker->nodes.count - 1;
	return candidate->node;
}

/* --- line rows --- */

void load_lines(struct worker *worker)
{
	struct function_scratch *scratch = worker->scratch;

	if (scratch->lines_read)
		return;
	scratch->lines_read = true;
	scratch->lines_fine =
		read_lines(scratch->line_unit, worker->index->text_start, worker->index->text_end, &scratch->lines);
	scratch->file_ids.count = 0;
	for (uint32_t i = 0; i < scratch->lines.files.count; i++)
		PUSH(scratch->file_ids, &worker->budget, FILE_UNRESOLVED);
	/* Functions hardly overlap, so rows are used once. Damage that lays many functions over the same rows would
	 * cost their product. */
	scratch->segment_budget = 64 + cursor_left(&scratch->unit->dies) + 16 * (uint64_t)scratch->lines.rows.count;
}

static void add_segment(struct worker *worker, uint64_t start, uint32_t node, uint32_t file, uint32_t line,
                        uint32_t run_first)
{
	if (worker->segments.count > run_first) {
		const struct segment *last = &worker->segments.items[worker->segments.count - 1];

		if (last->node == node && last->file == file && last->line == line)
			return;
	}
	PUSH(worker->segments, &worker->budget, (struct segment){ start, node, file, line });
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
uint32_t row_at(const struct line_table *lines, const struct line_sequence *sequence, uint64_t address)
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

/* Each row that is looked at counts, also one that adds nothing. */
static bool spend_segment(struct function_scratch *scratch)
{
	return scratch->segment_budget && --scratch->segment_budget;
}

/* Segments of the line rows from `start` to `end`, all belonging to `node`. */
static void add_lines(struct worker *worker, uint64_t start, uint64_t end, uint32_t node, uint32_t run_first)
{
	const struct line_table *lines = &worker->scratch->lines;

	while (start < end && spend_segment(worker->scratch)) {
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

			if (row->address >= stop || !spend_segment(worker->scratch))
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
		PUSH(worker->runs, &worker->budget, run);
}

void add_gap(struct worker *worker, uint64_t start, uint64_t end)
{
	uint32_t first = worker->segments.count;

	add_lines(worker, start, end, NO_ID, first);
	close_run(worker, start, end, first, true);
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
static bool paint(struct function_scratch *scratch, struct budget *budget)
{
	uint32_t cells = 0;

	scratch->edges.count = 0;
	for (uint32_t i = 0; i < scratch->intervals.count; i++)
		if (!PUSH(scratch->edges, budget, scratch->intervals.items[i].start) ||
		    !PUSH(scratch->edges, budget, scratch->intervals.items[i].end))
			return false;
	sort_addresses(scratch->edges.items, scratch->edges.count);
	for (uint32_t i = 0; i < scratch->edges.count; i++)
		if (!cells || scratch->edges.items[cells - 1] != scratch->edges.items[i])
			scratch->edges.items[cells++] = scratch->edges.items[i];
	scratch->edges.count = cells;
	scratch->owners.count = scratch->free_cells.count = 0;
	for (uint32_t i = 0; i < cells; i++)
		if (!PUSH(scratch->owners, budget, NO_ID) || !PUSH(scratch->free_cells, budget, i))
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

void finish_function(struct worker *worker)
{
	struct function_scratch *scratch = worker->scratch;
	uint32_t run_first = 0;
	uint64_t run_start = 0;
	bool in_run = false;

	if (scratch->intervals.count && paint(scratch, &worker->budget)) {
		load_lines(worker);
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
