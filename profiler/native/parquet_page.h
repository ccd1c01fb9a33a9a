/* SPDX-License-Identifier: Apache-2.0 */
/* The values of a Parquet page of integers.
 *
 * Formats: https://github.com/apache/parquet-format/blob/master/Encodings.md, "Delta Encoding" and "Run Length
 * Encoding / Bit-Packing Hybrid". */
#ifndef TDPROF_PARQUET_PAGE_H
#define TDPROF_PARQUET_PAGE_H

#include <stdint.h>

#define EXPORT     __attribute__((visibility("default")))
#define MOST_WORDS 256 /* of a dictionary that is made here */

/* A column of Arrow: `width` bytes each, and a bitmap of those that are not null, NULL where none is. */
struct parquet_column {
	const uint8_t *values;
	const uint8_t *valid;
	uint64_t rows;
	uint32_t width; /* 1, 2, 4, 8 */
	uint32_t is_signed;
};

/* What became of it. */
struct parquet_page {
	uint64_t *dense; /* [rows] the values that are not null, one after the other, negative ones as 64 bits */
	uint64_t words[MOST_WORDS];
	uint8_t *out;      /* holds what `tdprof_parquet_room` says */
	uint64_t values;   /* that are not null */
	uint64_t distinct; /* how many words there are; 0: they were too many, and `out` has deltas */
	uint64_t bytes;    /* of `out` */
};

#endif
