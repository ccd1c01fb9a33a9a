/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes or columns to the rows of a report in one pass: each record's group is looked up, and its counts are added to
 * the row that the group belongs to. Which row that is the caller decides, for new groups many at a time; until then
 * their records wait. */
#include "tally.h"

#include "layout.h"

/* Lanes that are copied from the events packet. */
#define EVENT_LANES                                                                                                    \
	(1u << LANE_L1D_ACCESS | 1u << LANE_L1D_REFILL | 1u << LANE_TLB_ACCESS | 1u << LANE_TLB_WALK |                 \
	 1u << LANE_NOT_TAKEN | 1u << LANE_MISPREDICTED | 1u << LANE_LLC_ACCESS | 1u << LANE_LLC_REFILL |              \
	 1u << LANE_PARTIAL_PREDICATE | 1u << LANE_EMPTY_PREDICATE)
/* Events that mean something only with the one before them. */
#define DEPENDENT (1u << LANE_L1D_REFILL | 1u << LANE_TLB_WALK | 1u << LANE_LLC_REFILL)

/* Bytes ahead that slots are asked for: where one page of the input ends, hardware does not. */
#define AHEAD 1024

/* Records whose groups are looked up. */
struct block {
	struct spe_item items[SPE_BLOCK];
	uint64_t first[SPE_BLOCK], second[SPE_BLOCK]; /* keys, the first as neighbour_key turns it */
	uint64_t hash[SPE_BLOCK];                     /* of the neighbourhood */
	uint32_t likely[SPE_BLOCK];                   /* its number, or another one's */
};

/* Instructions are four bytes apart, so that those are eight neighbours whose keys differ in bits 4:2. */
static inline uint64_t neighbour_key(uint64_t first, uint32_t key)
{
	return key == SPE_KEY_CODE ? first >> 2 | first << 62 : first;
}

static inline uint64_t first_key(uint64_t neighbour, uint32_t key)
{
	return key == SPE_KEY_CODE ? neighbour << 2 | neighbour >> 62 : neighbour;
}

static inline uint64_t thread_of(const struct spe_slot *f, uint64_t thread, const struct spe_rules *rules)
{
	uint32_t present = rules->ignores_contexts ? 0 : f->present;

	if (present >> SPE_CTX2 & 1)
		return f->context_el2;
	if (present >> SPE_CTX1 & 1)
		return f->context_el1;
	return thread;
}

static inline unsigned has_context(uint32_t present)
{
	return (present & (1u << SPE_CTX1 | 1u << SPE_CTX2)) != 0;
}

/* The second key of a record whose time matters; `thread` is what it has without. */
static inline __attribute__((always_inline)) uint64_t timed_thread(uint32_t present, uint64_t timestamp,
                                                                   uint64_t thread, const struct spe_rules *rules,
                                                                   struct spe_tally *t)
{
	const unsigned is_named = !rules->ignores_contexts && has_context(present), is_timed = present >> SPE_TS & 1;
	uint64_t end_ns;

	if (is_timed && !is_named)
		thread = spe_switched_to(rules->times, spe_time_ns(rules->times, timestamp));
	t->unnamed += !is_named && thread == SPE_NO_THREAD;
	return is_timed ? spe_staged_at(rules->times, thread, timestamp)
	                : spe_staged(rules->times, thread, UINT64_MAX, &end_ns);
}

/* The first key of SPE_KEY_ADDRESS; `*second` is the thread before. A physical address that cannot be that of the data
 * address, or that no Linux has, is none. */
