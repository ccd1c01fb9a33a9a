// SPDX-License-Identifier: Apache-2.0
/* libFuzzer target: arbitrary bytes as a span of AUX data, decoded in batches of two sizes, dumped, and added up in
 * tables with little room. Checks that all give the same records, that every byte and every record is accounted for,
 * and that each call makes progress. Run by tools/fuzz/spe. */
#include <assert.h>
#include <stdlib.h>

#include "tally.h"

#define LARGE  512
#define SMALL  3
#define OTHERS (SPE_MAX_RECORD / 2)

/* struct spe_dumper of text.c */
struct spe_dumper {
	uint64_t position, piece_end, is_unparsed;
	struct spe_sync sync;
};

uint64_t spe_dump(const uint8_t *, uint64_t, uint64_t, struct spe_dumper *, char *, uint64_t);
int spe_add_span(const uint8_t *, uint64_t, struct spe_decoder *, const struct spe_columns *, const struct spe_rules *,
                 struct spe_groups *, struct spe_pages *, struct spe_tally *);
int spe_fold(struct spe_pages *, struct spe_tally *);
void spe_index_pages(struct spe_pages *, uint64_t);
uint64_t spe_group(const uint64_t *, const uint64_t *, uint64_t, struct spe_groups *, uint32_t *);
void spe_validity(const uint32_t *, uint64_t, uint32_t *const[SPE_END]);

/* Columns in blocks of their own, so that the sanitizer sees a step beyond any of them. */
static struct spe_columns allocate(uint64_t rows)
{
	static const uint8_t widths[] = { 8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1 };
	struct spe_columns c = { .capacity = rows, .other_capacity = OTHERS };
	void **pointer = (void **)&c.offset;

	for (size_t i = 0; i < sizeof widths; i++)
		pointer[i] = malloc(rows * widths[i]);
	c.other_record = malloc(OTHERS * sizeof *c.other_record);
	c.other_header = malloc(OTHERS * sizeof *c.other_header);
	c.other_payload = malloc(OTHERS * sizeof *c.other_payload);
	return c;
}

