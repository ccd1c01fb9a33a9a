/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the perf record decoder: the first bytes choose events and byte order, the rest are records.
 *
 * Every column starts at one row and grows to exactly what is asked for, so that the sanitizer sees the first byte
 * written or read too far. What comes out is checked, too. Run by tools/fuzz/perf-data. */
#include "perf_records.h"

#include <stdlib.h>
#include <string.h>

int tdprof_perf_decode(struct perf_decoder *d, const uint8_t *data, uint64_t bytes, uint64_t offset, int final,
                       uint64_t *consumed);
void tdprof_perf_rehash(struct perf_chains *chains, const uint64_t *old, uint64_t old_count);
uint64_t tdprof_perf_group(struct perf_groups *g, const struct perf_samples *s, uint64_t first);
void tdprof_perf_rehash_groups(struct perf_groups *g, const uint64_t *old, uint64_t old_count);
uint64_t tdprof_perf_sum_branches(struct perf_branch_sums *t, const struct perf_samples *s,
                                  const struct perf_branch_row *branches, uint64_t entries, uint64_t first);

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			__builtin_trap();                                                                              \
	} while (0)

static void *grown(void *old, uint64_t count, uint64_t size)
{
	void *larger = realloc(old, count * size);
	CHECK(larger != NULL);
	return larger;
}

static void grow_samples(struct perf_samples *s)
{
	s->capacity = s->capacity * 2 + 1;
	s->time_ns = grown(s->time_ns, s->capacity, 8);
	s->ip = grown(s->ip, s->capacity, 8);
	s->period = grown(s->period, s->capacity, 8);
	s->cgroup = grown(s->cgroup, s->capacity, 8);
	s->pid = grown(s->pid, s->capacity, 4);
	s->tid = grown(s->tid, s->capacity, 4);
	s->cpu = grown(s->cpu, s->capacity, 4);
	s->event = grown(s->event, s->capacity, 4);
	s->user_chain = grown(s->user_chain, s->capacity, 4);
	s->kernel_chain = grown(s->kernel_chain, s->capacity, 4);
	s->misc = grown(s->misc, s->capacity, 2);
}

static void make_room(struct perf_decoder *d, int stop)
{
	switch (stop) {
	case STOP_SAMPLES: grow_samples(&d->samples); break;
	case STOP_READS:
		d->read_capacity = d->read_capacity * 2 + 1;
		d->reads = grown(d->reads, d->read_capacity, sizeof(*d->reads));
		break;
	case STOP_BRANCHES:
		d->branch_capacity = d->branch_capacity * 2 + 1;
		d->branches = grown(d->branches, d->branch_capacity, sizeof(*d->branches));
		break;
	case STOP_SIDE_BAND:
		d->side_band_capacity = d->side_band_capacity * 2 + 1;
		d->side_band = grown(d->side_band, d->side_band_capacity, sizeof(*d->side_band));
		break;
	case STOP_NAMES:
		d->name_capacity = d->name_capacity * 2 + 1;
		d->names = grown(d->names, d->name_capacity, 1);
		break;
	case STOP_FRAMES:
		d->chains.frame_capacity = d->chains.frame_capacity * 2 + 1;
		d->chains.frames = grown(d->chains.frames, d->chains.frame_capacity, 8);
		break;
	case STOP_CHAINS: {
		struct perf_chains *chains = &d->chains;
		uint64_t *old = chains->slots;
		const uint64_t old_count = chains->slot_mask + 1;
		chains->slot_mask = old_count * 2 - 1;
		chains->slots = calloc(old_count * 2, 8);
		chains->capacity = chains->capacity * 2 + 1;
		chains->offsets = grown(chains->offsets, chains->capacity + 1, 8);
		tdprof_perf_rehash(chains, old, old_count);
		free(old);
		break;
	}
	default: CHECK(0);
	}
}

static void check_results(const struct perf_decoder *d, uint64_t bytes)
{
	const struct perf_samples *s = &d->samples;
	for (uint64_t i = 0; i < s->rows; i++) {
		CHECK(s->event[i] == NO_EVENT || s->event[i] < d->layout_count);
		CHECK(s->user_chain[i] >= NO_CHAIN && s->user_chain[i] < (int64_t)d->chains.rows);
		CHECK(s->kernel_chain[i] >= NO_CHAIN && s->kernel_chain[i] < (int64_t)d->chains.rows);
	}
	for (uint64_t i = 0; i < d->side_band_rows; i++) {
		CHECK(d->side_band[i].name_offset + d->side_band[i].name_bytes <= d->name_bytes);
		CHECK(d->side_band[i].build_id_bytes <= sizeof(d->side_band[i].build_id));
	}
	for (uint64_t i = 0; i < d->chains.rows; i++)
		CHECK(d->chains.offsets[i] < d->chains.offsets[i + 1]);
	for (uint64_t i = 0; i < d->branch_rows; i++)
		CHECK(d->branches[i].sample < s->rows);
	CHECK(d->losses.malformed_bytes <= bytes);
}

static const uint32_t events[] = { 0, NO_EVENT, 1 }, pids[] = { 0, 1, 1, 7 };
static const uint64_t times[] = { 5, 1, 99, UINT64_MAX };
static const struct perf_intervals intervals = { .event_number = events,
	                                         .events = 3,
	                                         .interval_ns = 1000000000,
	                                         .change_pid = pids,
	                                         .change_ns = times,
	                                         .changes = 4 };

