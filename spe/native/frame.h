/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a byte stream into records, damage and an unfinished end. docs/spe.md states the rules;
 * arm_spe/reference.py follows the same ones. */
#ifndef SPE_FRAME_H
#define SPE_FRAME_H

#include "packet.h"

#define SPE_MAX_RECORD  2048 /* PMSIDR_EL1.MaxSize, largest defined value */
#define SPE_MAX_UNKNOWN 16   /* in a record that is looked ahead at */
#define SPE_SLOT        64   /* Neoverse cores write every record into 64 bytes */
#define SPE_SLOT_RUN    4    /* so many in a row show that a core does */

/* What every record holds; what was in neither of the last two is not asked of the next. */
#define SPE_REQUIRED (1u << SPE_PC | 1u << SPE_TOT | 1u << SPE_EVENTS | 1u << SPE_OP)

enum spe_status { SPE_CLOSED, SPE_UNFINISHED, SPE_BROKEN };

/* What a record may hold. The stricter modes look ahead; they also bound what a search through damaged bytes costs. */
enum spe_mode {
	SPE_ANY,      /* whatever has a size */
	SPE_DISTINCT, /* every kind once, a few unknown packets */
	SPE_DEFINED,  /* every kind once, none unknown */
};

/* One record as parsed. */
struct spe_record {
	uint64_t value[SPE_END]; /* payload by field; 0 where `present` has no bit */
	uint32_t present;
	uint32_t others;  /* packets of kind IMPDEF and UNKNOWN */
	uint32_t unknown; /* of them UNKNOWN */
	uint32_t duplicates;
	uint8_t op_class;
	uint8_t close;     /* SPE_TS or SPE_END */
	size_t start, end; /* end: after the closing packet */
	size_t restart;    /* the second packet of the kind that began the record, or 0 */
};

enum spe_piece { SPE_PIECE_RECORD, SPE_PIECE_DAMAGE, SPE_PIECE_OPEN };

/* Why bytes were given up; arm_spe/counts.py names them. */
enum spe_reason {
	SPE_REASON_HEADER,   /* a byte that starts no packet, or a record longer than the largest */
	SPE_REASON_NO_PC,    /* closed without an address */
	SPE_REASON_UNCLOSED, /* ran into the next record */
	SPE_REASON_BOUNDARY, /* what follows its close is no record */
	SPE_REASONS,
};

/* What is known of the stream so far; part of struct spe_decoder. Zeros at the start. */
struct spe_sync {
	uint64_t last;      /* 1 + offset of the record before, 0 before the first */
	uint64_t timestamp; /* of the record before */
	uint32_t present;   /* of the record before */
	uint32_t required;  /* fields to ask of a record after damage */
	uint32_t slot_run;  /* records in a row that filled one slot */
	uint8_t close;      /* of the record before, 0 before the first */
	uint8_t unknown_ok; /* the record before had unknown packets */
	uint8_t reason;     /* of the last damage: enum spe_reason */
	uint8_t pad;
};

/* Whether two times in a row are further apart than records are: 2^32 ticks, at least four seconds. */
static inline int spe_is_far(uint64_t before, uint64_t now)
{
	return now - before + (1ull << 32) > 1ull << 33;
}

enum spe_status spe_parse(const uint8_t *buf, size_t len, size_t start, enum spe_mode mode, struct spe_record *r);
enum spe_piece spe_next_piece(const uint8_t *buf, size_t len, struct spe_sync *sync, struct spe_record *r);
void spe_note_record(struct spe_sync *sync, const struct spe_record *r);
int spe_is_doubtful_close(const struct spe_sync *sync, uint8_t close, uint64_t timestamp);

#endif
