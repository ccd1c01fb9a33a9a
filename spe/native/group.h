/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of keys, numbered in the order of their first appearance. */
#ifndef SPE_GROUP_H
#define SPE_GROUP_H

#include "packet.h"

struct spe_pair {
	uint64_t first, second;
};

/* Open addressing; memory is the caller's. */
struct spe_groups {
	uint64_t slots;        /* a power of two, above `capacity` */
	uint64_t capacity;     /* groups that fit */
	uint64_t count;        /* groups so far */
	uint32_t *slot;        /* 0: free; else 1 + group */
	struct spe_pair *pair; /* keys by group */
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

/* 1 + the group of a pair whose slot is `at`, a new one if need be; 0 if the table is full. */
static inline uint32_t spe_find_group(struct spe_groups *g, uint64_t at, uint64_t first, uint64_t second)
{
	uint32_t found;

	while ((found = g->slot[at]) && (g->pair[found - 1].first != first || g->pair[found - 1].second != second))
		at = (at + 1) & (g->slots - 1);
	if (found)
		return found;
	if (g->count == g->capacity)
		return 0;
	g->pair[g->count] = (struct spe_pair){ first, second };
	return g->slot[at] = (uint32_t)++g->count;
}

#endif
