/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up entries of branch stacks that differ in nothing a capture keeps: event, process, interval, both addresses and
 * what kind of branch it was. */
#include "perf_records.h"

#include <stddef.h>

#include "hash.h"
#include "perf_intervals.h"

/* The bits of struct perf_branch_entry in linux/perf_event.h, as decode/perf/layout.py names them. */
#define MISPREDICTED (1ULL << 0)
#define PREDICTED    (1ULL << 1)
#define CYCLES_SHIFT 4
#define CYCLES_MAX   0xffffULL
#define KIND         (((1ULL << 33) - 1) & ~(MISPREDICTED | PREDICTED | CYCLES_MAX << CYCLES_SHIFT))

/* What the entries of one sample share. */
struct stack_context {
	uint64_t sample, end_ns;
	uint32_t event, pid;
};

/* The row of the entry, made where there is none; NULL: the table is full. */
static struct perf_branch_sum *find_row(struct perf_branch_sums *t, const struct stack_context *of,
                                        const struct perf_branch_row *b)
{
	const uint64_t kind = b->flags & KIND;
	uint64_t hash = hash_pair(t->seed, of->end_ns, (uint64_t)of->event << 32 | of->pid, t->seed);
	hash = hash_end(hash_pair(hash_pair(hash, b->from, b->to, t->seed), kind, 0, t->seed));
	uint64_t slot = hash & t->slot_mask;
	for (uint64_t entry; (entry = t->slots[slot]) != 0; slot = (slot + 1) & t->slot_mask) {
		struct perf_branch_sum *row = &t->rows[(uint32_t)entry - 1];
		if (entry >> 32 == hash && row->from == b->from && row->to == b->to && row->kind == kind &&
		    row->time_ns == of->end_ns && row->event == of->event && row->pid == of->pid)
			return row;
	}
	if (t->count >= t->capacity)
		return NULL;
	t->rows[t->count] = (struct perf_branch_sum){ .time_ns = of->end_ns,
		                                      .from = b->from,
		                                      .to = b->to,
		                                      .kind = kind,
		                                      .last_sample = UINT64_MAX,
		                                      .event = of->event,
		                                      .pid = of->pid };
	t->slots[slot] = hash << 32 | (t->count + 1);
	return &t->rows[t->count++];
}

/* Add entries from number `first` on; returns the first there was no room for, or `entries`. Their samples are in `s`.
 */
EXPORT uint64_t tdprof_perf_sum_branches(struct perf_branch_sums *t, const struct perf_samples *s,
                                         const struct perf_branch_row *branches, uint64_t entries, uint64_t first)
{
	struct span span = { .known = false };
	struct stack_context of = { .sample = UINT64_MAX };
	for (uint64_t i = first; i < entries; i++) {
		const struct perf_branch_row *b = &branches[i];
		if (b->sample != of.sample) {
			of = (struct stack_context){ .sample = b->sample,
				                     .pid = s->pid[b->sample],
				                     .event = event_number(&t->intervals, s->event[b->sample]) };
			if (of.event != NO_EVENT)
				of.end_ns = interval_end(&t->intervals, of.pid, s->time_ns[b->sample], &span);
		}
		if (of.event == NO_EVENT) {
			t->unknown_events += s->event[b->sample] >= t->intervals.events;
			continue;
		}
		struct perf_branch_sum *row = find_row(t, &of, b);
		if (row == NULL)
			return i;
		const uint64_t prediction = b->flags & (MISPREDICTED | PREDICTED);
		const uint64_t cycles = b->flags >> CYCLES_SHIFT & CYCLES_MAX;
		row->count++;
		row->stacks += row->last_sample != t->samples + b->sample;
		row->last_sample = t->samples + b->sample;
		row->mispredicted += prediction == MISPREDICTED;
		row->predicted += prediction == PREDICTED;
		row->cycles += cycles;
		row->with_cycles += cycles != 0;
		row->cycles_at_limit += cycles == CYCLES_MAX;
	}
	t->samples += s->rows;
	return entries;
}
