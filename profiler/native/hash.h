/* SPDX-License-Identifier: Apache-2.0 */
/* Hashing of whole words for the open-addressed tables: a slot holds the hash above, a row number plus one below. */
#ifndef TDPROF_HASH_H
#define TDPROF_HASH_H

#include <stdint.h>

/* Odd constants with a random-looking bit pattern: the fractions of sqrt(2) and sqrt(3). */
#define HASH_K1 0x6a09e667f3bcc909ULL
#define HASH_K2 0xbb67ae8584caa73bULL

static inline uint64_t fold_multiply(uint64_t a, uint64_t b)
{
	const unsigned __int128 product = (unsigned __int128)a * b;
	return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Where a key's search of an open-addressed table begins. The keys may be an attacker's, who must not know which of
 * them meet; the table's own address is what nobody knows who wrote a file before. */
static inline uint64_t hash_home(uint64_t key, const void *table)
{
	return fold_multiply(key ^ HASH_K2 ^ (uint64_t)(uintptr_t)table, HASH_K1);
}

/* One step over two words. */
static inline uint64_t hash_pair(uint64_t hash, uint64_t first, uint64_t second, uint64_t seed)
{
	return fold_multiply(first ^ HASH_K1 ^ hash, second ^ HASH_K2 ^ seed);
}

/* The 32 bits that a slot keeps. */
static inline uint64_t hash_end(uint64_t hash)
{
	return fold_multiply(hash ^ HASH_K2, HASH_K1) >> 32;
}

/* The first slot from `from` on that may be of a key with this hash, or is free. */
static inline uint64_t hash_slot(const uint64_t *slots, uint64_t mask, uint64_t from, uint64_t hash)
{
	uint64_t slot = from & mask;
	while (slots[slot] != 0 && slots[slot] >> 32 != hash)
		slot = (slot + 1) & mask;
	return slot;
}

/* Move the entries of a smaller table into the zeroed slots of a larger one, of `mask` + 1. */
static inline void hash_move(uint64_t *slots, uint64_t mask, const uint64_t *old, uint64_t old_count)
{
	for (uint64_t i = 0; i < old_count; i++) {
		if (old[i] == 0)
			continue;
		uint64_t slot = (old[i] >> 32) & mask;
		while (slots[slot] != 0)
			slot = (slot + 1) & mask;
		slots[slot] = old[i];
	}
}

#endif
