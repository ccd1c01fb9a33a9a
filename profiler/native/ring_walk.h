/* SPDX-License-Identifier: Apache-2.0 */
/* The recorder's walk over copied user stacks on their way out of perf's ring buffers; tdprof/recorder/ring_walk.py. */
#ifndef TDPROF_RING_WALK_H
#define TDPROF_RING_WALK_H

#include "unwind_api.h"

#define RING_WALK_FRAMES 255
#define RING_WALK_RECORD (1 << 16) /* larger than any record */

/* What a process has mapped, as far as it is known. */
struct ring_space {
	uint64_t begin_ns; /* of what it has mapped: what was sampled before had something else */
	const struct unwind_mapping *mappings;
	uint32_t pid;
	uint32_t mapping_count; /* 0: nothing is known */
	uint32_t copies_left;   /* as address_space of bpf/sample.h */
	uint32_t is_asked;      /* it is in `asked`, or was, and was not answered */
};

struct ring_walk {
	struct ring_space *spaces;    /* by pid */
	const uint8_t *const *tables; /* checked */
	uint32_t *asked;              /* processes of which more should be known */
	uint64_t copied_bytes_left;   /* of records that stay as they are, since they cannot be walked yet */
	uint64_t walked, copied;      /* samples: walked; left as they were */
	uint64_t not_copied;          /* neither: they end as no-table or no-mapping */
	uint32_t space_count, table_count;
	uint32_t asked_count, asked_capacity;
	uint32_t register_count;             /* of a record */
	int32_t places[UNWIND_X86_64_WORDS]; /* of the walk's registers among those, as perf_layout.walk_registers */
	uint16_t machine, reserved;
};

/*
 * Forget what processes had mapped that a stretch of records says have executed something else, have something else
 * where a file was mapped, or ended. To be called
 * with the records of all rings before any is walked: the one that says so may be in another ring than the samples.
 */
void tdprof_ring_forget(struct ring_walk *walk, const uint8_t *data, uint64_t size);

/* What a ring holds between two positions, which only grow; whole records. */
struct ring_part {
	const uint8_t *data;
	uint64_t size; /* of the ring */
	uint64_t start, end;
};

/* Copy the records that are no samples to `out`; returns their bytes. `out` is NULL: only that. */
uint64_t tdprof_ring_side_band(const struct ring_part *part, uint8_t *out);

/*
 * Copy records of a ring to `out`, as many as it has room for, and move the part's start behind them; to be called
 * until that is the end. Samples whose stack leads to its end come out without registers and stack, with their user
 * call chain instead: PERF_CONTEXT_USER; a word that says how the walk went (struct ring_walk_head); the addresses.
 * Those of which too little is known stay as they are. Samples have the layout that tdprof/recorder/chain_source.py
 * asks for. They are read where they are: of a copied stack only what the walk looks at. `capacity`: at least
 * RING_WALK_RECORD. Returns the bytes written.
 */
uint64_t tdprof_ring_walk(struct ring_walk *walk, struct ring_part *part, uint8_t *out, uint64_t capacity);

/* In front of the addresses; never as large as perf's markers of contexts, and never 0. */
struct ring_walk_head {
	uint8_t end, guessed_from;
	uint16_t by_table, by_fp, by_lr;
};

#endif
