/* SPDX-License-Identifier: Apache-2.0 */
/* Call stacks that the sampling program sent through its BPF ring buffer. */
#ifndef TDPROF_BPF_STACKS_H
#define TDPROF_BPF_STACKS_H

#include <stdint.h>

/* What one call of tdprof_bpf_stacks reports besides its rows. */
struct bpf_stacks_result {
	uint64_t consumed;	/* bytes that were whole records */
	uint64_t stacks;	/* rows written */
	uint64_t addresses;	/* addresses written */
	uint64_t damaged;	/* records that were not whole or not sane */
};

#endif
