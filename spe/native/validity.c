/* SPDX-License-Identifier: Apache-2.0 */
/* The `present` column, one word a record, into one bitmap a field, as Arrow keeps them. */
#include "packet.h"

/* 32 words of 32 bits, transposed in place: bit i of word k becomes bit k of word i.
 * Recursive block swap, as in Warren, Hacker's Delight, section 7-3. */
static void transpose(uint32_t a[32])
{
	uint32_t mask = 0x0000ffff;

	for (int width = 16; width; width >>= 1, mask ^= mask << width)
		for (int k = 0; k < 32; k = (k + width + 1) & ~width) {
			uint32_t swap = (a[k] >> width ^ a[k + width]) & mask;

			a[k] ^= swap << width;
			a[k + width] ^= swap;
		}
}

/* bitmaps[kind] receives (n + 31) / 32 words, record 0 in the lowest bit; bits from n on are 0. */
SPE_EXPORT void spe_validity(const uint32_t *present, uint64_t n, uint32_t *const bitmaps[SPE_END])
{
	uint32_t block[32];

	for (uint64_t at = 0; at < n; at += 32) {
		uint64_t rows = n - at < 32 ? n - at : 32;

		memset(block, 0, sizeof block);
		memcpy(block, present + at, rows * sizeof *block);
		transpose(block);
		for (int kind = 0; kind < SPE_END; kind++)
			bitmaps[kind][at / 32] = block[kind];
	}
}
