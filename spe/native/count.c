/* SPDX-License-Identifier: Apache-2.0 */
/* Records whose rows are known, into the counters of those rows. */
#include "tally.h"

static inline uint64_t page_hash(const struct spe_pages *pages, uint64_t key)
{
	uint64_t hash = (key ^ (uint64_t)(uintptr_t)pages->slot) * 0x9e3779b97f4a7c15u;

	return hash ^ hash >> 29;
}

/* Where the page may stand: from the slot `at` on. */
static inline uint64_t likely_slot(const struct spe_pages *pages, uint64_t at, uint64_t hash)
{
	return spe_likely_slot(pages->slot, pages->slots, at & (pages->slots - 1), hash);
}

/* Latencies of a row are `spot`s: (row * SPE_LATENCIES + kind) << 16 | cycles. */
static inline uint64_t page_key(uint64_t spot)
{
	return spot >> 16 << SPE_PAGE_BITS | (spot & 0xffff) / SPE_PAGE;
}

/* There is room for one more page. */
static inline void count_in_page(struct spe_pages *pages, uint64_t spot)
{
	uint64_t key = page_key(spot), hash = page_hash(pages, key), at = hash;
	uint32_t found;

	for (;; at++) {
		at = likely_slot(pages, at, hash);
		found = spe_number_in(pages->slot[at], pages->slots);
		if (!found || pages->page[found - 1].key == key)
			break;
	}
	if (!found) {
		pages->page[pages->count] = (struct spe_page){ .key = key };
		found = (uint32_t)++pages->count;
		pages->slot[at] = spe_slot_of(found, pages->slots, hash);
	}
	pages->page[found - 1].hits[(spot & 0xffff) % SPE_PAGE]++;
}

/* The latencies of some records that rows have no counter for. */
static void count_high(struct spe_pages *pages, const struct spe_item *items, const struct spe_ready *ready,
                       const uint8_t *high, unsigned n)
{
	uint64_t spot[SPE_LATENCIES * SPE_BLOCK];
	unsigned spots = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct spe_item *item = &items[ready->item[high[i]]];
		uint64_t row = (uint64_t)ready->row[high[i]];

		for (unsigned kind = 0; kind < SPE_LATENCIES; kind++) {
			if (item->latency[kind] < SPE_LOW || !(item->lanes >> (LANE_TOTAL_COUNT + kind) & 1))
				continue;
			spot[spots] = (row * SPE_LATENCIES + kind) << 16 | item->latency[kind];
			__builtin_prefetch(&pages->slot[page_hash(pages, page_key(spot[spots])) & (pages->slots - 1)]);
			spots++;
		}
	}
	for (unsigned i = 0; i < spots; i++) {
		uint64_t hash = page_hash(pages, page_key(spot[i]));
		uint32_t likely = spe_number_in(pages->slot[likely_slot(pages, hash, hash)], pages->slots);

		__builtin_prefetch(&pages->page[likely ? likely - 1 : 0], 1);
	}
	for (unsigned i = 0; i < spots; i++)
		count_in_page(pages, spot[i]);
}

/* The counters of a row into its wide ones. There is room for them. */
static __attribute__((noinline)) void widen(struct spe_tally *t, int32_t row)
{
	uint8_t narrow[sizeof(struct spe_row)];
	uint32_t *wide;

	if (!t->wide_of[row]) {
		t->wide_of[row] = (uint32_t)++t->wide_count;
		memset(&t->wide[t->wide_count - 1], 0, sizeof *t->wide);
	}
	wide = t->wide[t->wide_of[row] - 1].count;
	memcpy(narrow, &t->rows[row], sizeof narrow);
	memset(&t->rows[row], 0, sizeof *t->rows);
	for (unsigned i = 0; i < sizeof narrow; i++)
		wide[i] += narrow[i];
}

