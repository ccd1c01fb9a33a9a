/* SPDX-License-Identifier: Apache-2.0 */
/* The decoder's interface: shared with arm_spe/native.py, which declares the same two structures. */
#ifndef SPE_RECORD_H
#define SPE_RECORD_H

#include "frame.h"

/* Position and counts of one stream. Zeros at the start; the caller keeps it between calls. */
struct spe_decoder {
	uint64_t position;        /* next byte to decode */
	uint64_t records;         /* given out */
	uint64_t record_bytes;    /* in them, inner padding included */
	uint64_t padding_bytes;   /* between records */
	uint64_t damaged_regions; /* runs of bytes given up; each cost at least a part of a record */
	uint64_t damaged_bytes;
	uint64_t damage[SPE_REASONS]; /* regions by reason */
	uint64_t open_records;        /* not closed before the input ended: dropped */
	uint64_t open_bytes;
	uint64_t unknown_packets;   /* reserved headers in records given out */
	uint64_t duplicate_packets; /* in records given out; the first was kept */
	struct spe_sync sync;
};

/* Columns owned by the caller, `capacity` rows each. A missing field is 0 and its bit in `present` is clear. */
struct spe_columns {
	uint64_t capacity, other_capacity;
	uint64_t *offset; /* of the record in the input */
	uint64_t *pc;     /* virtual addresses: bits 63:56 are copies of bit 55 */
	uint64_t *branch_target;
	uint64_t *va;
	uint64_t *pa; /* bits 55:0 */
	uint64_t *previous_branch_target;
	uint64_t *events;
	uint64_t *timestamp;
	uint32_t *present; /* 1 << enum spe_kind, SPE_HAS_… */
	uint32_t *context_el1, *context_el2;
	uint16_t *total_latency, *issue_latency, *translation_latency, *alt_issue_latency; /* cycles, saturating */
	uint16_t *data_source;
	uint8_t *op_class, *op; /* header bits 1:0; payload */
	uint8_t *pc_top, *branch_target_top, *va_top, *pa_top, *previous_branch_target_top; /* payload bits 63:56 */
	uint32_t *other_record; /* row of a packet that is no field */
	uint16_t *other_header; /* first byte of an extended header << 8 | header byte */
	uint64_t *other_payload;
	uint64_t is_lean; /* fill what spe_tally reads, and leave the other columns as they are, or in disorder */
};

/* Decodes from d->position until the columns are full or the input ends; returns the rows written.
 * `*others` receives the rows written in other_…; other_capacity must be at least SPE_MAX_RECORD / 2.
 * The columns need not be cleared. Decoding is done when d->position == len. */
uint64_t spe_decode(const uint8_t *buf, uint64_t len, struct spe_decoder *d, const struct spe_columns *c,
                    uint64_t *others);

#endif
