/* SPDX-License-Identifier: GPL-2.0 */
/* A user stack and its registers as they are, for user space to walk: what is read of them. */
#ifndef TDPROF_STACK_COPY_H
#define TDPROF_STACK_COPY_H

#include "walk_state.h"

#define SMALLEST_PAGE 4096

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

/* Page by page, since what cannot be read of one spoils only that; returns the bytes. */
static __always_inline __u32 copy_stack(struct stack_copy *copy, __u64 sp)
{
	__u32 bytes = 0;

	for (int page = 0; page <= MOST_COPIED_BYTES / SMALLEST_PAGE; page++) {
		__u32 rest = SMALLEST_PAGE - ((sp + bytes) & (SMALLEST_PAGE - 1));

		if (bytes > MOST_COPIED_BYTES - SMALLEST_PAGE)
			break;
		if (walk_read_user(&copy->stack[bytes], rest, (void *)(sp + bytes)))
			break;
		bytes += rest;
	}
	return bytes;
}

#endif
