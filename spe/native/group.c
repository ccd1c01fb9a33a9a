/* SPDX-License-Identifier: Apache-2.0 */
/* Numbering pairs of keys. */
#include "group.h"

/* Rows ahead whose memory is asked for: tables are larger than the caches, and rows fall anywhere in them. */
#define AHEAD 12

/* The group of each row; new pairs become new groups. Returns the rows done: fewer than n if the table is full. */
SPE_EXPORT uint64_t spe_group(const uint64_t *first, const uint64_t *second, uint64_t n, struct spe_groups *g,
                              uint32_t *group)
{
	for (uint64_t i = 0; i < n; i++) {
		uint64_t hash = spe_group_hash(g, first[i], second[i]);
		uint32_t found;

		if (i + AHEAD < n)
			__builtin_prefetch(
				&g->slot[spe_group_hash(g, first[i + AHEAD], second[i + AHEAD]) & (g->slots - 1)]);
		found = spe_find_group(g, hash & (g->slots - 1), hash, first[i], second[i]);
		if (!found)
			return i;
		group[i] = found - 1;
	}
	return n;
}
