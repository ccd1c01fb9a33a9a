/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up samples that differ in nothing a capture keeps: event, process, thread, call chains, and interval. */
#include "perf_records.h"

#include <stdbool.h>

#include "hash.h"
#include "perf_intervals.h"

/* A sample on its way into the table; `event` is NO_EVENT if it is not wanted there. */
struct waiting {
	uint64_t hash;
	uint64_t end_ns; /* of its interval */
	uint32_t event;
};

static inline struct waiting prepare(const struct perf_groups *g, const struct perf_samples *s, uint64_t i,
                                     struct span *span)
{
	struct waiting w = { .event = event_number(&g->intervals, s->event[i]) };
	if (w.event == NO_EVENT)
		return w;
	w.end_ns = interval_end(&g->intervals, s->pid[i], s->time_ns[i], span);
	uint64_t hash = hash_pair(g->seed, w.end_ns, (uint64_t)w.event << 32 | s->pid[i], g->seed);
	hash = hash_pair(hash, (uint64_t)s->tid[i] << 32 | (uint32_t)s->user_chain[i],
	                 s->cgroup[i] << 32 ^ (uint32_t)s->kernel_chain[i], g->seed);
	w.hash = hash_end(hash);
	__builtin_prefetch(&g->slots[w.hash & g->slot_mask]);
	return w;
}

/* The row that the sample will most likely join. */
static inline void prefetch_row(const struct perf_groups *g, const struct waiting *w)
{
	if (w->event == NO_EVENT)
		return;
	const uint64_t entry = g->slots[hash_slot(g->slots, g->slot_mask, w->hash, w->hash)];
	if (entry != 0)
		__builtin_prefetch(&g->rows[(uint32_t)entry - 1]);
}

/* False: the table is full. */
static inline bool add(struct perf_groups *g, const struct waiting *w, const struct perf_samples *s, uint64_t i)
{
	if (w->event == NO_EVENT)
		return true;
	uint64_t slot = hash_slot(g->slots, g->slot_mask, w->hash, w->hash);
	for (uint64_t entry; (entry = g->slots[slot]) != 0;
	     slot = hash_slot(g->slots, g->slot_mask, slot + 1, w->hash)) {
		struct perf_group *row = &g->rows[(uint32_t)entry - 1];
		if (row->time_ns == w->end_ns && row->event == w->event && row->pid == s->pid[i] &&
		    row->tid == s->tid[i] && row->user_chain == s->user_chain[i] &&
		    row->kernel_chain == s->kernel_chain[i] && row->cgroup == s->cgroup[i]) {
			row->count++;
			row->weight += s->period[i];
			return true;
		}
	}
	if (g->count >= g->capacity)
		return false;
	g->rows[g->count++] = (struct perf_group){
		.time_ns = w->end_ns,
		.count = 1,
		.weight = s->period[i],
		.cgroup = s->cgroup[i],
		.event = w->event,
		.pid = s->pid[i],
		.tid = s->tid[i],
		.user_chain = s->user_chain[i],
		.kernel_chain = s->kernel_chain[i],
	};
	g->slots[slot] = w->hash << 32 | g->count;
	return true;
}

/* Add samples from row `first` on; returns the first row there was no room for, or s->rows. The table can be larger
 * than caches: some samples are under way at once, so that they wait for memory together. */
EXPORT uint64_t tdprof_perf_group(struct perf_groups *g, const struct perf_samples *s, uint64_t first)
{
	enum { UNDER_WAY = 16, AT_SLOT = 8 };
	struct waiting ring[UNDER_WAY];
	struct span span = { .known = false };
	const uint64_t count = s->rows - first;
	for (uint64_t i = 0; i < count + UNDER_WAY; i++) {
		if (i >= UNDER_WAY && i - UNDER_WAY < count && !add(g, &ring[i % UNDER_WAY], s, first + i - UNDER_WAY))
			return first + i - UNDER_WAY;
		if (i < count)
			ring[i % UNDER_WAY] = prepare(g, s, first + i, &span);
		if (i >= AT_SLOT && i - AT_SLOT < count)
			prefetch_row(g, &ring[(i - AT_SLOT) % UNDER_WAY]);
	}
	return s->rows;
}

/* Move every entry of `old` (old_count slots) into the new, zeroed slots, of a table that has more rows now. */
EXPORT void tdprof_perf_rehash_groups(struct perf_groups *g, const uint64_t *old, uint64_t old_count)
{
	hash_move(g->slots, g->slot_mask, old, old_count);
}
