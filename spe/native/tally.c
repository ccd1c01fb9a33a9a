/* SPDX-License-Identifier: Apache-2.0 */
/* Columns to the rows of a report in one pass: each record's group is looked up, and its counts are added to the row
 * that the group belongs to. Which row that is the caller decides, for new groups many at a time; until then their
 * records wait. */
#include "tally.h"

#include "slot.h"

/* Lanes that are copied from the events packet. */
#define EVENT_LANES                                                                                                    \
	(1u << LANE_L1D_ACCESS | 1u << LANE_L1D_REFILL | 1u << LANE_TLB_ACCESS | 1u << LANE_TLB_WALK |                 \
	 1u << LANE_NOT_TAKEN | 1u << LANE_MISPREDICTED | 1u << LANE_LLC_ACCESS | 1u << LANE_LLC_REFILL |              \
	 1u << LANE_PARTIAL_PREDICATE | 1u << LANE_EMPTY_PREDICATE)
/* Events that mean something only with the one before them. */
#define DEPENDENT (1u << LANE_L1D_REFILL | 1u << LANE_TLB_WALK | 1u << LANE_LLC_REFILL)

/* The top bit of each of eight counters: it is set in one that is full. */
#define TOP_BITS 0x8080808080808080u

/* Counts that leave the rows for pages: more than a record can have, so that their memory is asked for together. */
#define MOST_CARRIES 256

struct carries {
	unsigned count;
	struct {
		uint64_t key, hash, slot;
		uint32_t place, records;
	} of[MOST_CARRIES];
};

/* Records on their way to their rows. */
struct block {
	struct spe_item items[SPE_BLOCK];
	uint64_t first[SPE_BLOCK], second[SPE_BLOCK], hash[SPE_BLOCK]; /* keys, and their hash */
	uint64_t slot[SPE_BLOCK];                                      /* where their group may stand */
	int32_t row_of[SPE_BLOCK];
};

static inline uint64_t thread_of(const struct spe_slot *f, uint64_t thread, const struct spe_rules *rules)
{
	uint32_t present = rules->ignores_contexts ? 0 : f->present;

	if (present >> SPE_CTX2 & 1)
		return f->context_el2;
	if (present >> SPE_CTX1 & 1)
		return f->context_el1;
	return thread;
}

/* Code of a load's data source: its packet where the core's encoding is known, else what its events say. No branch
 * depends on whether the record is a load. */
static inline uint32_t source_of(const struct spe_slot *f, const struct spe_rules *rules)
{
	uint32_t by_packet = rules->first_source + f->data_source;
	uint32_t by_events =
		rules->source_of_events[(f->events >> 2 & 3) | (f->events >> 8 & 7) << 2 | (f->events >> 19 & 31) << 5];
	uint32_t is_known = 0u - ((f->present >> SPE_SOURCE & 1) & (f->data_source < rules->known_sources));

	return (by_packet & is_known) | (by_events & ~is_known);
}

static inline struct spe_item item_of(const struct spe_slot *f, uint32_t own, uint32_t source,
                                      const struct spe_rules *rules)
{
	uint32_t events = f->events, is_retired = 0u - (events >> 1 & 1), is_load = own >> LANE_LOADS & 1;
	uint8_t level = rules->level[source];
	uint32_t lanes = events & (~DEPENDENT | events << 1) & own & EVENT_LANES;

	lanes |= (own & ~EVENT_LANES) | 1u << LANE_RETIRED;
	lanes |= is_load << (LANE_LOADS_BY_LEVEL + (level & 7)) | (is_load & level >> 7) << LANE_SNOOPED;
	lanes |= (f->present >> SPE_TOT & 7) << LANE_TOTAL_COUNT;
	return (struct spe_item){
		.lanes = 1u << LANE_OPERATIONS | (lanes & is_retired),
		.latency = { f->latency[0], f->latency[1], f->latency[2] },
	};
}

static inline uint64_t page_hash(const struct spe_pages *pages, uint64_t key)
{
	uint64_t hash = (key ^ (uint64_t)(uintptr_t)pages->slot) * 0x9e3779b97f4a7c15u;

	return hash ^ hash >> 29;
}

/* There is room for one more page, and the page is in none of the slots before `at`. */
static inline void count_in_page(struct spe_pages *pages, uint64_t at, uint64_t hash, uint64_t key, uint32_t place,
                                 uint32_t records)
{
	uint32_t found;

	for (;; at = (at + 1) & (pages->slots - 1)) {
		at = spe_likely_slot(pages->slot, pages->slots, at, hash);
		found = spe_number_in(pages->slot[at], pages->slots);
		if (!found || pages->page[found - 1].key == key)
			break;
	}
	if (!found) {
		pages->page[pages->count] = (struct spe_page){ .key = key };
		found = (uint32_t)++pages->count;
		pages->slot[at] = spe_slot_of(found, pages->slots, hash);
	}
	pages->page[found - 1].hits[place] += records;
}