static inline uint64_t address_keys(const struct spe_slot *f, uint32_t shift, uint64_t *second)
{
	const uint32_t both = 1u << SPE_VA | 1u << SPE_PA;
	const uint64_t page = f->pa << 8 >> (8 + SPE_PAGE_SHIFT);
	const uint64_t offset = (1u << SPE_PAGE_SHIFT) - 1;

	if (!(f->present >> SPE_VA & 1))
		return UINT64_MAX;
	if ((f->present & both) != both || ((f->pa ^ f->va) & offset) || page >> (52 - SPE_PAGE_SHIFT) ||
	    shift < SPE_LEAST_SHIFT)
		return spe_canonical(f->va) >> shift;
	*second |= page << SPE_PHYSICAL_LOW;
	return (f->va << 8 >> 8) >> shift | page >> 31 << SPE_PHYSICAL_HIGH | SPE_IS_PHYSICAL;
}

static inline uint32_t event_index(uint32_t events)
{
	return (events >> 2 & 3) | (events >> 8 & 7) << 2 | (events >> 19 & 31) << 5;
}

/* All ones if the packet of a load's data source counts, else 0: then its events say what they can. */
static inline uint32_t has_known_source(const struct spe_slot *f, const struct spe_rules *rules)
{
	return 0u - ((f->present >> SPE_SOURCE & 1) & (f->data_source < rules->known_sources));
}

/* No branch depends on what the record is. */
static inline uint32_t lanes_of(const struct spe_slot *f, const struct spe_rules *rules)
{
	uint32_t own = rules->lanes[(f->op_class & 3) << 8 | f->op];
	uint32_t events = f->events, is_retired = 0u - (events >> 1 & 1), is_known = has_known_source(f, rules);
	uint32_t by_packet = rules->first_source + f->data_source, by_events = SPE_SOURCES + event_index(events);
	uint32_t lanes = rules->source_lanes[(by_packet & is_known) | (by_events & ~is_known)];

	lanes |= (events & (~DEPENDENT | events << 1) & EVENT_LANES) | ~(EVENT_LANES | SPE_SOURCE_LANES);
	lanes = (lanes & own) | (f->present >> SPE_TOT & 7) << LANE_TOTAL_COUNT;
	return 1u << LANE_OPERATIONS | (lanes & is_retired);
}

/* The k-th record of a block, of this thread; `key` is that of the rules. */
static inline __attribute__((always_inline)) void put_record(struct block *b, unsigned k, const struct spe_slot *f,
                                                             uint32_t lanes, uint64_t thread,
                                                             const struct spe_rules *rules, uint32_t key,
                                                             const struct spe_groups *g)
{
	b->items[k] = (struct spe_item){
		.lanes = lanes,
		.latency = { f->latency[0], f->latency[1], f->latency[2] },
	};
	if (key == SPE_KEY_SOURCE) {
		uint32_t own = rules->lanes[(f->op_class & 3) << 8 | f->op];
		uint32_t source = has_known_source(f, rules) ? rules->first_source + f->data_source
		                                             : rules->source_of_events[event_index(f->events)];

		b->first[k] = own >> LANE_LOADS & 1 ? source : UINT64_MAX;
		b->second[k] = rules->core;
	} else {
		b->second[k] = thread;
		b->first[k] = key == SPE_KEY_CODE ? spe_canonical(f->pc) : address_keys(f, rules->shift, &b->second[k]);
	}
	b->first[k] = neighbour_key(b->first[k], key);
	b->hash[k] = spe_group_hash(g, b->first[k] / SPE_NEIGHBOURS, b->second[k]);
	__builtin_prefetch(&g->slot[b->hash[k] & (g->slots - 1)]);
}

/* The placing of the k-th record's group, which has none so far or was never met. */
static __attribute__((noinline)) int32_t meet(struct block *b, unsigned k, const struct spe_rules *rules,
                                              struct spe_tally *t)
{
	struct spe_item *item = &b->items[k];

	if (t->row_of[item->group] == SPE_UNMET) {
		if (t->others >= 0) {
			item->group = (uint32_t)t->others;
		} else {
			t->row_of[item->group] = SPE_UNPLACED;
			t->met[t->met_count++] =
				(struct spe_met){ first_key(b->first[k], rules->key), b->second[k], item->group, 0 };
			t->groups++;
		}
	}
	if (t->row_of[item->group] == SPE_UNPLACED)
		t->waiting[t->waiting_count++] = *item;
	return t->row_of[item->group];
}

