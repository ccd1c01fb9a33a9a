/* SPDX-License-Identifier: Apache-2.0 */
/* Who had a cache line at the same time as others, by the order in which they touched it. */
#include "slot.h"

#include <string.h>

#define MOST_ACCESSES  256 /* of a line; what comes after them is not looked at */
#define LEAST_ACCESSES 2   /* of who is looked at */
#define LEAST_TURNS    4   /* memory may go from one to another and back once without being shared */

/* One line's accesses in order. Views are numbered in the order of their numbers outside; `group` is of those before
 * the one that is looked at. */
struct accesses {
	unsigned n, views;
	const uint64_t *time;
	const uint8_t *is_store;
	int64_t number[MOST_ACCESSES];
	uint16_t view[MOST_ACCESSES];                              /* of each access */
	uint16_t count[MOST_ACCESSES];                             /* of each view */
	uint16_t group[MOST_ACCESSES];                             /* of each view: its last view; NO_GROUP */
	int first[MOST_ACCESSES], last[MOST_ACCESSES];             /* accesses of each view */
	int group_first[MOST_ACCESSES], group_last[MOST_ACCESSES]; /* of each group */
	uint16_t groups, open[MOST_ACCESSES];                      /* the groups */
	uint16_t turns[MOST_ACCESSES], is_told[MOST_ACCESSES];     /* of each group beside the view */
	int previous[MOST_ACCESSES];                               /* access of each group; -1 */
};

#define NO_GROUP MOST_ACCESSES

static void number_views(struct accesses *a, const int64_t *view)
{
	a->views = 0;
	for (unsigned i = 0; i < a->n; i++) {
		unsigned at = a->views;

		while (at && a->number[at - 1] > view[i])
			at--;
		if (at && a->number[at - 1] == view[i])
			continue;
		memmove(a->number + at + 1, a->number + at, (a->views++ - at) * sizeof *a->number);
		a->number[at] = view[i];
	}
	memset(a->count, 0, sizeof a->count);
	for (unsigned i = 0; i < a->n; i++) {
		unsigned low = 0, high = a->views;

		while (high - low > 1) {
			unsigned middle = (low + high) / 2;

			if (a->number[middle] <= view[i])
				low = middle;
			else
				high = middle;
		}
		a->view[i] = low;
		if (!a->count[low]++)
			a->first[low] = i;
		a->last[low] = i;
	}
}

static int is_between(const struct accesses *a, unsigned i, int first, int last)
{
	return a->is_store[i] && a->time[i] > a->time[first] && a->time[i] < a->time[last];
}

/* Whether the last access but one of two was the other's; what came in one tick has no order. */
static unsigned is_turn(const struct accesses *a, unsigned i, int others, int own)
{
	return others > own && a->time[i] != a->time[others];
}

/* How often a view and each group take turns, and whether one of them stores between two accesses of the other. */
static void hold_against_groups(struct accesses *a, unsigned view)
{
	int previous = -1;

	for (unsigned i = 0; i < a->groups; i++) {
		unsigned group = a->open[i];

		a->turns[group] = a->is_told[group] = 0;
		a->previous[group] = -1;
	}
	for (unsigned i = 0; i < a->n; i++) {
		unsigned group = a->group[a->view[i]];

		if (a->view[i] == view) {
			for (unsigned each = 0; each < a->groups; each++) {
				group = a->open[each];
				a->turns[group] += is_turn(a, i, a->previous[group], previous);
				a->is_told[group] |= is_between(a, i, a->group_first[group], a->group_last[group]);
			}
			previous = i;
		} else if (group != NO_GROUP) {
			a->turns[group] += is_turn(a, i, previous, a->previous[group]);
			a->is_told[group] |= is_between(a, i, a->first[view], a->last[view]);
			a->previous[group] = i;
		}
	}
}

/* Make a group of a view and of the groups that it takes turns with. */
static void join_groups(struct accesses *a, unsigned view)
{
	unsigned kept = 0;

	a->group_first[view] = a->first[view];
	a->group_last[view] = a->last[view];
	for (unsigned i = 0; i < a->groups; i++) {
		unsigned group = a->open[i];

		if (a->turns[group] < LEAST_TURNS || !a->is_told[group]) {
			a->open[kept++] = group;
			continue;
		}
		for (unsigned other = 0; other < view; other++)
			if (a->group[other] == group)
				a->group[other] = view;
		if (a->group_first[group] < a->group_first[view])
			a->group_first[view] = a->group_first[group];
		if (a->group_last[group] > a->group_last[view])
			a->group_last[view] = a->group_last[group];
	}
	a->group[view] = view;
	a->open[kept++] = view;
	a->groups = kept;
}

/* What a group is called outside, and its turns, if it is of several and of more turns than any before. */
static void tell_group(const struct accesses *a, unsigned group, int64_t *memory, uint32_t *turns, uint32_t *looked_at)
{
	uint32_t changes = 0, count = 0;
	unsigned least = group, last = 0;

	for (unsigned view = 0; view < group && least == group; view++)
		if (a->group[view] == group)
			least = view;
	if (least == group)
		return;
	for (unsigned i = 0; i < a->n; i++) {
		if (a->group[a->view[i]] != group)
			continue;
		changes += count && a->view[i] != a->view[last] && a->time[i] != a->time[last];
		count++;
		last = i;
	}
	for (unsigned view = least; view <= group; view++)
		if (a->group[view] == group)
			memory[a->number[view]] = a->number[least];
	if (changes > *turns || (changes == *turns && count > *looked_at)) {
		*turns = changes;
		*looked_at = count;
	}
}

/*
 * Accesses by line and time, of views: the line as somebody knows it. Two views are of one memory that both have at
 * once if they take turns, and one stores between two accesses of the other. `memory` of each view becomes the least
 * view of its memory, where several share one; of each such line the turns, and accesses among which they are, of the
 * memory with most of them. `memory`, `turns` and `looked_at` are the caller's: each view itself, and zeros.
 */
SPE_EXPORT void spe_join_views(const uint32_t *line, const int64_t *view, const uint64_t *time, const uint8_t *is_store,
                               uint64_t n, int64_t *memory, uint32_t *turns, uint32_t *looked_at)
{
	struct accesses a;

	for (uint64_t start = 0, end; start < n; start = end) {
		unsigned stores = 0;

		for (end = start; end < n && line[end] == line[start]; end++)
			stores |= end - start < MOST_ACCESSES && is_store[end];
		if (!stores)
			continue;
		a.n = end - start < MOST_ACCESSES ? end - start : MOST_ACCESSES;
		a.time = time + start;
		a.is_store = is_store + start;
		number_views(&a, view + start);
		a.groups = 0;
		for (unsigned i = 0; i < a.views; i++)
			a.group[i] = NO_GROUP;
		for (unsigned i = 0; i < a.views; i++) {
			if (a.count[i] < LEAST_ACCESSES)
				continue;
			hold_against_groups(&a, i);
			join_groups(&a, i);
		}
		for (unsigned i = 0; i < a.groups; i++)
			tell_group(&a, a.open[i], memory, turns + line[start], looked_at + line[start]);
	}
}
