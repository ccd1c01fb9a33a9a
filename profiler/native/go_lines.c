// SPDX-License-Identifier: Apache-2.0
/* Go's .gopclntab, of Go 1.16 and later: for each function file, line and place in its tree of inlined calls, by
 * instruction. Format: _func, pcvalue() and inlinedCall in runtime/{runtime2,symtab,symtabinl}.go. */
#include "go_lines.h"

#include "dwarf_cursor.h"

#define EXPORT     __attribute__((visibility("default")))
#define MAGIC_1_16 0xfffffffaU
#define MAGIC_1_18 0xfffffff0U

enum {
	PCDATA_INL_TREE_INDEX = 2,
	FUNCDATA_INL_TREE = 3, /* from Go 1.18 on */
	MOST_DEEP = 256,       /* calls inlined into each other */
};

/* Where things stand in _func, and in an entry of the tree of inlined calls. */
struct go_layout {
	uint8_t function_bytes; /* of functab's entry */
	uint8_t name, file, line, pcdata_count, unit, funcdata_count, size;
	uint8_t tree_bytes, tree_name, tree_parent;
};

static const struct go_layout LAYOUT_1_16 = { 16, 8, 24, 28, 32, 36, 43, 44, 0, 0, 0 };
static const struct go_layout LAYOUT_1_18 = { 8, 4, 20, 24, 28, 32, 39, 40, 20, 12, 16 };
static const struct go_layout LAYOUT_1_20 = { 8, 4, 20, 24, 28, 32, 43, 44, 16, 4, 8 };

/* A value that changes from instruction to instruction. */
struct stream {
	struct cursor c;
	uint64_t next; /* up to where the value holds */
	int32_t value; /* -1: none */
};

struct function {
	const struct go_functions *table;
	const struct go_layout *layout;
	struct go_columns *out;
	uint64_t start, end;
	uint64_t first_node; /* in out */
	uint64_t tree;       /* in the section of inline trees; above its size: none */
	uint32_t file_at, line_at, tree_at, unit;
};

struct call {
	int32_t tree;
	uint32_t name, file, line;
};

static struct cursor part(const struct go_functions *table, uint64_t base, uint64_t offset)
{
	if (base > table->size)
		return (struct cursor){ .bad = true };
	return cursor_over(table->data + base, table->size - base, offset);
}

static uint64_t number_at(const struct go_functions *table, uint64_t base, uint64_t offset, unsigned bytes)
{
	struct cursor c = part(table, base, offset);

	return c.bad ? 0 : read_fixed(&c, bytes);
}

/* Goes on to where the value changes; false where there is no more. */
static bool advance(struct stream *s, const struct function *f)
{
	uint64_t change = read_uleb(&s->c);
	uint64_t distance = s->c.bad || (!change && s->next != f->start) ? 0 : read_uleb(&s->c);

	if (f->out->steps)
		f->out->steps--;
	uint64_t next = s->next + (distance & UINT32_MAX) * f->table->quantum;

	if (s->c.bad || next <= s->next || !f->out->steps) {
		s->value = -1;
		s->next = UINT64_MAX;
		return false;
	}
	s->value = (int32_t)((uint32_t)s->value + (uint32_t)(change & 1 ? ~(change >> 1) : change >> 1));
	s->next = next;
	return true;
}

static struct stream open_stream(const struct function *f, uint32_t at)
{
	struct stream s = { .next = f->start, .value = -1 };

	s.c = at ? part(f->table, f->table->values, at) : (struct cursor){ .bad = true };
	advance(&s, f);
	return s;
}

/* The value at an address. */
static int32_t value_at(const struct function *f, uint32_t at, uint64_t address)
{
	struct stream s = open_stream(f, at);

	while (s.next <= address && advance(&s, f))
		;
	return s.value;
}

/* Where the name of a unit's file stands. */
static uint32_t file_of(const struct function *f, int32_t number)
{
	uint64_t at = (uint64_t)f->unit + (uint32_t)number;
	struct cursor c = part(f->table, f->table->units, at * 4);
	uint32_t name = c.bad ? GO_NO_ID : read_u32(&c);

	if (number < 0 || c.bad || f->table->files > f->table->size || name >= f->table->size - f->table->files)
		return GO_NO_ID;
	return name;
}

