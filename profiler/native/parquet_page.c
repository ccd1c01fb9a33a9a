/* SPDX-License-Identifier: Apache-2.0 */
#include "parquet_page.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define BLOCK      128 /* values of a block of deltas */
#define MINIBLOCK  32
#define MINIBLOCKS (BLOCK / MINIBLOCK)
#define SLOTS      1024 /* of the table of words, a power of two */
#define FREE       UINT16_MAX
#define WORTH      8 /* a dictionary is for values that come that often on average */

static uint8_t *put_unsigned(uint8_t *out, uint64_t value)
{
	for (; value > 127; value >>= 7)
		*out++ = (uint8_t)(value | 128);
	*out++ = (uint8_t)value;
	return out;
}

static uint8_t *put_signed(uint8_t *out, int64_t value)
{
	return put_unsigned(out, (uint64_t)value << 1 ^ (uint64_t)(value >> 63));
}

/* Values of `bits` bits each one after the other, low bits first. Writes the last byte's rest as zeros. */
static uint8_t *pack(uint8_t *out, const uint64_t *values, uint64_t count, unsigned bits)
{
	uint64_t word = 0;
	unsigned filled = 0;

	for (uint64_t i = 0; i < count && bits; i++) {
		word |= values[i] << filled;
		filled += bits;
		if (filled >= 64) {
			memcpy(out, &word, sizeof(word));
			out += sizeof(word);
			filled -= 64;
			word = filled ? values[i] >> (bits - filled) : 0;
		}
	}
	for (; filled; filled -= filled < 8 ? filled : 8, word >>= 8)
		*out++ = (uint8_t)word;
	return out;
}

static unsigned bits_of(uint64_t value)
{
	return value ? 64 - (unsigned)__builtin_clzll(value) : 0;
}

/* The up to 128 differences to the value before, less the smallest of them, each 32 of them as wide as they need. */
static uint8_t *put_block(uint8_t *out, const uint64_t *values, uint64_t count, bool is_wide)
{
	uint64_t deltas[BLOCK];
	int64_t least = INT64_MAX;

	for (uint64_t i = 0; i < count; i++) {
		uint64_t delta = values[i] - values[(int64_t)i - 1];

		deltas[i] = is_wide ? delta : (uint64_t)(int32_t)(uint32_t)delta;
		least = (int64_t)deltas[i] < least ? (int64_t)deltas[i] : least;
	}
	for (uint64_t i = 0; i < count; i++)
		deltas[i] -= (uint64_t)least;
	memset(deltas + count, 0, (BLOCK - count) * sizeof(*deltas));

	out = put_signed(out, least);
	uint8_t *widths = out;

	out += MINIBLOCKS;
	for (unsigned i = 0; i < MINIBLOCKS; i++) {
		const uint64_t *of_miniblock = deltas + (size_t)i * MINIBLOCK;
		uint64_t all = 0;

		for (unsigned k = 0; k < MINIBLOCK; k++)
			all |= of_miniblock[k];
		widths[i] = (uint8_t)bits_of(all);
		out = pack(out, of_miniblock, MINIBLOCK, widths[i]);
	}
	return out;
}

static uint8_t *put_deltas(uint8_t *out, const uint64_t *values, uint64_t count, bool is_wide)
{
	out = put_unsigned(out, BLOCK);
	out = put_unsigned(out, MINIBLOCKS);
	out = put_unsigned(out, count);
	int64_t first = count ? (int64_t)values[0] : 0;

	out = put_signed(out, is_wide ? first : (int32_t)first);
	for (uint64_t done = 1; done < count; done += BLOCK)
		out = put_block(out, values + done, count - done < BLOCK ? count - done : BLOCK, is_wide);
	return out;
}

/* Bytes that `out` of a page of so many rows needs: of deltas, which take most, and 8 for what `pack` writes at once.
 */
EXPORT uint64_t tdprof_parquet_room(uint64_t rows)
{
	return (rows / BLOCK + 2) * (10 + MINIBLOCKS + BLOCK * sizeof(uint64_t)) + sizeof(uint64_t);
}

