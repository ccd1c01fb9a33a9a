// SPDX-License-Identifier: Apache-2.0
/* Names of C++ functions with the scopes that they stand in. GCC gives no linkage name to functions of internal linkage
 * that are inlined everywhere: lambdas, and what stands in anonymous namespaces or is static. Their own name alone is
 * that of many others (`operator()`). A DIE does not say what it stands in, so a unit's scopes are listed once. */
#include "dwarf_scratch.h"

#include <stdio.h>

#define LONGEST_SCOPED 8192
#define MOST_SCOPES    256 /* one in the other */
#define DEEPEST_SCOPE  1024
#define CALL           "operator()" /* what a class without a name has if it is a lambda's */

/* What has functions inside: a namespace, a class, or a function with a class of its own. */
struct scope {
	uint64_t start, end; /* offsets of its DIE and of what stands behind its last child */
	struct value name;   /* looked up when it is needed; of functions in another way */
	uint32_t parent;     /* in the unit's list, or NO_ID */
	uint32_t number;     /* of a class without a name, from 1, among such ones of its parent */
	uint32_t unnamed[2]; /* how many it has itself: others, and those of lambdas */
	uint16_t tag;
	bool has_functions;
	bool is_lambda;
};

/* One unit's, in the order of their starts. */
struct unit_scopes {
	VECTOR(struct scope) list;
};

static bool is_scope(uint16_t tag)
{
	return tag == DW_TAG_namespace || tag == DW_TAG_class_type || tag == DW_TAG_structure_type ||
	       tag == DW_TAG_union_type || tag == DW_TAG_subprogram;
}

static bool is_unnamed_class(const struct scope *scope)
{
	return !scope->name.form && scope->tag != DW_TAG_namespace && scope->tag != DW_TAG_subprogram;
}

/* Whether other scopes stand in one, or in what stands in a function. */
static bool may_hold_scopes(uint16_t tag)
{
	return is_scope(tag) || tag == DW_TAG_lexical_block || tag == DW_TAG_try_block || tag == DW_TAG_catch_block;
}

/* What list_scopes() asks of a DIE. */
struct scope_die {
	struct value name, sibling;
	bool has_origin; /* the copy of a function that is inlined elsewhere: what is in it stands in the function
	                    itself */
};

static struct scope_die read_scope_die(struct cursor *c, const struct abbrev *abbrev, const struct unit *unit)
{
	struct scope_die die = { 0 };

	for (uint32_t i = 0; i < abbrev->count; i++) {
		const struct attribute *attribute = &unit->table->attributes.items[abbrev->first + i];

		switch (attribute->name) {
		case DW_AT_name: die.name = read_value(c, attribute, unit); break;
		case DW_AT_sibling: die.sibling = read_value(c, attribute, unit); break;
		case DW_AT_abstract_origin: die.has_origin = true; /* fall through */
		default: skip_value(c, attribute, unit);
		}
	}
	return die;
}

/* The innermost scope ends at `end`. One without functions is forgotten; it is the last, as all in it were, too. */
static void leave_scope(struct unit_scopes *scopes, uint32_t number, uint64_t end)
{
	struct scope *scope = &scopes->list.items[number];
	struct scope *parent = scope->parent == NO_ID ? NULL : &scopes->list.items[scope->parent];

	if (!scope->has_functions) {
		scopes->list.count = number;
		return;
	}
	scope->end = end;
	if (!parent)
		return;
	parent->has_functions = true;
	if (is_unnamed_class(scope))
		scope->number = ++parent->unnamed[scope->is_lambda];
}

/* A function that stands in a scope: if the scope is a lambda's. */
static void add_function(struct scope *scope, const struct unit *unit, const struct value *name, uint64_t *steps)
{
	const char *text;

	if (!is_unnamed_class(scope) || scope->is_lambda)
		return;
	text = value_string(unit, name, steps);
	scope->is_lambda = text && !strncmp(text, CALL, strlen(CALL));
}

/* Whether a DIE's name matters, or its children may be skipped. Of functions that are declared, which are most of all,
 * only the name, and only where it tells a lambda. */