static void group_samples(const struct perf_decoder *d)
{
	struct perf_group rows[8];
	uint64_t few[8] = { 0 }, slots[16] = { 0 }, first = 0;
	struct perf_groups groups = {
		.rows = rows, .slots = few, .slot_mask = 7, .capacity = 4, .seed = 3, .intervals = intervals
	};
	while ((first = tdprof_perf_group(&groups, &d->samples, first)) < d->samples.rows) {
		CHECK(groups.count == groups.capacity);
		if (groups.capacity == 4) {
			groups.slots = slots;
			groups.slot_mask = 15;
			groups.capacity = 8;
			tdprof_perf_rehash_groups(&groups, few, 8);
			continue;
		}
		groups.count = 0;
		memset(slots, 0, sizeof(slots));
	}
}

/* Every entry is counted once, or left out with its event. */
static void sum_branches(const struct perf_decoder *d)
{
	struct perf_branch_sum rows[4];
	uint64_t slots[8] = { 0 }, first = 0, counted = 0, wanted = 0;
	struct perf_branch_sums sums = {
		.rows = rows, .slots = slots, .slot_mask = 7, .capacity = 4, .seed = 3, .intervals = intervals
	};
	for (uint64_t i = 0; i < d->branch_rows; i++) {
		const uint32_t event = d->samples.event[d->branches[i].sample];
		wanted += event < 3 && events[event] != NO_EVENT;
	}
	do {
		first = tdprof_perf_sum_branches(&sums, &d->samples, d->branches, d->branch_rows, first);
		for (uint64_t i = 0; i < sums.count; i++) {
			CHECK(rows[i].stacks >= 1 && rows[i].stacks <= rows[i].count);
			CHECK(rows[i].mispredicted + rows[i].predicted <= rows[i].count);
			CHECK(rows[i].cycles_at_limit <= rows[i].with_cycles && rows[i].with_cycles <= rows[i].count);
			counted += rows[i].count;
		}
		CHECK(first == d->branch_rows || sums.count == 4);
		sums.count = 0;
		memset(slots, 0, sizeof(slots));
	} while (first < d->branch_rows);
	CHECK(counted == wanted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	struct perf_layout layouts[3] = { 0 };
	uint8_t head[32];
	if (bytes < sizeof(head))
		return 0;
	memcpy(head, data, sizeof(head));
	data += sizeof(head);
	bytes -= sizeof(head);
	const uint32_t layout_count = 1 + head[0] % 3;
	for (uint32_t i = 0; i < layout_count; i++) {
		const uint8_t *h = head + 2 + i * 8;
		uint32_t sample_type;
		memcpy(&sample_type, h, sizeof(sample_type));
		layouts[i] = (struct perf_layout){
			.sample_type = (sample_type & 0x1ffffff) | 1 << 16,
			.read_format = h[4] & 31,
			.branch_sample_type = (uint64_t)(h[4] >> 5) << 17,
			.regs_user_count = h[5] & 63,
			.regs_intr_count = h[6] & 63,
			.user_pc = (int32_t)(h[7] & 63) - 1,
			.sample_id_all = h[7] >> 7,
		};
	}
	struct perf_id ids[8];
	for (uint32_t i = 0; i < 8; i++)
		ids[i] = (struct perf_id){ .event = NO_EVENT };
	for (uint64_t id = 1; id <= layout_count; id++) {
		uint64_t slot = perf_id_slot(ids, id) & 7;
		while (ids[slot].event != NO_EVENT)
			slot = (slot + 1) & 7;
		ids[slot] = (struct perf_id){ id, (uint32_t)id - 1, 0 };
	}
	struct perf_decoder d = {
		.layouts = layouts,
		.ids = ids,
		.id_mask = 7,
		.layout_count = layout_count,
		.swap = head[1] & 1,
		.sample_id_word = 0,
		.trailer_id_word = head[1] & 2 ? -1 : NO_WORD,
		.mixed_layouts = layout_count > 1,
		.keep_branches = head[1] >> 2 & 1,
		.skip_samples = (head[1] & 0xf8) == 0xf8,
		.chains = { .slots = calloc(2, 8), .slot_mask = 1, .offsets = calloc(1, 8), .seed = 12345 },
	};
	/* The data is copied so that it ends where the sanitizer's red zone begins, and fed in two pieces; only the
	 * perf tool's compressed records are not aligned. */
	const uint64_t shift = head[30] & 7;
	uint8_t *const block = malloc(shift + bytes + (bytes == 0)), *const copy = block + shift;
	memcpy(copy, data, bytes);
	uint64_t at = 0, end = bytes * head[31] / 255;
	for (int final = 0; final <= 1; final++, end = bytes) {
		while (end > at) {
			uint64_t consumed = 0;
			const int stop = tdprof_perf_decode(&d, copy + at, end - at, at, final, &consumed);
			CHECK(consumed <= end - at);
			at += consumed;
			if (stop == STOP_END)
				break;
			if (stop == STOP_TOOL_RECORD)
				at += 8; /* the caller's to deal with; at least a header is there */
			else
				make_room(&d, stop);
			CHECK(at <= end);
		}
	}
	check_results(&d, bytes);
	group_samples(&d);
	sum_branches(&d);
	free(block);
	void *owned[] = {
		d.samples.time_ns, d.samples.ip,     d.samples.period, d.samples.cgroup,     d.samples.pid,
		d.samples.tid,     d.samples.cpu,    d.samples.event,  d.samples.user_chain, d.samples.kernel_chain,
		d.samples.misc,    d.reads,          d.branches,       d.side_band,          d.names,
		d.chains.slots,    d.chains.offsets, d.chains.frames
	};
	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
	return 0;
}