/* There is room for as many pages. */
static void count_carries(struct spe_pages *pages, struct carries *carries)
{
	for (unsigned i = 0; i < carries->count; i++) {
		uint64_t hash = carries->of[i].hash;
		uint64_t at = spe_likely_slot(pages->slot, pages->slots, hash & (pages->slots - 1), hash);
		uint32_t likely = spe_number_in(pages->slot[at], pages->slots);

		carries->of[i].slot = at;
		__builtin_prefetch(&pages->page[likely ? likely - 1 : 0], 1);
	}
	for (unsigned i = 0; i < carries->count; i++)
		count_in_page(pages, carries->of[i].slot, carries->of[i].hash, carries->of[i].key, carries->of[i].place,
		              carries->of[i].records);
	carries->count = 0;
}

/* `index` counts from the first of the row's counters of this kind. */
static inline void carry(struct carries *carries, const struct spe_pages *pages, int32_t row, unsigned kind,
                         unsigned index, uint32_t records)
{
	uint64_t key = ((uint64_t)row * (SPE_LATENCIES + 1) + kind) << 14 | index / SPE_PAGE;
	uint64_t hash = page_hash(pages, key);
	unsigned n = carries->count++;

	__builtin_prefetch(&pages->slot[hash & (pages->slots - 1)]);
	carries->of[n].key = key;
	carries->of[n].hash = hash;
	carries->of[n].place = index % SPE_PAGE;
	carries->of[n].records = records;
}

static __attribute__((noinline)) void carry_lanes(struct spe_row *row, int32_t number, struct carries *carries,
                                                  const struct spe_pages *pages)
{
	for (unsigned lane = 0; lane < SPE_LANES; lane++)
		if (row->lanes[lane] == SPE_FULL) {
			row->lanes[lane] = 0;
			carry(carries, pages, number, SPE_LATENCIES, lane, SPE_FULL);
		}
}

/* Eight bits as eight bytes, 0 or 1, lowest first. */
#define BIT(n, i)   ((uint64_t)((n) >> (i) & 1) << 8 * (i))
#define BYTES(n)    BIT(n, 0) | BIT(n, 1) | BIT(n, 2) | BIT(n, 3) | BIT(n, 4) | BIT(n, 5) | BIT(n, 6) | BIT(n, 7)
#define BYTES_4(n)  BYTES(n), BYTES((n) + 1), BYTES((n) + 2), BYTES((n) + 3)
#define BYTES_16(n) BYTES_4(n), BYTES_4((n) + 4), BYTES_4((n) + 8), BYTES_4((n) + 12)
#define BYTES_64(n) BYTES_16(n), BYTES_16((n) + 16), BYTES_16((n) + 32), BYTES_16((n) + 48)
static const uint64_t bytes_of[256] = { BYTES_64(0), BYTES_64(64), BYTES_64(128), BYTES_64(192) };

/* No branch depends on which latencies a record has: in a sampled stream that is as good as random. */
static inline void add_to_row(struct spe_row *row, int32_t number, const struct spe_item *item, struct carries *carries,
                              const struct spe_pages *pages)
{
	uint64_t all = 0;

	for (unsigned i = 0; i < SPE_LANES / 8; i++) {
		uint64_t eight;

		memcpy(&eight, &row->lanes[8 * i], sizeof eight);
		eight += bytes_of[item->lanes >> 8 * i & 255];
		memcpy(&row->lanes[8 * i], &eight, sizeof eight);
		all |= eight;
	}
	if (all & TOP_BITS)
		carry_lanes(row, number, carries, pages);
	for (unsigned kind = 0; kind < SPE_LATENCIES; kind++) {
		uint16_t cycles = item->latency[kind];
		unsigned counts = item->lanes >> (LANE_TOTAL_COUNT + kind) & 1, is_low = cycles < SPE_LOW;
		uint8_t *low = &row->low[kind][cycles % SPE_LOW];

		*low += (uint8_t)(counts & is_low);
		if (*low == SPE_FULL) {
			*low = 0;
			carry(carries, pages, number, kind, cycles % SPE_LOW, SPE_FULL);
		}
		if (counts > is_low)
			carry(carries, pages, number, kind, cycles, 1);
	}
}

