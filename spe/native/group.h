/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of keys, numbered in the order of their first appearance. */
#ifndef SPE_GROUP_H
#define SPE_GROUP_H

#include "packet.h"

#define SPE_UNPLACED (-2) /* row of a group that the caller has not placed yet */

struct spe_pair {
	uint64_t first, second;
};

/* All that a search needs, so that it touches one cache line. */
struct spe_slot {
	struct spe_pair pair;
	uint32_t group; /* 0: free; else 1 + group */
	int32_t row;    /* of a report, for tally.c */
};

/* Open addressing; memory is the caller's. */
struct spe_groups {
	uint64_t slots;    /* a power of two, above `capacity` */
	uint64_t capacity; /* groups that fit */
	uint64_t count;    /* groups so far */
	struct spe_slot *slot;
	struct spe_pair *pair; /* keys by group */
	uint64_t *hits;        /* rows by group */
};

/* Keys may be an attacker's, who must not know which of them meet: the table's own address is known to nobody who wrote
 * a file before. */
static inline uint64_t spe_group_slot(const struct spe_groups *g, uint64_t first, uint64_t second)
{
	const uint64_t seed = (uint64_t)(uintptr_t)g->slot;
	const unsigned __int128 product = (unsigned __int128)(first ^ 0x9e3779b97f4a7c15u ^ seed) *
	                                  (second ^ 0xbb67ae8584caa73bu ^ (seed << 32 | seed >> 32));
	const uint64_t hash = (uint64_t)product ^ (uint64_t)(product >> 64);

	return (hash ^ hash >> 29) & (g->slots - 1);
}

/* The slot of a pair's group, a new one if need be; NULL if the table is full. `at` is spe_group_slot of the pair. */
static inline struct spe_slot *spe_find_group(struct spe_groups *g, uint64_t at, uint64_t first, uint64_t second)
{
	struct spe_slot *slot;

	while ((slot = &g->slot[at])->group && (slot->pair.first != first || slot->pair.second != second))
		at = (at + 1) & (g->slots - 1);
	if (slot->group)
		return slot;
	if (g->count == g->capacity)
		return NULL;
	g->pair[g->count] = (struct spe_pair){ first, second };
	g->hits[g->count] = 0;
	*slot = (struct spe_slot){ { first, second }, (uint32_t)++g->count, SPE_UNPLACED };
	return slot;
}

#endif