/* Adds the n records of a block. There is room for all that may come of them. */
static void add_block(struct block *b, unsigned n, const struct spe_rules *rules, struct spe_groups *g,
                      struct spe_pages *pages, struct spe_tally *t)
{
	struct spe_ready ready;

	ready.count = 0;
	for (unsigned k = 0; k < n; k++) {
		uint64_t at = spe_likely_slot(g->slot, g->slots, b->hash[k] & (g->slots - 1), b->hash[k]);
		uint32_t found = spe_number_in(g->slot[at], g->slots);

		b->likely[k] = found ? found - 1 : 0;
		__builtin_prefetch(&g->pair[b->likely[k]]);
		__builtin_prefetch(&t->row_of[(uint64_t)b->likely[k] * SPE_NEIGHBOURS]);
	}
	for (unsigned k = 0; k < n; k++) {
		uint64_t first = b->first[k] / SPE_NEIGHBOURS, second = b->second[k];
		const struct spe_pair *likely = &g->pair[b->likely[k]];
		uint32_t group = b->likely[k];
		int32_t placing;

		if (likely->first != first || likely->second != second || !g->count)
			group = spe_find_group(g, b->hash[k] & (g->slots - 1), b->hash[k], first, second) - 1;
		group = group == UINT32_MAX ? (uint32_t)t->others
		                            : group * SPE_NEIGHBOURS + (uint32_t)(b->first[k] % SPE_NEIGHBOURS);
		placing = t->row_of[group];
		b->items[k].group = group;
		if (placing <= SPE_UNPLACED)
			placing = meet(b, k, rules, t);
		ready.item[ready.count] = k;
		ready.row[ready.count] = placing - SPE_FIRST_ROW;
		ready.count += placing >= SPE_FIRST_ROW;
		if (placing >= SPE_FIRST_ROW) {
			__builtin_prefetch(&t->rows[placing - SPE_FIRST_ROW].lanes, 1);
			__builtin_prefetch(&t->rows[placing - SPE_FIRST_ROW].low[1], 1);
		}
	}
	spe_count(t, pages, b->items, &ready);
}

/* Whether all that may come of n records has room. */
static inline int has_room(uint64_t n, const struct spe_groups *g, const struct spe_pages *pages,
                           const struct spe_tally *t)
{
	/* One neighbourhood more, so that the others can have one. */
	return (t->others >= 0 || (g->capacity - g->count > n && t->most_groups - t->groups >= n)) &&
	       pages->capacity - pages->count >= SPE_LATENCIES * n && t->wide_capacity - t->wide_count >= n &&
	       t->waiting_capacity - t->waiting_count >= n;
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
				.pa = c->pa[i],
				.present = c->present[i],
				.events = (uint32_t)c->events[i],
				.context_el1 = c->context_el1[i],
				.context_el2 = c->context_el2[i],
				.latency = { c->total_latency[i], c->issue_latency[i], c->translation_latency[i] },
				.data_source = c->data_source[i],
				.op_class = c->op_class[i],
				.op = c->op[i],
			};

			uint64_t thread = thread_of(&f, threads ? threads[i] : rules->thread, rules);

			t->with_context += has_context(f.present);
			if (rules->times)
				thread = timed_thread(f.present, c->timestamp[i], thread, rules, t);
			put_record(&b, k, &f, lanes_of(&f, rules), thread, rules, rules->key, g);
		}
		add_block(&b, size, rules, g, pages, t);
	}
	return n;
}

/* Reads slots like those before, up to a block of them, until one is anything else: spe_decode does the same of them,
 * column by column. The numbers that decide what it does are known where it is called. */
