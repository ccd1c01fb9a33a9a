// SPDX-License-Identifier: Apache-2.0
/* The exported functions: open a file's sections, read its units on several threads, hand out sorted columns. */
#include "dwarf.h"

#define EXPORT       __attribute__((visibility("default")))
#define MOST_THREADS 64

/* What reading may take. Real debug data needs a third of its size in memory and a few steps a byte. */
#define MEMORY_SPARE   (48u << 20)
#define MEMORY_TO_DATA 2
#define MEMORY_TO_FILE 6
#define WORK_SPARE     (1u << 24)
#define WORK_TO_DATA   64

static uint64_t data_size(const struct dwarf_section *sections)
{
	uint64_t size = 0;

	for (int i = 0; sections && i < SECTION_COUNT; i++)
		size += sections[i].size;
	return size;
}

static void open_file(struct debug_file *file, const struct dwarf_section *sections, const struct debug_file *shared,
                      struct budget *budget)
{
	if (!open_sections(file, sections, budget))
		return;
	file->shared = shared;
	file->abbrev_budget = 4 * sections[SECTION_ABBREV].size + 4096;
	scan_units(file, budget);
}

static void close_file(struct debug_file *file)
{
	for (uint32_t i = 0; i < file->tables.count; i++) {
		RELEASE(file->tables.items[i]->abbrevs);
		RELEASE(file->tables.items[i]->attributes);
		free(file->tables.items[i]);
	}
	RELEASE(file->tables);
	RELEASE(file->units);
	free(file->table_by_key.slots);
	close_sections(file);
}

EXPORT void tdprof_dwarf_close(struct dwarf_index *index)
{
	if (!index)
		return;
	for (unsigned i = 0; i < index->worker_count; i++)
		close_worker(&index->workers[i]);
	free(index->workers);
	for (uint32_t i = 0; i < index->splits.count; i++) {
		close_file(index->splits.items[i]);
		free(index->splits.items[i]);
	}
	RELEASE(index->splits);
	RELEASE(index->runs);
	close_file(&index->main);
	close_file(&index->shared);
	free(index);
}

EXPORT struct dwarf_index *tdprof_dwarf_open(const struct dwarf_section *sections, const struct dwarf_section *shared,
                                             uint64_t text_start, uint64_t text_end, uint64_t file_bytes)
{
	struct dwarf_index *index = calloc(1, sizeof(*index));

	if (!index)
		return NULL;
	index->common_budget = (struct common_budget){
		.memory = MEMORY_SPARE + MEMORY_TO_DATA * (data_size(sections) + data_size(shared)) +
		          MEMORY_TO_FILE * file_bytes,
		.work = WORK_SPARE + WORK_TO_DATA * (data_size(sections) + data_size(shared)),
	};
	index->budget.common = &index->common_budget;
	index->text_start = text_start;
	index->text_end = text_end;
	if (shared)
		open_file(&index->shared, shared, NULL, &index->budget);
	open_file(&index->main, sections, shared ? &index->shared : NULL, &index->budget);
	if (index->budget.exhausted) {
		tdprof_dwarf_close(index);
		return NULL;
	}
	return index;
}

EXPORT uint64_t tdprof_dwarf_skeletons(const struct dwarf_index *index, struct dwarf_skeleton *rows, uint64_t capacity)
{
	uint64_t count = 0;

	for (uint32_t i = 0; i < index->main.units.count; i++) {
		const struct unit *unit = &index->main.units.items[i];

		if (!unit->dwo_name)
			continue;
		if (count < capacity)
			rows[count] = (struct dwarf_skeleton){ i, unit->dwo_id, unit->dwo_name, unit->directory };
		count++;
	}
	return count;
}

EXPORT int tdprof_dwarf_add_split(struct dwarf_index *index, uint64_t number, const struct dwarf_section *sections)
{
	/* Not those that the units of a package share. */
	uint64_t own_bytes = sections[SECTION_INFO].size + sections[SECTION_ABBREV].size;
	struct debug_file *file;
	struct unit *skeleton;

	if (number >= index->main.units.count)
		return -1;
	skeleton = &index->main.units.items[number];
	file = calloc(1, sizeof(*file));
	if (!file || !PUSH(index->splits, &index->budget, file)) {
		free(file);
		return -1;
	}
	index->common_budget.memory += (MEMORY_TO_DATA + MEMORY_TO_FILE) * own_bytes;
	index->common_budget.work += WORK_TO_DATA * own_bytes;
	open_file(file, sections, NULL, &index->budget);
	for (uint32_t i = 0; i < file->units.count; i++) {
		struct unit *unit = &file->units.items[i];

		if (unit->is_bad || unit->is_type_unit || unit->dwo_id != skeleton->dwo_id)
			continue;
		unit->skeleton = skeleton;
		if (unit->version < 5)
			unit->str_offsets_base = 0;
		skeleton->split = unit;
		return 0;
	}
	return -1;
}

