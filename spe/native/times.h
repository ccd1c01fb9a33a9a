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
static inline uint64_t spe_staged(struct spe_times *t, uint64_t thread, uint64_t ns, uint64_t *end_ns)
{
	uint64_t first, turns, stage;

	*end_ns = UINT64_MAX;
	if (!t->staged)
		return thread;
	t->stage = spe_up_to(t->staged_thread, t->staged, thread, t->stage);
	if (!t->stage || t->staged_thread[t->stage - 1] != thread)
		return thread;
	first = t->first_turn[t->stage - 1];
	turns = t->first_turn[t->stage] - first;
	stage = spe_up_to(t->turn_ns + first, turns, ns, 0);
	if (stage < turns)
		*end_ns = t->turn_ns[first + stage];
	return thread | stage << SPE_STAGE_BITS;
}

/* For how many ticks from these on, which are `ns`, the time is certainly before another: on one line, along which it
 * rises, without an overflow. It may be for more; 0 where a file says what no timer does. */
static inline uint64_t spe_ticks_before(const struct spe_times *t, uint64_t ticks, uint64_t ns, uint64_t end_ns)
{
	const uint64_t masked = (ticks - t->first_ticks) & t->mask, at = t->first_ticks + masked;
	const uint64_t mult = t->mult[t->line];
	uint64_t span = t->mask - masked < UINT64_MAX - at ? t->mask - masked : UINT64_MAX - at;
	unsigned __int128 rises;

	if (t->shift > 32 || !mult || mult >> 32 || t->mask & (t->mask + 1) || end_ns - ns < 2)
		return 0;
	if (t->line < t->lines && t->line_ticks[t->line] - at < span)
		span = t->line_ticks[t->line] - at;
	/* Rounded down twice, it rises by one more than these ticks' share at most. */
	rises = ((unsigned __int128)(end_ns - ns - 2) << t->shift) / mult;
	return rises < span ? (uint64_t)rises : span;
}

/* A thread with the number of its stage at some ticks of the timer. */
static inline uint64_t spe_staged_at(struct spe_times *t, uint64_t thread, uint64_t ticks)
{
	uint64_t ns, end_ns;

	if (thread == t->known_thread && ticks - t->known_ticks < t->known_span)
		return t->known_stage;
	ns = spe_time_ns(t, ticks);
	t->known_stage = spe_staged(t, thread, ns, &end_ns);
	t->known_thread = thread;
	t->known_ticks = ticks;
	t->known_span = spe_ticks_before(t, ticks, ns, end_ns);
	return t->known_stage;
}

#endif