static inline __attribute__((always_inline)) unsigned
read_slots(struct block *restrict b, const uint8_t *buf, uint64_t len, struct spe_decoder *d, unsigned events_bytes,
           uint32_t key, struct spe_layout *layouts, const struct spe_rules *restrict rules,
           const struct spe_groups *restrict g, struct spe_tally *restrict t)
{
	const struct spe_groups groups = *g; /* what is written to the block leaves it as it is */
	const uint8_t *p = buf + d->position;
	uint64_t left = len - d->position, timestamp = d->sync.timestamp, with_context = 0, thread;
	uint32_t present = 0, has_ts = (uint32_t)(d->sync.close == SPE_TS) << SPE_TS;
	unsigned n = 0;

	for (; n < SPE_BLOCK && left >= SPE_SLOT + SPE_LONGEST_PACKET; n++, p += SPE_SLOT, left -= SPE_SLOT) {
		unsigned number = spe_layout_of(p, events_bytes);
		struct spe_layout *layout = &layouts[number];
		struct spe_slot s;

		__builtin_prefetch(p + AHEAD);
		if (p[21] != (events_bytes == 2 ? 0x52 : 0x62))
			break;
		if (!spe_is_laid_out(p, layout)) {
			if (!spe_read_slot(p, events_bytes, &s))
				break;
			spe_learn_layout(p, events_bytes, &s, layout);
		}
		s = spe_take_slot(p, events_bytes, layout);
		if ((s.present & 1u << SPE_TS) != has_ts)
			break;
		if (has_ts) {
			if (spe_is_far(timestamp, s.timestamp))
				break;
			timestamp = s.timestamp;
		}
		present = s.present;
		with_context += has_context(present);
		thread = thread_of(&s, rules->thread, rules);
		if (rules->times)
			thread = timed_thread(present, s.timestamp, thread, rules, t);
		put_record(b, n, &s, lanes_of(&s, rules), thread, rules, key, &groups);
	}
	t->with_context += with_context;
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
static int add_slots(const uint8_t *buf, uint64_t len, struct spe_decoder *d, struct spe_layout *layouts,
                     const struct spe_rules *rules, struct spe_groups *g, struct spe_pages *pages, struct spe_tally *t)
{
	struct block b;
	unsigned n;

	while (d->sync.slot_run == SPE_SLOT_RUN && len - d->position >= SPE_SLOT + SPE_LONGEST_PACKET) {
		if (!has_room(SPE_BLOCK, g, pages, t))
			return 0;
		if (rules->key == SPE_KEY_CODE)
			n = buf[d->position + 21] == 0x52
			            ? read_slots(&b, buf, len, d, 2, SPE_KEY_CODE, layouts, rules, g, t)
			            : read_slots(&b, buf, len, d, 4, SPE_KEY_CODE, layouts, rules, g, t);
		else
			n = buf[d->position + 21] == 0x52
			            ? read_slots(&b, buf, len, d, 2, rules->key, layouts, rules, g, t)
			            : read_slots(&b, buf, len, d, 4, rules->key, layouts, rules, g, t);
		if (!n)
			break;
		add_block(&b, n, rules, g, pages, t);
	}
	return 1;
}

/* Adds the records of a span, from d->position on; `c` is where those are decoded that are not like the ones before,
 * and t->decoded and t->added are 0 before the first call. Returns 1 at the end of the input; 0: as spe_tally, and to
 * be called again with the same. */
SPE_EXPORT int spe_add_span(const uint8_t *buf, uint64_t len, struct spe_decoder *d, const struct spe_columns *c,
                            const struct spe_rules *rules, struct spe_groups *g, struct spe_pages *pages,
                            struct spe_tally *t)
{
	struct spe_layout layouts[SPE_LAYOUTS];

	spe_forget_layouts(layouts);
	for (uint64_t others;; t->decoded = spe_decode(buf, len, d, c, &others), t->added = 0) {
		t->added = spe_tally(c, t->added, t->decoded, NULL, rules, g, pages, t);
		if (t->added < t->decoded || !add_slots(buf, len, d, layouts, rules, g, pages, t))
			return 0;
		if (d->position >= len)
			return 1;
	}
}
