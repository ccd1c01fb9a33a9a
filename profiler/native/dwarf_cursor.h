/* SPDX-License-Identifier: Apache-2.0 */
/* A read position inside a piece of memory that cannot leave it. A read past the end gives 0, moves to the end and
 * sets `bad`, which stays set: a parser may read on and ask once. More may be fetched into memory on the way. */
#ifndef TDPROF_DWARF_CURSOR_H
#define TDPROF_DWARF_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "only little-endian hosts and files");

struct cursor {
	const uint8_t *at;
	const uint8_t *end;
	bool bad;
	/* NULL, or moves `end` on until `size` bytes are there; false: they are not to be had. Of `source`. */
	bool (*fetch)(struct cursor *c, uint64_t size);
	const void *source;
};

static inline struct cursor cursor_over(const uint8_t *data, uint64_t size, uint64_t offset)
{
	if (offset > size)
		return (struct cursor){ .bad = true };
	return (struct cursor){ .at = data + offset, .end = data + size };
}

/* Bytes in memory; all, of a cursor that fetches none. */
static inline uint64_t cursor_left(const struct cursor *c)
{
	return (uint64_t)(c->end - c->at);
}

/* Whether so many bytes are left, which are in memory then. */
static inline bool cursor_has(struct cursor *c, uint64_t size)
{
	return size <= cursor_left(c) || (c->fetch && c->fetch(c, size));
}

static inline void cursor_fail(struct cursor *c)
{
	c->at = c->end;
	c->bad = true;
	c->fetch = NULL;
}

static inline void cursor_skip(struct cursor *c, uint64_t size)
{
	if (!cursor_has(c, size))
		cursor_fail(c);
	else
		c->at += size;
}

/* An unsigned integer of 1 to 8 bytes. */
static inline uint64_t read_fixed(struct cursor *c, unsigned size)
{
	uint64_t value = 0;

	if (!cursor_has(c, size)) {
		cursor_fail(c);
		return 0;
	}
	if (!__builtin_constant_p(size) && cursor_left(c) >= sizeof(value)) { /* no call for a few bytes */
		memcpy(&value, c->at, sizeof(value));
		value &= UINT64_MAX >> (64 - 8 * size);
	} else {
		memcpy(&value, c->at, size);
	}
	c->at += size;
	return value;
}

static inline uint8_t read_u8(struct cursor *c)
{
	if (!cursor_has(c, 1)) {
		cursor_fail(c);
		return 0;
	}
	return *c->at++;
}

static inline uint16_t read_u16(struct cursor *c)
{
	return (uint16_t)read_fixed(c, 2);
}

static inline uint32_t read_u32(struct cursor *c)
{
	return (uint32_t)read_fixed(c, 4);
}

static inline uint64_t read_u64(struct cursor *c)
{
	return read_fixed(c, 8);
}

/* Bits past the 64th are dropped, as every reader does. */
static inline uint64_t read_uleb(struct cursor *c)
{
	uint64_t value;
	unsigned shift = 7;
	uint8_t byte = read_u8(c);

	value = byte & 0x7f;
	while (byte & 0x80 && !c->bad) {
		byte = read_u8(c);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	}
	return value;
}

static inline int64_t read_sleb(struct cursor *c)
{
	uint64_t value = 0;
	unsigned shift = 0;
	uint8_t byte;

	do {
		byte = read_u8(c);
		if (shift < 64)
			value |= (uint64_t)(byte & 0x7f) << shift;
		shift += 7;
	} while (byte & 0x80 && !c->bad);
	if (byte & 0x40 && shift < 64)
		value |= ~(uint64_t)0 << shift;
	return (int64_t)value;
}

static inline void skip_leb(struct cursor *c)
{
	while (read_u8(c) & 0x80 && !c->bad)
		;
}

/* A NUL-terminated string inside the memory; NULL, and the cursor bad, if the NUL is missing. */
static inline const char *read_string(struct cursor *c)
{
	const char *text = (const char *)c->at;
	uint64_t searched = 0;

	while (cursor_has(c, searched + 1)) {
		const uint8_t *nul = memchr(c->at + searched, 0, cursor_left(c) - searched);

		if (nul) {
			c->at = nul + 1;
			return text;
		}
		searched = cursor_left(c);
	}
	cursor_fail(c);
	return NULL;
}

#endif
