/* SPDX-License-Identifier: Apache-2.0 */
/* Call stacks, and copies of such, that the sampling program sent through its BPF ring buffers. */
#ifndef TDPROF_BPF_STACKS_H
#define TDPROF_BPF_STACKS_H

#include <stdint.h>

/* struct stack_record of bpf/sample.h after its hash; of kernel stacks, and of old recordings, only the first two. */
struct bpf_stack_walk {
	uint16_t depth;
	uint8_t is_kernel;
	uint8_t end;
	uint16_t guessed_from, by_table, by_fp, by_lr;
	uint32_t reserved;
};

/* What one call of tdprof_bpf_stacks reports besides its rows. */
struct bpf_stacks_result {
	uint64_t consumed;  /* bytes that were whole records */
	uint64_t stacks;    /* rows written */
	uint64_t addresses; /* addresses written */
	uint64_t damaged;   /* records that were not whole or not sane */
};

#define BPF_COPY_REGISTERS 17

/* Columns of `capacity` rows, one for each struct stack_copy of bpf/sample.h. */
struct bpf_copies {
	uint64_t *identity, *time_ns;
	uint64_t *registers;   /* BPF_COPY_REGISTERS a row */
	uint64_t *stack_start; /* where in the given bytes the stack's lie */
	uint64_t *pages;       /* as unwind_samples.pages */
	uint32_t *pid, *stack_bytes;
	uint64_t capacity;
};

#endif