static bool is_read(const struct abbrev *abbrev, const struct scope *around)
{
	if (abbrev->tag == DW_TAG_subprogram && !abbrev->is_code)
		return around && is_unnamed_class(around) && !around->is_lambda;
	return is_scope(abbrev->tag) || (abbrev->has_children && !may_hold_scopes(abbrev->tag));
}

/* What a damaged unit says behind its damage is in no scope. */
static void list_scopes(struct unit_scopes *scopes, const struct unit *unit, struct budget *budget)
{
	const uint8_t *info = unit->file->sections[SECTION_INFO].data;
	uint32_t within[DEEPEST_SCOPE]; /* the scope around each level's DIEs */
	struct cursor c = unit->dies;
	uint64_t steps = 0;
	int depth = 0;

	within[0] = NO_ID;
	while (cursor_left(&c) && !budget->exhausted && spend_work(budget, 1 + steps)) {
		uint64_t offset = (uint64_t)(c.at - info), code = read_uleb(&c);
		const struct abbrev *abbrev = code ? find_abbrev(unit->table, code) : NULL;
		uint32_t self = within[depth];
		struct value name = { 0 };

		steps = 0;
		if (!code && depth) {
			depth--;
			if (self != within[depth])
				leave_scope(scopes, self, (uint64_t)(c.at - info));
			continue;
		}
		if (!code)
			continue;
		if (!abbrev)
			break;
		steps = abbrev->size >= 0 ? 1 : abbrev->count;
		if (abbrev->tag == DW_TAG_subprogram && self != NO_ID)
			scopes->list.items[self].has_functions = true;
		if (is_read(abbrev, self == NO_ID ? NULL : &scopes->list.items[self])) {
			struct scope_die die = read_scope_die(&c, abbrev, unit);

			if (abbrev->tag == DW_TAG_subprogram && self != NO_ID)
				add_function(&scopes->list.items[self], unit, &die.name, &steps);
			if (abbrev->has_children && (die.has_origin || !is_scope(abbrev->tag)) &&
			    skip_children(&c, unit, &die.sibling))
				continue;
			name = die.name;
		} else if (!abbrev->is_declaration) {
			skip_values(&c, abbrev, unit);
		} else if (skip_die(&c, abbrev, unit)) {
			continue;
		}
		if (abbrev->has_children && is_scope(abbrev->tag)) {
			struct scope scope = { offset, 0, name, self, .tag = abbrev->tag };

			if (!PUSH(scopes->list, budget, scope))
				break;
			self = scopes->list.count - 1;
		}
		if (c.bad || (abbrev->has_children && ++depth == DEEPEST_SCOPE))
			break;
		within[depth] = abbrev->has_children ? self : within[depth];
	}
}

void close_scopes(struct dwarf_index *index)
{
	for (uint32_t i = 0; i < index->scopes.count; i++) {
		RELEASE(index->scopes.items[i]->list);
		free(index->scopes.items[i]);
	}
	RELEASE(index->scopes);
	free(index->scopes_by_unit.slots);
}

static const struct unit_scopes *known_scopes(const struct dwarf_index *index, const struct unit *unit)
{
	uint32_t known = map_find(&index->scopes_by_unit, (uint64_t)(uintptr_t)unit);

	return known == MAP_NOTHING ? NULL : index->scopes.items[known];
}

/* A unit's scopes, of whichever thread has listed them first; NULL if there is no memory. */
static const struct unit_scopes *scopes_of(struct worker *worker, const struct unit *unit)
{
	struct dwarf_index *index = worker->index;
	const struct unit_scopes *found;
	struct unit_scopes *scopes;

	pthread_mutex_lock(&index->scopes_lock);
	found = known_scopes(index, unit);
	pthread_mutex_unlock(&index->scopes_lock);
	if (found || !take_memory(&worker->budget, sizeof(*scopes)))
		return found;
	scopes = calloc(1, sizeof(*scopes));
	if (!scopes) {
		worker->budget.exhausted = true;
		return NULL;
	}
	list_scopes(scopes, unit, &worker->budget);
	pthread_mutex_lock(&index->scopes_lock);
	found = known_scopes(index, unit);
	if (!found && PUSH(index->scopes, &worker->budget, scopes)) {
		map_add(&index->scopes_by_unit, (uint64_t)(uintptr_t)unit, index->scopes.count - 1, &worker->budget);
		found = scopes;
	}
	pthread_mutex_unlock(&index->scopes_lock);
	if (found != scopes) {
		RELEASE(scopes->list);
		free(scopes);
	}
	return found;
}

