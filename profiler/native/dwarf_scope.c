// SPDX-License-Identifier: Apache-2.0
/* Names of C++ functions with the scopes that they stand in. GCC gives no linkage name to functions of internal linkage
 * that are inlined everywhere: lambdas, and what stands in anonymous namespaces or is static. Their own name alone is
 * that of many others (`operator()`). A DIE does not say what it stands in, so the names that a unit's functions
 * need are collected, and one pass over the unit lists the scopes around them. */
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
	bool in_unnamed; /* a class without a name, or one inside */
};

/* Those of a unit's scopes that are around some functions, and the classes without names beside these, in the order of
 * their starts. */
struct scope_list {
	VECTOR(struct scope) list;
	const struct unscoped *next, *end; /* functions that the pass has not come to yet */
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
static void leave_scope(struct scope_list *scopes, uint32_t number, uint64_t end)
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

/* Whether what is asked for is not inside a DIE, so that its children may be skipped. Classes without a name are looked
 * into, since they are numbered; of functions that are declared only the name matters, and only where it tells a
 * lambda.
 */
static bool is_aside(const struct scope_list *scopes, const struct abbrev *abbrev, const struct unit *unit,
                     const struct scope_die *die, const struct scope *around)
{
	bool is_function = abbrev->tag == DW_TAG_subprogram;
	uint64_t sibling;

	if (!abbrev->has_children)
		return false;
	if (die->has_origin || (is_function && abbrev->is_declaration) || !may_hold_scopes(abbrev->tag))
		return true;
	if (!is_scope(abbrev->tag) || value_reference(unit, &die->sibling, &sibling) != unit)
		return false;
	if (!is_function && abbrev->tag != DW_TAG_namespace && (!die->name.form || (around && around->in_unnamed)))
		return false;
	return scopes->next == scopes->end || scopes->next->offset >= sibling;
}

/* What a damaged unit says behind its damage is in no scope. */
static void list_scopes(struct scope_list *scopes, const struct unit *unit, struct budget *budget)
{
	const uint8_t *info = unit->info;
	uint32_t within[DEEPEST_SCOPE]; /* the scope around each level's DIEs */
	struct cursor c = all_dies(unit);
	uint64_t steps = 0;
	int depth = 0;

	within[0] = NO_ID;
	while (cursor_has(&c, 1) && !budget->exhausted && spend_work(budget, 1 + steps)) {
		uint64_t offset = (uint64_t)(c.at - info), code = read_uleb(&c);
		const struct abbrev *abbrev = code ? find_abbrev(unit->table, code) : NULL;
		uint32_t self = within[depth];
		struct scope_die die = { 0 };

		steps = 0;
		if (!code && depth) {
			depth--;
			if (self != within[depth])
				leave_scope(scopes, self, (uint64_t)(c.at - info));
			continue;
		}
		while (scopes->next < scopes->end && scopes->next->offset <= offset)
			scopes->next++;
		if (!code && scopes->next < scopes->end)
			continue;
		if (!abbrev || (scopes->next == scopes->end && self == NO_ID))
			break;
		steps = abbrev->size >= 0 ? 1 : abbrev->count;
		if (abbrev->has_children || abbrev->tag == DW_TAG_subprogram)
			die = read_scope_die(&c, abbrev, unit);
		else
			skip_values(&c, abbrev, unit);
		if (abbrev->tag == DW_TAG_subprogram && self != NO_ID) {
			scopes->list.items[self].has_functions = true;
			add_function(&scopes->list.items[self], unit, &die.name, &steps);
		}
		if (is_aside(scopes, abbrev, unit, &die, self == NO_ID ? NULL : &scopes->list.items[self]) &&
		    skip_children(&c, unit, &die.sibling))
			continue;
		if (abbrev->has_children && is_scope(abbrev->tag)) {
			struct scope scope = { offset, 0, die.name, self, .tag = abbrev->tag };

			scope.in_unnamed = is_unnamed_class(&scope) ||
			                   (self != NO_ID && scope.tag != DW_TAG_subprogram &&
			                    scope.tag != DW_TAG_namespace && scopes->list.items[self].in_unnamed);
			if (!PUSH(scopes->list, budget, scope))
				break;
			self = scopes->list.count - 1;
		}
		if (c.bad || (abbrev->has_children && ++depth == DEEPEST_SCOPE))
			break;
		within[depth] = abbrev->has_children ? self : within[depth];
	}
}

static uint32_t scope_around(const struct scope_list *scopes, uint64_t offset)
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
static size_t put_scopes(const struct scope_list *scopes, const struct unit *unit, uint32_t number, char *text,
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

/* Put the scopes around a function before its name. */
static void scope_name(struct worker *worker, const struct scope_list *scopes, const struct unscoped *function)
{
	uint32_t number = scope_around(scopes, function->offset);
	const char *plain = worker->functions.items[function->id];
	size_t length = strlen(plain) + 1, at;
	uint64_t steps = DEEPEST_SCOPE / STRING_BYTES_A_STEP;
	const char *name;
	char text[LONGEST_SCOPED];

	if (number == NO_ID || length >= sizeof(text))
		return;
	at = sizeof(text) - length;
	memcpy(text + at, plain, length);
	at = put_scopes(scopes, function->unit, number, text, at, &steps);
	length = sizeof(text) - at;
	if (!spend_work(&worker->budget, steps) || !at)
		return;
	name = keep_name(worker, text + at, length);
	if (name)
		worker->functions.items[function->id] = name;
}

static int compare_unscoped(const void *a, const void *b)
{
	const struct unscoped *x = a, *y = b;

	if (x->unit != y->unit)
		return (uintptr_t)x->unit < (uintptr_t)y->unit ? -1 : 1;
	return x->offset < y->offset ? -1 : x->offset > y->offset;
}

void scope_names(struct worker *worker, struct unscoped *functions, uint32_t count)
{
	struct scope_list scopes = { 0 };
	uint32_t next;

	if (count)
		qsort(functions, count, sizeof(*functions), compare_unscoped);
	for (uint32_t first = 0; first < count; first = next) {
		for (next = first; next < count && functions[next].unit == functions[first].unit; next++)
			;
		scopes.list.count = 0;
		scopes.next = functions + first;
		scopes.end = functions + next;
		list_scopes(&scopes, functions[first].unit, &worker->budget);
		for (uint32_t i = first; i < next; i++)
			scope_name(worker, &scopes, &functions[i]);
	}
	RELEASE(scopes.list);
}