/* Eight bits as eight bytes, 0 or 1, lowest first. */
#define BIT(n, i)   ((uint64_t)((n) >> (i) & 1) << 8 * (i))
#define BYTES(n)    BIT(n, 0) | BIT(n, 1) | BIT(n, 2) | BIT(n, 3) | BIT(n, 4) | BIT(n, 5) | BIT(n, 6) | BIT(n, 7)
#define BYTES_4(n)  BYTES(n), BYTES((n) + 1), BYTES((n) + 2), BYTES((n) + 3)
#define BYTES_16(n) BYTES_4(n), BYTES_4((n) + 4), BYTES_4((n) + 8), BYTES_4((n) + 12)
#define BYTES_64(n) BYTES_16(n), BYTES_16((n) + 16), BYTES_16((n) + 32), BYTES_16((n) + 48)
static const uint64_t bytes_of[256] = { BYTES_64(0), BYTES_64(64), BYTES_64(128), BYTES_64(192) };

/* No branch depends on which latencies a record has: in a sampled stream that is as good as random. */
void spe_count(struct spe_tally *t, struct spe_pages *pages, const struct spe_item *items,
               const struct spe_ready *ready)
{
	uint8_t high[SPE_BLOCK];
	unsigned highs = 0;

	for (unsigned i = 0; i < ready->count; i++) {
		const struct spe_item *item = &items[ready->item[i]];
		struct spe_row *row = &t->rows[ready->row[i]];
		uint32_t any = 0;

		for (unsigned eight = 0; eight < SPE_LANES / 8; eight++) {
			uint64_t counters;

			memcpy(&counters, &row->lanes[8 * eight], sizeof counters);
			counters += bytes_of[item->lanes >> 8 * eight & 255];
			memcpy(&row->lanes[8 * eight], &counters, sizeof counters);
		}
		for (unsigned kind = 0; kind < SPE_LATENCIES; kind++) {
			uint32_t cycles = item->latency[kind], is_low = cycles < SPE_LOW;

			row->low[kind][cycles % SPE_LOW] += item->lanes >> (LANE_TOTAL_COUNT + kind) & is_low;
			any |= cycles;
		}
		high[highs] = (uint8_t)i;
		highs += any >= SPE_LOW;
		if (row->lanes[LANE_OPERATIONS] == SPE_FULL)
			widen(t, ready->row[i]);
	}
	count_high(pages, items, ready, high, highs);
}

/* Adds the records that waited, now that their groups have rows. Returns 0 if there is no more room, with the rest
 * still waiting, else 1. */
SPE_EXPORT int spe_fold(struct spe_pages *pages, struct spe_tally *t)
{
	while (t->folded < t->waiting_count) {
		uint64_t left = t->waiting_count - t->folded;
		unsigned n = left < SPE_BLOCK ? (unsigned)left : SPE_BLOCK;
		const struct spe_item *items = &t->waiting[t->folded];
		struct spe_ready ready = { 0 };

		if (pages->capacity - pages->count < SPE_LATENCIES * n || t->wide_capacity - t->wide_count < n)
			return 0;
		for (unsigned i = 0; i < n; i++) {
			int32_t placing = t->row_of[items[i].group];

			ready.item[ready.count] = i;
			ready.row[ready.count] = placing - SPE_FIRST_ROW;
			ready.count += placing >= SPE_FIRST_ROW;
			__builtin_prefetch(&t->rows[placing >= SPE_FIRST_ROW ? placing - SPE_FIRST_ROW : 0], 1);
		}
		spe_count(t, pages, items, &ready);
		t->folded += n;
	}
	t->waiting_count = t->met_count = t->folded = 0;
	return 1;
}

/* Enters the first n pages into the empty slots of a table that the caller has made larger. */
SPE_EXPORT void spe_index_pages(struct spe_pages *pages, uint64_t n)
{
	for (pages->count = 0; pages->count < n;) {
		uint64_t hash = page_hash(pages, pages->page[pages->count].key), at = hash & (pages->slots - 1);

		while (pages->slot[at])
			at = (at + 1) & (pages->slots - 1);
		pages->slot[at] = spe_slot_of((uint32_t)++pages->count, pages->slots, hash);
	}
}
