// SPDX-License-Identifier: Apache-2.0
/* Tables among code of x86-64, as assembly has them between its functions: most of their instructions are none. They
 * are looked at in blocks. What borders on code is left to be followed as code is, so that no code is taken for data.
 */
#include "unwind_code.h"

/* Of a block of chance bytes some 26 are common ones and 20 begin no instruction; of one of code a hundred and none. */
enum { BLOCK = 512, MOST_COMMON = 52, LEAST_BAD = 8 };

/* The bytes of which code is full, a bit each: 0, 0f, 24, 41, 48, 49, 4c, 62, 89, 8b, c4, c5, ff; prefixes, mov, lea,
 * call, long jumps, distances. */
static const uint32_t COMMON[8] = { 0x8001, 0x10, 0x1302, 0x4, 0xa00, 0, 0x30, 0x80000000 };

static bool is_data(const uint8_t *block)
{
	unsigned common = 0, bad = 0;

	for (unsigned i = 0; i < BLOCK; i++)
		common += COMMON[block[i] >> 5] >> (block[i] & 31) & 1;
	if (common > MOST_COMMON)
		return false;
	for (unsigned i = 0; i < BLOCK && bad < LEAST_BAD;) {
		uint8_t length = x86_decode(block + i, BLOCK - i).length;

		bad += !length;
		i += length ? length : 1;
	}
	return bad == LEAST_BAD;
}

bool find_data(const uint8_t *code, uint32_t size, uint32_t *from, uint32_t *to)
{
	uint32_t first = *to / BLOCK, blocks = size / BLOCK;

	while (first < blocks) {
		uint32_t end = first;

		while (end < blocks && is_data(code + (uint64_t)end * BLOCK))
			end++;
		if (end - first > 2) {
			*from = (first + 1) * BLOCK;
			*to = (end - 1) * BLOCK;
			return true;
		}
		first = end + 1;
	}
	return false;
}