/* Adds items of groups that have a row, lets others wait. There is room for all that may come of them. */
static void add_items(struct spe_tally *t, struct spe_pages *pages, const struct block *b, unsigned n)
{
	struct carries carries;

	carries.count = 0;
	for (unsigned i = 0; i < n; i++) {
		if (b->row_of[i] >= 0)
			add_to_row(&t->rows[b->row_of[i]], b->row_of[i], &b->items[i], &carries, pages);
		else if (b->row_of[i] == SPE_UNPLACED)
			t->waiting[t->waiting_count++] = b->items[i];
		if (carries.count > MOST_CARRIES - SPE_LANES - SPE_LATENCIES)
			count_carries(pages, &carries);
	}
	count_carries(pages, &carries);
}

/* The k-th record of a block; `thread` is of records that name none. */
static inline __attribute__((always_inline)) void put_record(struct block *b, unsigned k, const struct spe_slot *f,
                                                             uint64_t thread, const struct spe_rules *rules,
                                                             const struct spe_groups *g, struct spe_tally *t)
{
	uint32_t own = rules->lanes[(f->op_class & 3) << 8 | f->op], source = source_of(f, rules);

	t->with_context += (f->present & (1u << SPE_CTX1 | 1u << SPE_CTX2)) != 0;
	b->items[k] = item_of(f, own, source, rules);
	if (rules->key == SPE_KEY_SOURCE) {
		b->first[k] = own >> LANE_LOADS & 1 ? source : UINT64_MAX;
		b->second[k] = rules->core;
	} else {
		b->second[k] = thread_of(f, thread, rules);
		b->first[k] = rules->key == SPE_KEY_CODE ? spe_canonical(f->pc)
		              : f->present >> SPE_VA & 1 ? spe_canonical(f->va) >> rules->shift
		                                         : UINT64_MAX;
	}
	b->hash[k] = spe_group_hash(g, b->first[k], b->second[k]);
	__builtin_prefetch(&g->slot[b->hash[k] & (g->slots - 1)]);
}

/* Adds the n records of a block. There is room for all that may come of them. */
static void add_block(struct block *b, unsigned n, struct spe_groups *g, struct spe_pages *pages, struct spe_tally *t)
{
	for (unsigned k = 0; k < n; k++) {
		uint64_t at = spe_likely_slot(g->slot, g->slots, b->hash[k] & (g->slots - 1), b->hash[k]);
		uint32_t likely = spe_number_in(g->slot[at], g->slots);

		b->slot[k] = at;
		__builtin_prefetch(&g->pair[likely ? likely - 1 : 0]);
		__builtin_prefetch(&t->row_of[likely ? likely - 1 : 0]);
	}
	for (unsigned k = 0; k < n; k++) {
		uint32_t found = spe_find_group(g, b->slot[k], b->hash[k], b->first[k], b->second[k]);

		b->items[k].group = found ? found - 1 : (uint32_t)t->others;
		b->row_of[k] = t->row_of[b->items[k].group];
		if (b->row_of[k] >= 0) {
			__builtin_prefetch(&t->rows[b->row_of[k]].lanes, 1);
			__builtin_prefetch(&t->rows[b->row_of[k]].low[1], 1);
		}
	}
	add_items(t, pages, b, n);
}

/* Whether all that may come of n records has room. */
static inline int has_room(uint64_t n, const struct spe_groups *g, const struct spe_pages *pages,
                           const struct spe_tally *t)
{
	/* One group more, so that the others can have one. */
	return (t->others >= 0 || g->capacity - g->count > n) &&
	       pages->capacity - pages->count >= SPE_PAGES_OF_RECORD * n && t->waiting_capacity - t->waiting_count >= n;
}

/* Adds the records from `from` on; `threads` holds the thread of each where no context packet names it (or of all), or
 * is NULL. Returns the records done. Fewer than n: less than a block's room is left for groups, pages or waiting
 * records. */
SPE_EXPORT uint64_t spe_tally(const struct spe_columns *c, uint64_t from, uint64_t n, const uint64_t *threads,
                              const struct spe_rules *rules, struct spe_groups *g, struct spe_pages *pages,
                              struct spe_tally *t)
{
	struct block b;

	for (unsigned size; from < n; from += size) {
		size = n - from < SPE_BLOCK ? (unsigned)(n - from) : SPE_BLOCK;
		if (!has_room(size, g, pages, t))
			return from;
		for (unsigned k = 0; k < size; k++) {
			uint64_t i = from + k;
			const struct spe_slot f = {
				.pc = c->pc[i],
				.va = c->va[i],
				.present = c->present[i],
				.events = (uint32_t)c->events[i],
				.context_el1 = c->context_el1[i],
				.context_el2 = c->context_el2[i],
				.latency = { c->total_latency[i], c->issue_latency[i], c->translation_latency[i] },
				.data_source = c->data_source[i],
				.op_class = c->op_class[i],
				.op = c->op[i],
			};

			put_record(&b, k, &f, threads ? threads[i] : rules->thread, rules, g, t);
		}
		add_block(&b, size, g, pages, t);
	}
	return n;
}