static void release(struct spe_columns *c)
{
	for (void **pointer = (void **)&c->offset; pointer <= (void **)&c->other_payload; pointer++)
		free(*pointer);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
	return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

static uint64_t decode_all(const uint8_t *data, uint64_t size, uint64_t rows, struct spe_decoder *d)
{
	struct spe_columns c = allocate(rows);
	uint64_t hash = 0, other_hash = 0, last_end = 0;

	while (d->position < size) {
		uint64_t before = d->position, others, n = spe_decode(data, size, d, &c, &others);

		assert(n <= rows && others <= OTHERS && d->position <= size);
		assert(d->position > before);
		for (uint64_t i = 0; i < n; i++) {
			assert(c.offset[i] >= last_end && c.offset[i] < d->position);
			last_end = c.offset[i] + 1;
			assert(c.present[i] & 1u << SPE_PC);
			hash = mix(mix(mix(hash, c.offset[i]), c.present[i]), c.pc[i]);
			hash = mix(mix(mix(hash, c.events[i]), c.va[i]), c.branch_target[i]);
			hash = mix(mix(mix(hash, c.timestamp[i]), c.total_latency[i]), c.data_source[i]);
			hash = mix(mix(mix(hash, c.issue_latency[i]), c.translation_latency[i]),
			           c.alt_issue_latency[i]);
			hash = mix(mix(mix(hash, c.op[i]), c.op_class[i]), c.pc_top[i]);
			hash = mix(mix(mix(hash, c.pa[i]), c.context_el1[i]), c.context_el2[i]);
		}
		for (uint64_t i = 0; i < others; i++) {
			assert(c.other_record[i] < n);
			other_hash = mix(mix(other_hash, c.other_header[i]), c.other_payload[i]);
		}
	}
	assert(d->record_bytes + d->padding_bytes + d->damaged_bytes + d->open_bytes == size);
	release(&c);
	return mix(hash, other_hash);
}

#define NEIGHBOURHOODS (3 * SPE_BLOCK) /* little more than a block */
#define GROUPS         (NEIGHBOURHOODS * SPE_NEIGHBOURS)
#define MOST_GROUPS    (2 * SPE_BLOCK)
#define PLACES         5

/* Room for a block. */
static void grow_counters(struct spe_pages *pages, struct spe_tally *t)
{
	uint64_t count = pages->count;

	pages->capacity = pages->capacity * 2 + SPE_LATENCIES * SPE_BLOCK;
	while (pages->slots <= 2 * pages->capacity)
		pages->slots *= 2;
	free(pages->slot);
	pages->slot = calloc(pages->slots, sizeof *pages->slot);
	pages->page = realloc(pages->page, pages->capacity * sizeof *pages->page);
	spe_index_pages(pages, count);
	assert(pages->count == count);
	t->wide_capacity = t->wide_count + SPE_BLOCK;
	t->wide = realloc(t->wide, t->wide_capacity * sizeof *t->wide);
}

static void make_others(struct spe_groups *g, struct spe_tally *t)
{
	uint64_t rest = UINT64_MAX - 1;
	uint32_t group;

	assert(spe_group(&rest, &rest, 1, g, &group) == 1);
	t->others = (int64_t)group * SPE_NEIGHBOURS;
	assert(t->row_of[t->others] == SPE_UNMET);
	t->row_of[t->others] = SPE_NO_ROW;
}

/* Places the groups that were met, and adds what waited for it. */
static void settle(struct spe_pages *pages, struct spe_tally *t)
{
	for (uint64_t i = 0; i < t->met_count; i++) {
		assert(t->row_of[t->met[i].group] == SPE_UNPLACED);
		t->row_of[t->met[i].group] = SPE_NO_ROW + (int32_t)(t->met[i].first % (PLACES + 1));
	}
	while (!spe_fold(pages, t))
		grow_counters(pages, t);
	assert(!t->waiting_count && !t->met_count);
}

/* Every record is in a row, or of a group without one; every latency of a retired one in one counter. */
static void tally_all(const uint8_t *data, uint64_t size, const struct spe_rules *rules, uint64_t records)
{
	struct spe_columns c = allocate(LARGE);
	struct spe_decoder d = { 0 };
	struct spe_groups g = { .slots = 1024, .capacity = NEIGHBOURHOODS };
	struct spe_pages pages = { .slots = 1 };
	struct spe_tally t = { .waiting_capacity = SPE_BLOCK, .most_groups = MOST_GROUPS, .others = -1 };
	uint64_t in_rows = 0, latencies = 0, counters = 0, retired = 0, without_row = 0;

	g.slot = calloc(g.slots, sizeof *g.slot);
	g.pair = calloc(NEIGHBOURHOODS, sizeof *g.pair);
	t.row_of = calloc(GROUPS, sizeof *t.row_of);
	t.rows = calloc(PLACES, sizeof *t.rows);
	t.wide_of = calloc(PLACES, sizeof *t.wide_of);
	t.waiting = malloc(SPE_BLOCK * sizeof *t.waiting);
	t.met = malloc(SPE_BLOCK * sizeof *t.met);
	grow_counters(&pages, &t);
	/* What a group without a row has is told only by looking at the records apart. */
	while (d.position < size) {
		uint64_t others, n = spe_decode(data, size, &d, &c, &others);

		for (uint64_t i = 0; i < n; i++)
			without_row += c.pc[i] % (PLACES + 1) == 0;
	}
	d = (struct spe_decoder){ 0 };
	c.is_lean = 1;
	while (!spe_add_span(data, size, &d, &c, rules, &g, &pages, &t)) {
		if (t.others < 0 && (MOST_GROUPS - t.groups < SPE_BLOCK || NEIGHBOURHOODS - g.count <= SPE_BLOCK))
			make_others(&g, &t);
		grow_counters(&pages, &t);
		settle(&pages, &t);
	}
	assert(d.records == records && t.groups <= MOST_GROUPS);
	settle(&pages, &t);
	for (int row = 0; row < PLACES; row++) {
		uint32_t count[sizeof(struct spe_row)];

		for (unsigned i = 0; i < sizeof count / sizeof *count; i++) {
			count[i] = ((const uint8_t *)&t.rows[row])[i];
			count[i] += t.wide_of[row] ? t.wide[t.wide_of[row] - 1].count[i] : 0;
			counters += i < SPE_LANES ? 0 : count[i];
		}
		in_rows += count[LANE_OPERATIONS];
		retired += count[LANE_RETIRED];
		for (int kind = 0; kind < SPE_LATENCIES; kind++)
			latencies += count[LANE_TOTAL_COUNT + kind];
	}
	for (uint64_t page = 0; page < pages.count; page++)
		for (unsigned i = 0; i < SPE_PAGE; i++)
			counters += pages.page[page].hits[i];
	assert(retired <= in_rows && in_rows <= records && counters == latencies);
	assert(rules->key != SPE_KEY_CODE || t.others >= 0 || in_rows + without_row == records);
	free(g.slot);
	free(g.pair);
	free(t.row_of);
	free(t.rows);
	free(t.wide_of);
	free(t.wide);
	free(t.waiting);
	free(t.met);
	free(pages.slot);
	free(pages.page);
	release(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
	uint8_t *data = malloc(size ? size : 1);
	char *text = malloc(4096);
	struct spe_decoder large = { 0 }, small = { 0 };
	struct spe_dumper dumper = { 0 };

	memcpy(data, input, size);
	assert(decode_all(data, size, LARGE, &large) == decode_all(data, size, SMALL, &small));
	assert(!memcmp(&large, &small, sizeof large));
	while (dumper.position < size) {
		uint64_t before = dumper.position, bytes = spe_dump(data, size, 0, &dumper, text, 4096);

		assert(bytes <= 4096 && dumper.position > before && dumper.position <= size);
	}
	for (uint32_t key = SPE_KEY_CODE; key <= SPE_KEY_SOURCE; key++) {
		static struct spe_rules rules = { .shift = 6, .first_source = 11, .known_sources = 256 };
		static const uint64_t line[] = { 5, 77 }, ticks = 1 << 20, switch_ns[] = { 100, 1 << 20, 1ull << 40 };
		static const uint64_t thread[] = { 7, SPE_NO_THREAD, 8, 4242 }, turn[] = { 0, 1, 3 };
		struct spe_times times = {
			.mask = size % 2 ? UINT64_MAX : 0xffff,
			.shift = size % 66,
			.lines = 1,
			.line_ticks = &ticks,
			.mult = line,
			.zero = line,
			.before = 7,
			.switches = 3,
			.switch_ns = switch_ns,
			.switched_to = thread,
			.staged = 2,
			.staged_thread = &thread[2],
			.first_turn = turn,
			.turn_ns = switch_ns,
		};

		rules.key = key;
		rules.times = size % 3 ? &times : NULL;
		for (uint32_t i = 0; i < 1024; i++) {
			rules.lanes[i] = i << 2 | i << 17;
			rules.source_of_events[i] = i % SPE_SOURCES;
			rules.lanes[i] |= 1u << LANE_RETIRED;
		}
		for (uint32_t i = 0; i < SPE_SOURCES + SPE_EVENT_INDEX; i++)
			rules.source_lanes[i] = 1u << (LANE_LOADS_BY_LEVEL + i % 8) | (i >> 6 & 1) << LANE_SNOOPED;
		tally_all(data, size, &rules, large.records);
	}
	free(text);
	free(data);
	return 0;
}