static uint32_t line_of(int32_t line)
{
	return line < 0 ? 0 : (uint32_t)line;
}

static bool read_call(const struct function *f, int32_t number, struct call *call, uint64_t *parent)
{
	uint64_t size = f->table->inlined_size, at = (uint64_t)(uint32_t)number * f->layout->tree_bytes;

	if (f->tree > size || number < 0)
		return false;
	struct cursor c = cursor_over(f->table->inlined + f->tree, size - f->tree, at);

	if (c.bad || cursor_left(&c) < f->layout->tree_bytes)
		return false;
	struct cursor name = c, place = c;

	cursor_skip(&name, f->layout->tree_name);
	cursor_skip(&place, f->layout->tree_parent);
	*parent = f->start + read_u32(&place);
	if (*parent >= f->end)
		return false;
	*call = (struct call){ number, read_u32(&name), file_of(f, value_at(f, f->file_at, *parent)),
		               line_of(value_at(f, f->line_at, *parent)) };
	return true;
}

/* The node of a place in the tree, if it is there already. */
static uint32_t known_node(const struct function *f, int32_t number)
{
	struct go_columns *out = f->out;

	for (uint64_t i = out->nodes; i-- > f->first_node && out->steps; out->steps--)
		if (out->node_tree[i] == number)
			return (uint32_t)i;
	return GO_NO_ID;
}

static bool add_node(struct go_columns *out, uint32_t parent, const struct call *call)
{
	uint64_t i = out->nodes;

	if (i >= out->node_room || i >= GO_NO_ID)
		return false;
	out->node_function[i] = call->name;
	out->node_parent[i] = parent;
	out->node_call_file[i] = call->file;
	out->node_call_line[i] = call->line;
	out->node_tree[i] = call->tree;
	out->nodes++;
	return true;
}

/* The node of a place in the tree, made with those around it. Returns -1 where there is no room, 1 where the tree
 * cannot be read: then nobody knows whose the line is. */
static int node_of(const struct function *f, int32_t number, uint32_t *node)
{
	struct call calls[MOST_DEEP];
	unsigned deep = 0;

	while ((*node = known_node(f, number)) == GO_NO_ID) {
		uint64_t parent;

		if (deep == MOST_DEEP || !f->out->steps || !read_call(f, number, &calls[deep], &parent))
			return 1;
		for (unsigned i = 0; i < deep; i++)
			if (calls[i].tree == number)
				return 1;
		deep++;
		number = value_at(f, f->tree_at, parent);
		if (number < 0)
			number = -1;
	}
	while (deep--) {
		if (!add_node(f->out, *node, &calls[deep]))
			return -1;
		*node = (uint32_t)f->out->nodes - 1;
	}
	return 0;
}

static bool add_range(struct go_columns *out, uint64_t start, uint32_t node, uint32_t file, uint32_t line)
{
	uint64_t i = out->ranges;

	if (i && out->range_start[i - 1] == start)
		i = --out->ranges; /* the end of the function before */
	else if (i && out->range_node[i - 1] == node && out->range_file[i - 1] == file &&
	         out->range_line[i - 1] == line)
		return true;
	if (i >= out->range_room)
		return false;
	out->range_start[i] = start;
	out->range_node[i] = node;
	out->range_file[i] = file;
	out->range_line[i] = line;
	out->ranges++;
	return true;
}

static bool add_ranges(const struct function *f)
{
	struct stream file = open_stream(f, f->file_at), line = open_stream(f, f->line_at);
	struct stream tree = open_stream(f, f->tree_at);

	uint64_t at = f->start;

	while (at < f->end && f->out->steps) {
		uint32_t node = (uint32_t)f->first_node;
		int problem = tree.value < 0 ? 0 : node_of(f, tree.value, &node);
		uint64_t next = file.next < line.next ? file.next : line.next;

		if (problem < 0)
			return false;
		if (!add_range(f->out, at, problem ? (uint32_t)f->first_node : node,
		               problem ? GO_NO_ID : file_of(f, file.value), problem ? 0 : line_of(line.value)))
			return false;
		at = next < tree.next ? next : tree.next;
		struct stream *streams[] = { &file, &line, &tree };

		for (unsigned i = 0; i < 3; i++)
			if (streams[i]->next == at)
				advance(streams[i], f);
	}
	/* Where the steps did not do, what follows is not known. */
	return add_range(f->out, at < f->end ? at : f->end, GO_NO_ID, GO_NO_ID, 0);
}

