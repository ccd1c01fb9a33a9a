/* SPDX-License-Identifier: Apache-2.0 */
/* Columns to the rows of a report in one pass: each record's group is looked up, and its counts are added to the row
 * that the group belongs to. Which row that is the caller decides, for new groups many at a time; until then their
 * records wait. */
#include "tally.h"

/* Lanes that are copied from the events packet. */
#define EVENT_LANES                                                                                                    \
	(1u << LANE_L1D_ACCESS | 1u << LANE_L1D_REFILL | 1u << LANE_TLB_ACCESS | 1u << LANE_TLB_WALK |                 \
	 1u << LANE_NOT_TAKEN | 1u << LANE_MISPREDICTED | 1u << LANE_LLC_ACCESS | 1u << LANE_LLC_REFILL |              \
	 1u << LANE_PARTIAL_PREDICATE | 1u << LANE_EMPTY_PREDICATE)
/* Events that mean something only with the one before them. */
#define DEPENDENT (1u << LANE_L1D_REFILL | 1u << LANE_TLB_WALK | 1u << LANE_LLC_REFILL)

typedef uint32_t quad __attribute__((vector_size(16), aligned(4), may_alias));

static inline uint64_t thread_of(const struct spe_columns *c, uint64_t i, const uint64_t *threads,
                                 const struct spe_rules *rules)
{
	uint32_t present = rules->ignores_contexts ? 0 : c->present[i];

	if (present >> SPE_CTX2 & 1)
		return c->context_el2[i];
	if (present >> SPE_CTX1 & 1)
		return c->context_el1[i];
	return threads ? threads[i] : rules->thread;
}

/* Code of a load's data source: its packet where the core's encoding is known, else what its events say. */
static inline uint32_t source_of(const struct spe_columns *c, uint64_t i, const struct spe_rules *rules)
{
	uint32_t events = (uint32_t)c->events[i];

	if (c->present[i] >> SPE_SOURCE & 1 && c->data_source[i] < rules->known_sources)
		return rules->first_source + c->data_source[i];
	return rules->source_of_events[(events >> 2 & 3) | (events >> 8 & 7) << 2 | (events >> 19 & 31) << 5];
}

static inline struct spe_item item_of(const struct spe_columns *c, uint64_t i, uint32_t own, uint32_t source,
                                      const struct spe_rules *rules)
{
	uint32_t events = (uint32_t)c->events[i], is_retired = 0u - (events >> 1 & 1), is_load = own >> LANE_LOADS & 1;
	uint8_t level = rules->level[source];
	uint32_t lanes = events & (~DEPENDENT | events << 1) & own & EVENT_LANES;

	lanes |= (own & ~EVENT_LANES) | 1u << LANE_RETIRED;
	lanes |= is_load << (LANE_LOADS_BY_LEVEL + (level & 7)) | (is_load & level >> 7) << LANE_SNOOPED;
	lanes |= (c->present[i] >> SPE_TOT & 7) << LANE_TOTAL_COUNT;
	return (struct spe_item){
		.lanes = 1u << LANE_OPERATIONS | (lanes & is_retired),
		.latency = { c->total_latency[i], c->issue_latency[i], c->translation_latency[i] },
	};
}

static inline uint64_t page_key(int32_t row, unsigned kind, uint16_t cycles)
{
	return ((uint64_t)row * SPE_LATENCIES + kind) << 12 | cycles / SPE_PAGE;
}

static inline uint64_t page_slot(const struct spe_pages *pages, uint64_t key)
{
	uint64_t hash = (key ^ (uint64_t)(uintptr_t)pages->slot) * 0x9e3779b97f4a7c15u;

	return (hash ^ hash >> 29) & (pages->slots - 1);
}

/* There is room for one more page. */
static inline void count_latency(struct spe_pages *pages, uint64_t key, uint16_t cycles)
{
	uint64_t at = page_slot(pages, key);
	uint32_t found;

	while ((found = pages->slot[at]) && pages->key[found - 1] != key)
		at = (at + 1) & (pages->slots - 1);
	if (!found) {
		pages->key[pages->count] = key;
		memset(pages->hits[pages->count], 0, sizeof *pages->hits);
		pages->slot[at] = found = (uint32_t)++pages->count;
	}
	pages->hits[found - 1][cycles % SPE_PAGE]++;
}

static inline void add_to_row(struct spe_row *row, int32_t number, const struct spe_item *item, struct spe_pages *pages)
{
	static const quad bits = { 1, 2, 4, 8 };
	quad *lanes = (quad *)row->lanes;
	quad wanted = { item->lanes, item->lanes, item->lanes, item->lanes };

	for (unsigned i = 0; i < SPE_LANES / 4; i++)
		lanes[i] -= (quad)((wanted & bits << 4 * i) != 0);
	if (!(item->lanes >> LANE_RETIRED & 1))
		return;
	for (unsigned kind = 0; kind < SPE_LATENCIES; kind++) {
		uint16_t cycles = item->latency[kind];

		row->cycles[kind] += cycles;
		if (!(item->lanes >> (LANE_TOTAL_COUNT + kind) & 1))
			continue;
		if (cycles < SPE_LOW)
			row->low[kind][cycles]++;
		else
			count_latency(pages, page_key(number, kind, cycles), cycles);
	}
}

