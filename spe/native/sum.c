/* SPDX-License-Identifier: Apache-2.0 */
/* What several threads counted by row, into the sums of groups of rows, with the histograms in order. */
#include "tally.h"

#define CYCLES  (1u << 16) /* of a latency, and in the low bits of its key */
#define STRETCH 64         /* neighbours in a histogram that are looked at only where one of them was counted */

/* One histogram while it is added up; all zeros in between. */
struct histogram {
	uint64_t hits[CYCLES + STRETCH]; /* the last page goes beyond */
	uint64_t is_met[CYCLES / STRETCH / 64 + 1];
};

static inline void add_hits(struct histogram *h, uint32_t cycles, uint64_t hits)
{
	h->hits[cycles] += hits;
	h->is_met[cycles / STRETCH / 64] |= (uint64_t)(hits != 0) << cycles / STRETCH % 64;
}

/* The part that a row or page of this number, counted over all parts, is in; from `part` on downwards. */
static inline uint64_t part_of(const uint64_t *first, uint64_t part, uint64_t number)
{
	while (number < first[part])
		part--;
	return part;
}

static void add_row(struct spe_sums *s, const struct spe_part *part, uint64_t row, uint64_t group)
{
	const uint8_t *narrow = part->rows[row].lanes;
	const uint32_t *wide = part->wide_of[row] ? part->wide[part->wide_of[row] - 1].count : NULL;

	for (unsigned lane = 0; lane < SPE_LANES; lane++)
		s->lanes[group * SPE_LANES + lane] += narrow[lane] + (wide ? wide[lane] : 0);
}

static void add_low(struct histogram *h, const struct spe_part *part, uint64_t row, unsigned kind)
{
	const uint8_t *narrow = part->rows[row].low[kind];
	const uint32_t *wide = part->wide_of[row] ? part->wide[part->wide_of[row] - 1].count : NULL;

	for (unsigned cycles = 0; cycles < SPE_LOW; cycles++)
		add_hits(h, cycles, narrow[cycles] + (uint64_t)(wide ? wide[SPE_LANES + kind * SPE_LOW + cycles] : 0));
}

static void add_page(struct histogram *h, const struct spe_page *page)
{
	uint32_t first = (uint32_t)(page->key & ((1u << SPE_PAGE_BITS) - 1)) * SPE_PAGE;

	for (unsigned i = 0; i < SPE_PAGE; i++)
		add_hits(h, first + i, page->hits[i]);
}

/* Takes what a histogram holds as latencies of `place`, a group and kind; returns how many that makes. */
static uint64_t take(struct histogram *h, struct spe_sums *s, uint64_t place, uint64_t at)
{
	const uint64_t first = at;

	for (unsigned word = 0; word < sizeof h->is_met / sizeof *h->is_met; word++) {
		for (; h->is_met[word]; h->is_met[word] &= h->is_met[word] - 1) {
			unsigned cycles = (word * 64 + (unsigned)__builtin_ctzll(h->is_met[word])) * STRETCH;

			for (unsigned end = cycles + STRETCH; cycles < end; cycles++) {
				if (!h->hits[cycles])
					continue;
				s->key[at] = place << 16 | cycles;
				s->count[at++] = h->hits[cycles];
				s->cycles[place] += cycles * h->hits[cycles];
				h->hits[cycles] = 0;
			}
		}
	}
	return at - first;
}

static uint64_t count_nonzero(const struct spe_part *part, uint64_t row)
{
	const uint8_t *narrow = part->rows[row].low[0];
	const uint32_t *wide = part->wide_of[row] ? part->wide[part->wide_of[row] - 1].count + SPE_LANES : NULL;
	uint64_t found = 0;

	for (unsigned i = 0; i < SPE_LATENCIES * SPE_LOW; i++)
		found += narrow[i] || (wide && wide[i]);
	return found;
}

/* Puts the rows and pages of each group into its lists, and adds its lanes up. Returns how many latencies spe_sum will
 * find at most. */
SPE_EXPORT uint64_t spe_link(const struct spe_part *parts, uint64_t n, struct spe_sums *s)
{
	uint64_t most = 0;

	for (uint64_t p = 0; p < n; p++) {
		for (uint64_t row = 0; row < parts[p].row_count; row++) {
			int64_t group = s->group[row];

			if (group < 0)
				continue;
			s->next_row[s->first_row[p] + row] = s->row[group];
			s->row[group] = (uint32_t)(s->first_row[p] + row) + 1;
			add_row(s, &parts[p], row, (uint64_t)group);
			most += count_nonzero(&parts[p], row);
		}
		for (uint64_t page = 0; page < parts[p].page_count; page++) {
			uint64_t place = parts[p].pages[page].key >> SPE_PAGE_BITS;
			int64_t group = s->group[place / SPE_LATENCIES];

			if (group < 0)
				continue;
			place = (uint64_t)group * SPE_LATENCIES + place % SPE_LATENCIES;
			s->next_page[s->first_page[p] + page] = s->page[place];
			s->page[place] = (uint32_t)(s->first_page[p] + page) + 1;
			for (unsigned i = 0; i < SPE_PAGE; i++)
				most += parts[p].pages[page].hits[i] != 0;
		}
	}
	return most;
}

/* Latencies of the groups, ascending by key; `key` and `count` have room for what spe_link said, and `memory` for a
 * histogram of zeros, which it is again afterwards. Returns how many there are. */
SPE_EXPORT uint64_t spe_sum(const struct spe_part *parts, uint64_t n, struct spe_sums *s, void *memory)
{
	struct histogram *h = memory;
	uint64_t found = 0;

	for (uint64_t place = 0; place < s->groups * SPE_LATENCIES; place++) {
		uint64_t part = n - 1;

		for (uint32_t at = s->row[place / SPE_LATENCIES]; at; at = s->next_row[at - 1]) {
			part = part_of(s->first_row, part, at - 1);
			add_low(h, &parts[part], at - 1 - s->first_row[part], place % SPE_LATENCIES);
		}
		part = n - 1;
		for (uint32_t at = s->page[place]; at; at = s->next_page[at - 1]) {
			part = part_of(s->first_page, part, at - 1);
			add_page(h, &parts[part].pages[at - 1 - s->first_page[part]]);
		}
		found += take(h, s, place, found);
	}
	return found;
}
