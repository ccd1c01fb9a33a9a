/* SPDX-License-Identifier: Apache-2.0 */
/* A table of distinct call chains: equal chains get one number, so memory follows the distinct ones only. */
#include "perf_records.h"

#include <stdbool.h>
#include <string.h>

#include "hash.h"

#define SHORT_CHAIN  8 /* words, up to which a call of memcmp() costs more than it saves */
#define WORDS_A_LINE 8 /* of a cache */

/* 32 bits; the seed is the caller's secret, so that no file can be made to collide on purpose. */
uint64_t perf_hash(const uint64_t *words, uint64_t count, uint64_t seed)
{
	uint64_t hash = seed ^ count, i = 0;
	for (; i + 1 < count; i += 2)
		hash = hash_pair(hash, words[i], words[i + 1], seed);
	if (i < count)
		hash = hash_pair(hash, words[i], 0, seed);
	return hash_end(hash);
}

static inline bool is_equal(const uint64_t *a, const uint64_t *b, uint64_t count)
{
	if (count > SHORT_CHAIN)
		return memcmp(a, b, count * sizeof(*a)) == 0;
	uint64_t differs = 0;
	for (uint64_t i = 0; i < count; i++)
		differs |= a[i] ^ b[i];
	return differs == 0;
}

/* Whether so many chains of so many words in all can be added. */
static inline bool has_room(const struct perf_chains *c, uint64_t chains, uint64_t words)
{
	const uint64_t rows = c->rows + chains;
	return rows <= c->capacity && rows <= INT32_MAX && rows * 4 <= (c->slot_mask + 1) * 3 &&
	       words <= c->frame_capacity - c->offsets[c->rows];
}

/* Find or add the chain. Fails with STOP_CHAINS or STOP_FRAMES, having changed nothing. */
static enum perf_stop intern(struct perf_chains *chains, const uint64_t *words, uint64_t count, uint64_t hash,
                             int32_t *chain)
{
	uint64_t slot = hash_slot(chains->slots, chains->slot_mask, hash, hash);
	for (uint64_t entry; (entry = chains->slots[slot]) != 0;
	     slot = hash_slot(chains->slots, chains->slot_mask, slot + 1, hash)) {
		const uint64_t index = (uint32_t)entry - 1;
		const uint64_t start = chains->offsets[index];
		if (chains->offsets[index + 1] - start == count && is_equal(chains->frames + start, words, count)) {
			*chain = (int32_t)index;
			return STOP_END;
		}
	}
	if (!has_room(chains, 1, 0))
		return STOP_CHAINS;
	if (!has_room(chains, 1, count))
		return STOP_FRAMES;
	const uint64_t end = chains->offsets[chains->rows];
	memcpy(chains->frames + end, words, count * sizeof(*words));
	*chain = (int32_t)chains->rows++;
	chains->offsets[chains->rows] = end + count;
	chains->slots[slot] = hash << 32 | (uint32_t)chains->rows;
	return STOP_END;
}

static void finish_oldest(struct perf_chains *chains, struct perf_lookups *l)
{
	const struct perf_lookup *oldest = &l->waiting[l->first];
	const uint64_t *words = oldest->count == 1 ? &oldest->word : oldest->words;
	intern(chains, words, oldest->count, oldest->hash, oldest->chain);
	l->first = (l->first + 1) % PERF_LOOKUPS;
	l->words -= oldest->count;
	l->count--;
}

void perf_finish_lookups(struct perf_chains *chains, struct perf_lookups *l)
{
	while (l->count > 0)
		finish_oldest(chains, l);
}

/* The frames of the chain that a waiting look-up will most likely be found equal to. */
static inline void prefetch_frames(const struct perf_chains *chains, const struct perf_lookup *l)
{
	const uint64_t entry = chains->slots[hash_slot(chains->slots, chains->slot_mask, l->hash, l->hash)];
	if (entry == 0)
		return;
	const uint64_t *frames = chains->frames + chains->offsets[(uint32_t)entry - 1];
	for (uint64_t i = 0; i < l->count && i < 4 * WORDS_A_LINE; i += WORDS_A_LINE)
		__builtin_prefetch(frames + i);
	__builtin_prefetch(frames + l->count - 1);
}

/* Find or add a chain, *chain being set by perf_finish_lookups() at the latest: many chains lie anywhere in more memory
 * than caches hold, and some look-ups at once wait for it once. `stays`: the words stay where they are until then.
 * Fails with STOP_CHAINS or STOP_FRAMES. */
enum perf_stop perf_look_up(struct perf_chains *chains, struct perf_lookups *l, const uint64_t *words, uint64_t count,
                            bool stays, int32_t *chain)
{
	const uint64_t hash = perf_hash(words, count, chains->seed);
	if ((!stays && count > 1) || !has_room(chains, l->count + 1, l->words + count)) {
		perf_finish_lookups(chains, l); /* chains are numbered in the order in which they come */
		return intern(chains, words, count, hash, chain);
	}
	if (l->count == PERF_LOOKUPS)
		finish_oldest(chains, l);
	__builtin_prefetch(&chains->slots[hash & chains->slot_mask]);
	l->waiting[(l->first + l->count) % PERF_LOOKUPS] = (struct perf_lookup){ words, count, words[0], hash, chain };
	l->words += count;
	if (++l->count > PERF_LOOKUPS / 2)
		prefetch_frames(chains, &l->waiting[(l->first + l->count - 1 - PERF_LOOKUPS / 2) % PERF_LOOKUPS]);
	return STOP_END;
}

/* Find or add chains: chain i is words[starts[i] .. starts[i + 1]]. Goes on from `done`; returns how many are done.
 * Where that is not all, *stop says what there is no room for. */
EXPORT uint64_t tdprof_perf_intern(struct perf_chains *chains, const uint64_t *words, const uint64_t *starts,
                                   uint64_t count, uint64_t done, int32_t *numbers, int32_t *stop)
{
	for (*stop = STOP_END; done < count; done++) {
		const uint64_t *chain = words + starts[done], length = starts[done + 1] - starts[done];
		*stop = intern(chains, chain, length, perf_hash(chain, length, chains->seed), &numbers[done]);
		if (*stop != STOP_END)
			break;
	}
	return done;
}

/* Move every entry of `old` (old_count slots) into the new, zeroed slots of `chains`. */
EXPORT void tdprof_perf_rehash(struct perf_chains *chains, const uint64_t *old, uint64_t old_count)
{
	hash_move(chains->slots, chains->slot_mask, old, old_count);
}
