/* SPDX-License-Identifier: Apache-2.0 */
/* The stage of a thread's addresses, where it is not the one that was known. */
#include "times.h"

uint64_t spe_staged(struct spe_times *t, uint64_t thread, uint64_t ns, uint64_t *end_ns)
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
static uint64_t ticks_before(const struct spe_times *t, uint64_t ticks, uint64_t ns, uint64_t end_ns)
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

uint64_t spe_look_up_stage(struct spe_times *t, uint64_t thread, uint64_t ticks)
{
	uint64_t ns = spe_time_ns(t, ticks), end_ns;

	t->known_stage = spe_staged(t, thread, ns, &end_ns);
	t->known_thread = thread;
	t->known_ticks = ticks;
	t->known_span = ticks_before(t, ticks, ns, end_ns);
	return t->known_stage;
}