static uint32_t scope_around(const struct unit_scopes *scopes, uint64_t offset)
{
	uint32_t low = 0, high = scopes->list.count, found;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (scopes->list.items[middle].start < offset)
			low = middle + 1;
		else
			high = middle;
	}
	found = low ? low - 1 : NO_ID;
	while (found != NO_ID && scopes->list.items[found].end <= offset)
		found = scopes->list.items[found].parent;
	return found;
}

/* The text that stands before what is inside a scope. A function's linkage name says all that is around it. */
static int scope_text(const struct unit *unit, const struct scope *scope, char *text, bool *is_whole, uint64_t *steps)
{
	struct function_name function;
	const char *name;

	if (scope->tag == DW_TAG_subprogram) {
		function = function_name(unit, scope->start, steps);
		*is_whole = function.is_linkage;
		return snprintf(text, LONGEST_SCOPED,
		                function.is_linkage ? "%s::" : "%s()::", function.text ? function.text : "{unknown}");
	}
	name = value_string(unit, &scope->name, steps);
	if (name)
		return snprintf(text, LONGEST_SCOPED, "%s::", name);
	if (scope->tag == DW_TAG_namespace)
		return snprintf(text, LONGEST_SCOPED, "(anonymous namespace)::");
	return snprintf(text, LONGEST_SCOPED,
	                scope->is_lambda ? "{lambda#%u}::" : "{unnamed type#%u}::", scope->number);
}

/* Put the scopes from `number` outwards before the text that ends a buffer; where it then begins, 0: it does not fit.
 */
static size_t put_scopes(const struct unit_scopes *scopes, const struct unit *unit, uint32_t number, char *text,
                         size_t at, uint64_t *steps)
{
	char part[LONGEST_SCOPED];
	bool is_whole = false;

	for (int i = 0; number != NO_ID && !is_whole && i < MOST_SCOPES; i++) {
		const struct scope *scope = &scopes->list.items[number];
		int bytes = scope_text(unit, scope, part, &is_whole, steps);

		*steps += 1 + (bytes < 0 ? 0 : (uint64_t)bytes / STRING_BYTES_A_STEP);
		if (bytes < 0 || (size_t)bytes >= at)
			return 0;
		at -= (size_t)bytes;
		memcpy(text + at, part, (size_t)bytes);
		number = scope->parent;
	}
	return at;
}

const char *scoped_name(struct worker *worker, const struct function_name *function)
{
	const struct unit_scopes *scopes = scopes_of(worker, function->unit);
	uint32_t number = scopes ? scope_around(scopes, function->offset) : NO_ID;
	size_t length = strlen(function->text) + 1, at;
	uint64_t steps = DEEPEST_SCOPE / STRING_BYTES_A_STEP;
	char text[LONGEST_SCOPED], *name;

	if (number == NO_ID || length >= sizeof(text))
		return function->text;
	at = sizeof(text) - length;
	memcpy(text + at, function->text, length);
	at = put_scopes(scopes, function->unit, number, text, at, &steps);
	length = sizeof(text) - at;
	if (!spend_work(&worker->budget, steps) || !at)
		return function->text;
	name = take_memory(&worker->budget, length) ? malloc(length) : NULL;
	if (!name || !PUSH(worker->scoped_names, &worker->budget, name)) {
		worker->budget.exhausted = true;
		free(name);
		return function->text;
	}
	return memcpy(name, text + at, length);
}