static void *run_worker(void *argument)
{
	struct worker *worker = argument;
	struct dwarf_index *index = worker->index;

	for (;;) {
		uint32_t number = __atomic_fetch_add(&index->next_unit, 1, __ATOMIC_RELAXED);
		const struct unit *unit;

		if (number >= index->main.units.count || worker->budget.exhausted)
			break;
		unit = &index->main.units.items[number];
		if (unit->is_type_unit)
			continue;
		if (unit->is_bad || worker->budget.is_spent || !index_unit(worker, unit, number)) {
			worker->bad_units++;
			if (unit->offset < worker->first_bad_offset || worker->bad_units == 1)
				worker->first_bad_offset = unit->offset;
		}
	}
	scope_names(worker, worker->foreign.items, worker->foreign.count);
	return NULL;
}

/* --- merging --- */

struct placed_run { /* a run and whose segments it has */
	const struct run *run;
	const struct worker *worker;
};

static int compare_runs(const void *a, const void *b)
{
	const struct run *x = ((const struct placed_run *)a)->run, *y = ((const struct placed_run *)b)->run;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	if (x->is_gap != y->is_gap)
		return x->is_gap ? 1 : -1;
	if (x->unit != y->unit)
		return x->unit < y->unit ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Output of one pass: counts only if the columns are NULL. */
struct range_writer {
	const struct dwarf_columns *columns;
	uint64_t count, end; /* where the last range ends */
};

static void write_range(struct range_writer *writer, uint64_t start, uint32_t node, uint32_t file, uint32_t line)
{
	if (writer->columns) {
		writer->columns->range_start[writer->count] = start;
		writer->columns->range_node[writer->count] = node;
		writer->columns->range_file[writer->count] = file;
		writer->columns->range_line[writer->count] = line;
	}
	writer->count++;
}

static void write_run(struct range_writer *writer, const struct run *run, const struct worker *worker, uint64_t stop)
{
	uint64_t from = run->start > writer->end ? run->start : writer->end;

	if (from >= stop)
		return;
	if (writer->count && from > writer->end)
		write_range(writer, writer->end, NO_ID, NO_ID, 0);
	for (uint32_t i = run->first; i < run->last; i++) {
		const struct segment *segment = &worker->segments.items[i];
		uint64_t next = i + 1 < run->last ? segment[1].start : run->end;

		if (next <= from)
			continue;
		if (segment->start >= stop)
			break;
		write_range(writer, segment->start > from ? segment->start : from,
		            segment->node == NO_ID ? NO_ID : segment->node + worker->first_node,
		            segment->file == NO_ID ? NO_ID : worker->file_ids[segment->file], segment->line);
	}
	writer->end = stop;
}

/* All runs in order of address. Where they overlap the first holds; lines without a function give way to any. */
static uint64_t write_ranges(const struct dwarf_index *index, const struct dwarf_columns *columns)
{
	struct range_writer writer = { columns, 0, 0 };

	for (uint32_t i = 0; i < index->runs.count; i++) {
		const struct placed_run *placed = &index->runs.items[i];
		uint64_t stop = placed->run->end;

		if (placed->run->is_gap && i + 1 < index->runs.count && index->runs.items[i + 1].run->start < stop)
			stop = index->runs.items[i + 1].run->start;
		write_run(&writer, placed->run, placed->worker, stop);
	}
	if (writer.count)
		write_range(&writer, writer.end, NO_ID, NO_ID, 0);
	return writer.count;
}

/* Number nodes, functions and files across workers; sort the runs. */
static void merge(struct dwarf_index *index)
{
	struct worker *all = &index->workers[0];

	for (unsigned w = 0; w < index->worker_count; w++) {
		struct worker *worker = &index->workers[w];
		uint64_t bytes;

		worker->first_node = index->node_count;
		worker->first_function = index->function_count;
		index->node_count += worker->nodes.count;
		index->function_count += worker->functions.count;
		bytes = ((size_t)worker->files.count + 1) * sizeof(*worker->file_ids);
		worker->file_ids = take_memory(&index->budget, bytes) ? malloc(bytes) : NULL;
		if (!worker->file_ids) {
			index->budget.exhausted = true;
			return;
		}
		for (uint32_t i = 0; i < worker->files.count; i++) {
			const char *text = worker->file_text.items + worker->files.items[i];

			worker->file_ids[i] = w ? intern_file(all, text, strlen(text)) : i;
		}
		for (uint32_t i = 0; i < worker->runs.count; i++)
			if (!PUSH(index->runs, &index->budget, (struct placed_run){ &worker->runs.items[i], worker }))
				return;
		for (uint32_t i = 0; i < worker->functions.count; i++)
			index->function_bytes += strlen(worker->functions.items[i]) + 1;
		index->budget.exhausted |= worker->budget.exhausted;
	}
	if (index->runs.count)
		qsort(index->runs.items, index->runs.count, sizeof(*index->runs.items), compare_runs);
}

EXPORT int tdprof_dwarf_build(struct dwarf_index *index, const uint64_t *wanted, uint64_t wanted_count,
                              unsigned threads)
{
	pthread_t ids[MOST_THREADS];
	unsigned started = 0;

	if (index->workers)
		return -1;
	threads = threads < 1 ? 1 : threads > MOST_THREADS ? MOST_THREADS : threads;
	index->wanted = wanted;
	index->wanted_count = wanted_count;
	index->workers = calloc(threads, sizeof(*index->workers));
	if (!index->workers)
		return -1;
	for (; index->worker_count < threads; index->worker_count++)
		if (!open_worker(&index->workers[index->worker_count], index))
			return -1;
	while (started + 1 < threads && !pthread_create(&ids[started], NULL, run_worker, &index->workers[started + 1]))
		started++;
	run_worker(&index->workers[0]);
	while (started)
		pthread_join(ids[--started], NULL);
	merge(index);
	index->wanted = NULL;
	return index->budget.exhausted ? -1 : 0;
}

EXPORT void tdprof_dwarf_sizes(const struct dwarf_index *index, struct dwarf_sizes *sizes)
{
	*sizes = (struct dwarf_sizes){
		.ranges = write_ranges(index, NULL),
		.nodes = index->node_count,
		.functions = index->function_count,
		.files = index->workers[0].files.count,
		.function_bytes = index->function_bytes,
		.file_bytes = index->workers[0].file_text.count,
		.units = index->main.units.count,
		.first_bad_offset = UINT64_MAX,
	};
	for (unsigned w = 0; w < index->worker_count; w++) {
		const struct worker *worker = &index->workers[w];

		sizes->bad_units += worker->bad_units;
		sizes->is_spent |= worker->budget.is_spent;
		if (worker->bad_units && worker->first_bad_offset < sizes->first_bad_offset)
			sizes->first_bad_offset = worker->first_bad_offset;
	}
}

EXPORT void tdprof_dwarf_copy(const struct dwarf_index *index, const struct dwarf_columns *columns)
{
	uint64_t node = 0, function = 0, text = 0;

	write_ranges(index, columns);
	for (unsigned w = 0; w < index->worker_count; w++) {
		const struct worker *worker = &index->workers[w];

		for (uint32_t i = 0; i < worker->nodes.count; i++, node++) {
			const struct node *from = &worker->nodes.items[i];

			columns->node_function[node] =
				from->function == NO_ID ? NO_ID : from->function + worker->first_function;
			columns->node_file[node] = from->file == NO_ID ? NO_ID : worker->file_ids[from->file];
			columns->node_parent[node] = from->parent == NO_ID ? NO_ID : from->parent + worker->first_node;
			columns->node_call_file[node] =
				from->call_file == NO_ID ? NO_ID : worker->file_ids[from->call_file];
			columns->node_call_line[node] = from->call_line;
		}
		for (uint32_t i = 0; i < worker->functions.count; i++) {
			size_t length = strlen(worker->functions.items[i]) + 1;

			columns->function_name[function++] = text;
			memcpy(columns->function_text + text, worker->functions.items[i], length);
			text += length;
		}
	}
	for (uint32_t i = 0; i < index->workers[0].files.count; i++)
		columns->file_name[i] = index->workers[0].files.items[i];
	if (index->workers[0].file_text.count)
		memcpy(columns->file_text, index->workers[0].file_text.items, index->workers[0].file_text.count);
}
