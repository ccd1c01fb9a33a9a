/* SPDX-License-Identifier: Apache-2.0 */
/* What the time of a record tells: who was switched to, and which of the stages a thread's addresses were in.
 * arm_spe/times.py declares the same structure. */
#ifndef SPE_TIMES_H
#define SPE_TIMES_H

#include "packet.h"

#define SPE_NO_THREAD  (1ull << 32) /* where nothing tells: above every thread's number */
#define SPE_STAGE_BITS 33           /* of a thread's number, below its stage */

struct spe_times {
	/* Ticks of the timer to nanoseconds: of a short counter those bits count that the mask has. */
	uint64_t first_ticks, mask, shift;
	uint64_t lines; /* line i holds from line_ticks[i - 1] up to line_ticks[i]; there is one more */
	const uint64_t *line_ticks, *mult, *zero;
	uint64_t before; /* who ran before the first switch */
	uint64_t switches;
	const uint64_t *switch_ns, *switched_to;
	uint64_t staged;                      /* threads that have stages */
	const uint64_t *staged_thread;        /* ascending */
	const uint64_t *first_turn, *turn_ns; /* when the stages after the first begin; the last ends the list */
	uint64_t line, at, stage;             /* where the last records were, which the next are likely to be in */
	/* The thread that spe_staged_at last looked up, and its stage for so many ticks from those on. */
	uint64_t known_thread, known_ticks, known_span, known_stage;
};

/* How many of some ascending values are not above `value`; `likely` is what it was for another one. */
static inline uint64_t spe_up_to(const uint64_t *values, uint64_t n, uint64_t value, uint64_t likely)
{
	uint64_t first = 0;

	if ((!likely || values[likely - 1] <= value) && (likely == n || value < values[likely]))
		return likely;
	while (first < n) {
		uint64_t middle = first + (n - first) / 2;

		if (values[middle] <= value)
			first = middle + 1;
		else
			n = middle;
	}
	return first;
}

/* Modulo 2^64, as struct perf_event_mmap_page in linux/perf_event.h has it. */
static inline uint64_t spe_time_ns(struct spe_times *t, uint64_t ticks)
{
	ticks = t->first_ticks + ((ticks - t->first_ticks) & t->mask);
	t->line = spe_up_to(t->line_ticks, t->lines, ticks, t->line);
	if (t->shift >= 64)
		return t->zero[t->line];
	return t->zero[t->line] + (ticks >> t->shift) * t->mult[t->line] +
	       ((ticks & ((1ull << t->shift) - 1)) * t->mult[t->line] >> t->shift);
}

/* Who was switched to at a time. */
static inline uint64_t spe_switched_to(struct spe_times *t, uint64_t ns)
{
	t->at = spe_up_to(t->switch_ns, t->switches, ns, t->at);
	return t->at ? t->switched_to[t->at - 1] : t->before;
}

/* A thread with the number of its stage at a time; *end_ns: when it ends, all ones if it does not. */
uint64_t spe_staged(struct spe_times *t, uint64_t thread, uint64_t ns, uint64_t *end_ns);
/* As spe_staged_at, whatever is known. */
uint64_t spe_look_up_stage(struct spe_times *t, uint64_t thread, uint64_t ticks);

/* A thread with the number of its stage at some ticks of the timer. */
static inline uint64_t spe_staged_at(struct spe_times *t, uint64_t thread, uint64_t ticks)
{
	if (thread == t->known_thread && ticks - t->known_ticks < t->known_span)
		return t->known_stage;
	return spe_look_up_stage(t, thread, ticks);
}

#endif
