/* SPDX-License-Identifier: Apache-2.0 */
/* Tables of call stacks: ragged arrays, where row i is values[start[i] .. start[i + 1]], leaf first. */
#ifndef TDPROF_STACKS_H
#define TDPROF_STACKS_H

#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Distinct places: an address within a context, which is whatever decides what the address means. */
struct stack_places {
	uint64_t *slots; /* upper half: hash; lower half: place + 1, 0 = free */
	uint64_t slot_mask;
	uint64_t *address;
	uint32_t *context;
	uint64_t rows, capacity; /* of places; capacity is at most 3/4 of the slots */
	uint64_t seed;           /* the caller's secret, so that no file can be made to collide on purpose */
};

/* Distinct stacks of functions; `slots` zeroed, at least 4/3 of `stacks`. */
struct stack_merge {
	const int64_t *start;
	const int32_t *function;
	uint64_t stacks;
	uint64_t *slots;
	uint64_t slot_mask;
	uint64_t seed;
	int64_t *merged;         /* [stacks] number of each, from 0 in order of appearance */
	int64_t *representative; /* [stacks], as many as there are numbers are filled */
};

/* A tree of calls as it is merged of stacks; `slots` zeroed, more than `capacity`, with a node in the lower half. */
struct call_merge {
	const int64_t *start;
	const int32_t *function;
	uint64_t stacks;
	uint64_t *slots;
	uint64_t slot_mask;
	uint64_t seed;
	int64_t *parent;        /* [capacity] */
	int32_t *node_function; /* [capacity] */
	uint64_t nodes, capacity;
	int64_t *node_of_stack; /* [stacks] where each ends */
};

/* Names by function, NO_STACK's first: function -1 is row 0. */
struct stack_names {
	const int64_t *start;
	const uint8_t *text; /* each name ends with the separator of frames */
	const uint32_t *inner_rank,
		*leaf_rank; /* order among the texts of frames that have a callee, and that have none */
};

/* Lines to write: a thread, a stack, and what it weighs. */
struct folded_rows {
	const int64_t *start;
	const int32_t *function;
	struct stack_names names;
	const int64_t *thread_start;
	const uint8_t *thread_text; /* each with the separator at its end */
	const uint32_t *thread, *stack;
	const uint64_t *weight;
	uint64_t rows;
};

#endif