/* Reads slots like those before, up to a block of them, until one is anything else: spe_decode does the same of them,
 * column by column. */
static inline __attribute__((always_inline)) unsigned read_slots(struct block *b, const uint8_t *buf, uint64_t len,
                                                                 struct spe_decoder *d, unsigned events_bytes,
                                                                 const struct spe_rules *rules,
                                                                 const struct spe_groups *g, struct spe_tally *t)
{
	const uint8_t *p = buf + d->position;
	uint64_t left = len - d->position, timestamp = d->sync.timestamp;
	uint32_t present = 0, has_ts = (uint32_t)(d->sync.close == SPE_TS) << SPE_TS;
	unsigned n = 0;

	for (; n < SPE_BLOCK && left >= SPE_SLOT + SPE_LONGEST_PACKET; n++, p += SPE_SLOT, left -= SPE_SLOT) {
		struct spe_slot s;

		if (p[21] != (events_bytes == 2 ? 0x52 : 0x62) || !spe_read_slot(p, events_bytes, &s) ||
		    (s.present & 1u << SPE_TS) != has_ts)
			break;
		if (has_ts) {
			if (spe_is_far(timestamp, s.timestamp))
				break;
			timestamp = s.timestamp;
		}
		present = s.present;
		put_record(b, n, &s, rules->thread, rules, g, t);
	}
	if (n) {
		d->position += (uint64_t)n * SPE_SLOT;
		d->records += n;
		d->record_bytes += (uint64_t)n * SPE_SLOT;
		d->sync.last = d->position - SPE_SLOT + 1;
		d->sync.timestamp = timestamp;
		d->sync.present = present;
		d->sync.required = SPE_REQUIRED;
		d->sync.unknown_ok = 0;
	}
	return n;
}

/* Adds records straight from their slots, as long as they are like those before. Returns 0 if room is short, else 1. */
static int add_slots(const uint8_t *buf, uint64_t len, struct spe_decoder *d, const struct spe_rules *rules,
                     struct spe_groups *g, struct spe_pages *pages, struct spe_tally *t)
{
	struct block b;
	unsigned n;

	while (d->sync.slot_run == SPE_SLOT_RUN && len - d->position >= SPE_SLOT + SPE_LONGEST_PACKET) {
		if (!has_room(SPE_BLOCK, g, pages, t))
			return 0;
		n = buf[d->position + 21] == 0x52 ? read_slots(&b, buf, len, d, 2, rules, g, t)
		                                  : read_slots(&b, buf, len, d, 4, rules, g, t);
		if (!n)
			break;
		add_block(&b, n, g, pages, t);
	}
	return 1;
}

/* Adds the records of a span, from d->position on; `c` is where those are decoded that are not like the ones before,
 * and t->decoded and t->added are 0 before the first call. Returns 1 at the end of the input; 0: as spe_tally, and to
 * be called again with the same. */
SPE_EXPORT int spe_tally_span(const uint8_t *buf, uint64_t len, struct spe_decoder *d, const struct spe_columns *c,
                              const struct spe_rules *rules, struct spe_groups *g, struct spe_pages *pages,
                              struct spe_tally *t)
{
	for (uint64_t others;; t->decoded = spe_decode(buf, len, d, c, &others), t->added = 0) {
		t->added = spe_tally(c, t->added, t->decoded, NULL, rules, g, pages, t);
		if (t->added < t->decoded || !add_slots(buf, len, d, rules, g, pages, t))
			return 0;
		if (d->position >= len)
			return 1;
	}
}

/* Adds the records that waited, now that their groups have rows; those of a group that still has none are left out.
 * Returns 0 if there is no more room for pages, with the rest still waiting, else 1. */
SPE_EXPORT int spe_fold(struct spe_pages *pages, struct spe_tally *t)
{
	struct carries carries;

	carries.count = 0;
	for (; t->folded < t->waiting_count; t->folded++) {
		const struct spe_item *item = &t->waiting[t->folded];
		int32_t row = t->row_of[item->group];

		if (pages->capacity - pages->count < SPE_PAGES_OF_RECORD)
			return 0;
		if (row >= 0)
			add_to_row(&t->rows[row], row, item, &carries, pages);
		count_carries(pages, &carries);
	}
	t->waiting_count = t->folded = 0;
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