/* Adds items of groups that have a row, lets others wait. There is room for all that may come of them. */
static void add_items(struct spe_tally *t, struct spe_pages *pages, const struct spe_item *items, uint64_t n)
{
	int32_t row_of[SPE_BLOCK];

	for (uint64_t i = 0; i < n; i++) {
		int32_t row = row_of[i] = t->row_of[items[i].group];

		if (row < 0)
			continue;
		__builtin_prefetch(&t->rows[row].lanes[0], 1);
		__builtin_prefetch(&t->rows[row].lanes[16], 1);
		__builtin_prefetch(&t->rows[row].cycles, 1);
		for (unsigned kind = 0; kind < SPE_LATENCIES; kind++)
			if (items[i].latency[kind] < SPE_LOW)
				__builtin_prefetch(&t->rows[row].low[kind][items[i].latency[kind]], 1);
			else
				__builtin_prefetch(
					&pages->slot[page_slot(pages, page_key(row, kind, items[i].latency[kind]))]);
	}
	for (uint64_t i = 0; i < n; i++)
		if (row_of[i] >= 0)
			add_to_row(&t->rows[row_of[i]], row_of[i], &items[i], pages);
		else if (row_of[i] == SPE_UNPLACED)
			t->waiting[t->waiting_count++] = items[i];
}

/* Adds the records from `from` on; `threads` holds the thread of each where no context packet names it (or of all), or
 * is NULL. Returns the records done. Fewer than n: less than a block's room is left for groups, pages or waiting
 * records. */
SPE_EXPORT uint64_t spe_tally(const struct spe_columns *c, uint64_t from, uint64_t n, const uint64_t *threads,
                              const struct spe_rules *rules, struct spe_groups *g, struct spe_pages *pages,
                              struct spe_tally *t)
{
	struct spe_item items[SPE_BLOCK];
	uint64_t first[SPE_BLOCK], second[SPE_BLOCK], slot[SPE_BLOCK];

	for (uint64_t block; from < n; from += block) {
		block = n - from < SPE_BLOCK ? n - from : SPE_BLOCK;
		/* One group more, so that the others can have one. */
		if ((t->others < 0 && g->capacity - g->count <= block) ||
		    pages->capacity - pages->count < SPE_LATENCIES * block ||
		    t->waiting_capacity - t->waiting_count < block)
			return from;
		for (uint64_t k = 0; k < block; k++) {
			uint64_t i = from + k;
			uint32_t own = rules->lanes[(c->op_class[i] & 3) << 8 | c->op[i]],
				 source = source_of(c, i, rules);

			t->with_context += (c->present[i] & (1u << SPE_CTX1 | 1u << SPE_CTX2)) != 0;
			items[k] = item_of(c, i, own, source, rules);
			if (rules->key == SPE_KEY_SOURCE) {
				first[k] = own >> LANE_LOADS & 1 ? source : UINT64_MAX;
				second[k] = rules->core;
			} else {
				second[k] = thread_of(c, i, threads, rules);
				first[k] = rules->key == SPE_KEY_CODE    ? c->pc[i]
				           : c->present[i] >> SPE_VA & 1 ? c->va[i] >> rules->shift
				                                         : UINT64_MAX;
			}
			slot[k] = spe_group_slot(g, first[k], second[k]);
			__builtin_prefetch(&g->slot[slot[k]]);
		}
		for (uint64_t k = 0; k < block; k++) {
			uint32_t found = spe_find_group(g, slot[k], first[k], second[k]);

			items[k].group = found ? found - 1 : (uint32_t)t->others;
		}
		add_items(t, pages, items, block);
	}
	return n;
}

/* Adds the records that waited, now that their groups have rows; those of a group that still has none are left out.
 * Returns 0 if there is no more room for pages, with the rest still waiting, else 1. */
SPE_EXPORT int spe_fold(struct spe_pages *pages, struct spe_tally *t)
{
	for (; t->folded < t->waiting_count; t->folded++) {
		const struct spe_item *item = &t->waiting[t->folded];
		int32_t row = t->row_of[item->group];

		if (pages->capacity - pages->count < SPE_LATENCIES)
			return 0;
		if (row >= 0)
			add_to_row(&t->rows[row], row, item, pages);
	}
	t->waiting_count = t->folded = 0;
	return 1;
}

/* Enters the first n keys into the empty slots of a table that the caller has made larger. */
SPE_EXPORT void spe_index_pages(struct spe_pages *pages, uint64_t n)
{
	for (pages->count = 0; pages->count < n;) {
		uint64_t at = page_slot(pages, pages->key[pages->count]);

		while (pages->slot[at])
			at = (at + 1) & (pages->slots - 1);
		pages->slot[at] = (uint32_t)++pages->count;
	}
}