#define GATHER(type)                                                                                                   \
	do {                                                                                                           \
		const type *from = (const type *)column->values;                                                       \
                                                                                                                       \
		if (!column->valid)                                                                                    \
			for (; count < column->rows; count++)                                                          \
				dense[count] = (uint64_t)from[count];                                                  \
		else                                                                                                   \
			for (uint64_t i = 0; i < column->rows; i++) {                                                  \
				dense[count] = (uint64_t)from[i];                                                      \
				count += column->valid[i / 8] >> i % 8 & 1;                                            \
			}                                                                                              \
	} while (0)

/* Signed types widen as two's complement. Returns how many there are. */
static uint64_t gather(const struct parquet_column *column, uint64_t *dense)
{
	uint64_t count = 0;

	switch (column->width | column->is_signed << 8) {
	case 1: GATHER(uint8_t); break;
	case 2: GATHER(uint16_t); break;
	case 4: GATHER(uint32_t); break;
	case 1 | 1 << 8: GATHER(int8_t); break;
	case 2 | 1 << 8: GATHER(int16_t); break;
	case 4 | 1 << 8: GATHER(int32_t); break;
	default: GATHER(uint64_t);
	}
	return count;
}

/* The distinct values in order of appearance, and each value's place among them in `codes`. Returns how many there are,
 * 0 where there are too many. */
static uint64_t find_words(struct parquet_page *page, uint8_t *codes)
{
	uint16_t slots[SLOTS];
	uint64_t distinct = 0, code = 0;

	memset(slots, 0xff, sizeof(slots));
	for (uint64_t i = 0; i < page->values; i++) {
		uint64_t value = page->dense[i];

		if (!i || value != page->words[code]) {
			uint64_t slot = value * 0x9e3779b97f4a7c15 >> 54;

			while (slots[slot] != FREE && page->words[slots[slot]] != value)
				slot = (slot + 1) % SLOTS;
			if (slots[slot] == FREE) {
				if (distinct == MOST_WORDS)
					return 0;
				page->words[distinct] = value;
				slots[slot] = (uint16_t)distinct++;
			}
			code = slots[slot];
		}
		codes[i] = (uint8_t)code;
	}
	return distinct * WORTH <= page->values ? distinct : 0;
}

/* Places in a dictionary: their width, then one run, of the same value or packed. */
static uint8_t *put_codes(uint8_t *out, const uint64_t *codes, uint64_t count, uint64_t distinct)
{
	unsigned bits = distinct > 1 ? bits_of(distinct - 1) : 1;

	*out++ = (uint8_t)bits;
	if (distinct == 1) {
		out = put_unsigned(out, count << 1);
		*out++ = 0;
		return out;
	}
	uint64_t groups = (count + 7) / 8;
	uint8_t *end = put_unsigned(out, groups << 1 | 1);

	out = pack(end, codes, count, bits);
	end += groups * bits;
	memset(out, 0, (size_t)(end - out)); /* the last group is whole */
	return end;
}

/* Integers, whether as places in a dictionary or as deltas. */
EXPORT void tdprof_parquet_integers(const struct parquet_column *column, struct parquet_page *page)
{
	uint8_t *end, *codes = page->out; /* deltas overwrite it */

	page->values = gather(column, page->dense);
	page->distinct = find_words(page, codes);
	if (page->distinct) {
		for (uint64_t i = 0; i < page->values; i++)
			page->dense[i] = codes[i];
		end = put_codes(page->out, page->dense, page->values, page->distinct);
	} else {
		end = put_deltas(page->out, page->dense, page->values, column->width == sizeof(uint64_t));
	}
	page->bytes = (uint64_t)(end - page->out);
}

/* Places in a dictionary of `distinct` words that the caller has. */
EXPORT void tdprof_parquet_places(const struct parquet_column *column, uint64_t distinct, struct parquet_page *page)
{
	page->values = gather(column, page->dense);
	page->distinct = distinct;
	page->bytes = (uint64_t)(put_codes(page->out, page->dense, page->values, distinct) - page->out);
}