/* Of the function that is described at an offset; true also where the description cannot be read. */
static bool add_function(struct function *f, uint64_t offset)
{
	const struct go_functions *t = f->table;
	const struct go_layout *l = f->layout;
	struct cursor whole = part(t, t->lines, offset);

	if (whole.bad || cursor_left(&whole) < l->size)
		return true;
	uint32_t pcdata = (uint32_t)number_at(t, t->lines, offset + l->pcdata_count, 4);
	uint8_t funcdata = (uint8_t)number_at(t, t->lines, offset + l->funcdata_count, 1);
	struct call itself = { -1, (uint32_t)number_at(t, t->lines, offset + l->name, 4), GO_NO_ID, 0 };

	f->file_at = (uint32_t)number_at(t, t->lines, offset + l->file, 4);
	f->line_at = (uint32_t)number_at(t, t->lines, offset + l->line, 4);
	f->unit = (uint32_t)number_at(t, t->lines, offset + l->unit, 4);
	f->tree_at = 0;
	f->tree = UINT64_MAX;
	if (pcdata > PCDATA_INL_TREE_INDEX)
		f->tree_at = (uint32_t)number_at(t, t->lines, offset + l->size + 4 * PCDATA_INL_TREE_INDEX, 4);
	if (funcdata > FUNCDATA_INL_TREE && l->tree_bytes && t->inlined_base <= t->inlined_size) {
		uint64_t at = offset + l->size + 4 * ((uint64_t)pcdata + FUNCDATA_INL_TREE);
		struct cursor tree = part(t, t->lines, at);
		uint32_t place = tree.bad ? GO_NO_ID : read_u32(&tree);

		if (!tree.bad && place != GO_NO_ID)
			f->tree = t->inlined_base + place;
	}
	f->first_node = f->out->nodes;
	return add_node(f->out, GO_NO_ID, &itself) && add_ranges(f);
}

static uint64_t function_start(const struct function *f, uint64_t number)
{
	uint8_t bytes = f->layout->function_bytes;

	return f->table->text + number_at(f->table, f->table->lines, number * bytes, bytes / 2);
}

/* The last function that begins at or before an address; those behind `first` are looked through. */
static uint64_t function_at(const struct function *f, uint64_t first, uint64_t count, uint64_t address)
{
	while (count > 1) {
		uint64_t half = count / 2;

		if (function_start(f, first + half) <= address)
			first += half, count -= half;
		else
			count = half;
	}
	return first;
}

EXPORT int tdprof_go_lines(const struct go_functions *table, const uint64_t *wanted, uint64_t wanted_count,
                           struct go_columns *out)
{
	struct function f = { .table = table, .out = out };

	f.layout = table->magic == MAGIC_1_16 ? &LAYOUT_1_16 : table->magic == MAGIC_1_18 ? &LAYOUT_1_18 : &LAYOUT_1_20;
	/* Behind the last function stands where it ends. */
	uint64_t room = table->lines < table->size ? (table->size - table->lines) / f.layout->function_bytes : 0;
	uint64_t functions = table->functions < room ? table->functions : room ? room - 1 : 0;

	out->ranges = out->nodes = 0;
	for (uint64_t i = 0; i < wanted_count && functions && out->steps; i++) {
		uint64_t number, bytes = f.layout->function_bytes;

		if (f.end > wanted[i])
			continue;
		number = function_at(&f, 0, functions, wanted[i]);
		uint64_t start = function_start(&f, number), end = function_start(&f, number + 1);

		if (start > wanted[i] || end <= wanted[i] || start < f.end)
			continue;
		f.start = start;
		f.end = end;
		if (!add_function(&f, number_at(table, table->lines, number * bytes + bytes / 2, (unsigned)bytes / 2)))
			return -1;
	}
	return 0;
}
