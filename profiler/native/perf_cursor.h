/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds-checked reading of one record in either byte order. */
#ifndef TDPROF_PERF_CURSOR_H
#define TDPROF_PERF_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Records are 8-byte aligned in the kernel's buffer but not after the perf tool's compressed ones: hence memcpy. */
static inline uint16_t load16(const uint8_t *at, bool swap)
{
	uint16_t value;
	memcpy(&value, at, sizeof(value));
	return swap ? __builtin_bswap16(value) : value;
}

static inline uint32_t load32(const uint8_t *at, bool swap)
{
	uint32_t value;
	memcpy(&value, at, sizeof(value));
	return swap ? __builtin_bswap32(value) : value;
}

static inline uint64_t load64(const uint8_t *at, bool swap)
{
	uint64_t value;
	memcpy(&value, at, sizeof(value));
	return swap ? __builtin_bswap64(value) : value;
}

/* Reading past `end` yields zeros and sets `failed`, so a run of fields needs one check at its end. */
struct cursor {
	const uint8_t *at, *end;
	bool swap, failed;
};

static inline uint64_t left(const struct cursor *c)
{
	return (uint64_t)(c->end - c->at);
}

static inline const uint8_t *take(struct cursor *c, uint64_t bytes)
{
	if (bytes > left(c)) {
		c->failed = true;
		c->at = c->end;
		return NULL;
	}
	const uint8_t *at = c->at;
	c->at += bytes;
	return at;
}

static inline uint64_t take64(struct cursor *c)
{
	const uint8_t *at = take(c, 8);
	return at != NULL ? load64(at, c->swap) : 0;
}

static inline uint32_t take32(struct cursor *c)
{
	const uint8_t *at = take(c, 4);
	return at != NULL ? load32(at, c->swap) : 0;
}

static inline uint16_t take16(struct cursor *c)
{
	const uint8_t *at = take(c, 2);
	return at != NULL ? load16(at, c->swap) : 0;
}

#endif
