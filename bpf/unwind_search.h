/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Which rule holds at an address, and what address a frame is known by. Who includes this says before what tables are,
 * as unwind_step.h asks for it.
 */
#ifndef TDPROF_UNWIND_SEARCH_H
#define TDPROF_UNWIND_SEARCH_H

#include "unwind.h"

/* The address to look up: a return address may be the first of the next function, or of the next rule. */
UNWIND_INLINE __u64 unwind_lookup_pc(const struct unwind_state *state)
{
	return state->flags & UNWIND_EXACT ? state->pc : state->pc - 1;
}

/*
 * What to write into a call chain for a frame that is not the topmost. Readers take such addresses for return addresses
 * and look up the one before; an interrupted instruction is the one meant itself.
 */
UNWIND_INLINE __u64 unwind_caller_address(const struct unwind_state *state)
{
	return state->flags & UNWIND_EXACT ? state->pc + 1 : state->pc;
}

/* The number of the rule for an address of which `bucket` and the low byte are given; UNWIND_RULE_NONE if there is
 * none. */
UNWIND_INLINE __u32 unwind_search(struct unwind_tables *tables, __u32 bucket, __u32 low)
{
	__u32 first, end, row;

	if (unwind_bucket(tables, bucket, &first) || unwind_bucket(tables, bucket + 1, &end))
		return UNWIND_RULE_NONE;
	/* A bucket has 256 addresses, so at most 256 rows; real ones have up to 45 and leave after six steps. */
	for (int step = 0; step < 9; step++) {
		if (first >= end)
			break;
		__u32 middle = first + ((end - first) >> 1);

		if (unwind_row(tables, middle, &row))
			return UNWIND_RULE_NONE;
		if (UNWIND_ROW_LOW(row) <= low)
			first = middle + 1;
		else
			end = middle;
	}
	if (first == 0 || unwind_row(tables, first - 1, &row))
		return UNWIND_RULE_NONE;
	return UNWIND_ROW_RULE(row);
}

#endif
