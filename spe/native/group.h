/* SPDX-License-Identifier: Apache-2.0 */
/* Pairs of keys, numbered in the order of their first appearance. */
#ifndef SPE_GROUP_H
#define SPE_GROUP_H

#include "packet.h"

/* A slot of a table of open addressing with `slots` slots, a power of two above what it may hold, at most 2^32: a
 * number from 1 on in its low bits, and above them as much of the key's hash as has room, so that a slot of another key
 * seldom costs a look at that key. A free slot is 0. */
static inline uint32_t spe_slot_of(uint32_t number, uint64_t slots, uint64_t hash)
{
	return ((uint32_t)(hash >> 32) & ~(uint32_t)(slots - 1)) | number;
}

/* 0 if the slot is free. */
static inline uint32_t spe_number_in(uint32_t slot, uint64_t slots)
{
	return slot & (uint32_t)(slots - 1);
}

/* The first slot from `at` on that may be of this hash, or is free. */
static inline uint64_t spe_likely_slot(const uint32_t *slot, uint64_t slots, uint64_t at, uint64_t hash)
{
	const uint32_t is_hash = ~(uint32_t)(slots - 1);

	while (slot[at] && (slot[at] ^ (uint32_t)(hash >> 32)) & is_hash)
		at = (at + 1) & (slots - 1);
	return at;
}

struct spe_pair {
	uint64_t first, second;
};

/* Memory is the caller's. */
struct spe_groups {
	uint64_t slots;        /* a power of two, above `capacity`, at most 2^32 */
	uint64_t capacity;     /* groups that fit */
	uint64_t count;        /* groups so far */
	uint32_t *slot;        /* 1 + group */
	struct spe_pair *pair; /* keys by group */
};

/* Keys may be an attacker's, who must not know which of them meet: the table's own address is known to nobody who wrote
 * a file before. */
static inline uint64_t spe_group_hash(const struct spe_groups *g, uint64_t first, uint64_t second)
{
	const uint64_t seed = (uint64_t)(uintptr_t)g->slot;
	const unsigned __int128 product = (unsigned __int128)(first ^ 0x9e3779b97f4a7c15u ^ seed) *
	                                  (second ^ 0xbb67ae8584caa73bu ^ (seed << 32 | seed >> 32));
	const uint64_t hash = (uint64_t)product ^ (uint64_t)(product >> 64);

	return hash ^ hash >> 29;
}

/* 1 + the group of a pair with this hash that is in none of the slots before `at`, a new one if need be; 0 if the table
 * is full. */
static inline uint32_t spe_find_group(struct spe_groups *g, uint64_t at, uint64_t hash, uint64_t first, uint64_t second)
{
	uint32_t found;

	for (;; at = (at + 1) & (g->slots - 1)) {
		at = spe_likely_slot(g->slot, g->slots, at, hash);
		found = spe_number_in(g->slot[at], g->slots);
		if (!found)
			break;
		if (g->pair[found - 1].first == first && g->pair[found - 1].second == second)
			return found;
	}
	if (g->count == g->capacity)
		return 0;
	g->pair[g->count] = (struct spe_pair){ first, second };
	found = (uint32_t)++g->count;
	g->slot[at] = spe_slot_of(found, g->slots, hash);
	return found;
}

#endif
