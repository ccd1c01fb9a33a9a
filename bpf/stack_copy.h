/* SPDX-License-Identifier: GPL-2.0 */
/* A user stack and its registers as they are, for user space to walk: what is read of them. */
#ifndef TDPROF_STACK_COPY_H
#define TDPROF_STACK_COPY_H

#include "walk_state.h"

/* One after the other. */
#define MOST_UNREAD_PAGES 32

#ifdef __aarch64__

static __always_inline void copy_registers(struct stack_copy *copy, const struct unwind_state *state)
{
	copy->registers[0] = state->fp;
	copy->registers[1] = state->lr;
	copy->registers[2] = state->sp;
	copy->registers[3] = state->pc;
}

#else

static __always_inline void copy_registers(struct stack_copy *copy, const struct unwind_state *state)
{
#pragma unroll
	for (int number = 0; number < COPIED_REGISTERS - 1; number++)
		copy->registers[number] = state->leaf[number];
	copy->registers[COPIED_REGISTERS - 1] = state->pc;
}

#endif

/*
 * Page by page: most of a large frame may never have been touched, and what cannot be read of one page spoils only
 * that. The numbers are stored and loaded again for the verifier's sake, as those of struct unwind_tables.
 */
static __always_inline void copy_stack(struct stack_copy *copy, __u64 sp)
{
	volatile __u64 *read = &copy->pages;
	volatile __u32 *used = &copy->stack_bytes;

	*read = 0;
	*used = 0;
	for (int page = 0; page < MOST_COPIED_PAGES; page++) {
		__u64 from = page ? (sp & ~(COPIED_PAGE - 1ULL)) + page * COPIED_PAGE : sp, pages = *read;
		__u32 rest = COPIED_PAGE - (from & (COPIED_PAGE - 1)), bytes = *used;

		if (bytes > MOST_COPIED_BYTES - COPIED_PAGE)
			break;
		/* That is no frame any more, but the end of the stack; each attempt takes half a microsecond. */
		if (page > MOST_UNREAD_PAGES && !(pages >> (page - MOST_UNREAD_PAGES)))
			break;
		/* No branch, which the verifier would follow twice for each page: all bits where it was read, else
		 * none. */
		__u64 was_read = ~(walk_read_user(&copy->stack[bytes], rest, (void *)from) >> 63);

		*read = pages | (1ULL << page & was_read);
		*used = bytes + (rest & was_read);
	}
}

#endif
