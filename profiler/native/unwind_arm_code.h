/* SPDX-License-Identifier: Apache-2.0 */
/* Where the CFA and the return address are while instructions of aarch64 run one after the other. */
#ifndef TDPROF_UNWIND_ARM_CODE_H
#define TDPROF_UNWIND_ARM_CODE_H

#include "arm_instruction.h"
#include "unwind_build.h"

#define NOT_SAVED INT32_MAX

enum arm_cfa {
	ARM_CFA_DEAD, /* nothing falls through to here */
	ARM_CFA_LOST,
	ARM_CFA_SP,
	ARM_CFA_FP, /* how far SP is from it is not known */
};

struct arm_state {
	uint8_t cfa;      /* enum arm_cfa */
	uint8_t doubt;    /* 0: followed from a known function's beginning; 1: from behind padding; 2: from amid code */
	bool is_called;   /* a call leads here */
	bool is_builtin;  /* V8's, whose callers keep frame pointers */
	bool has_lr;      /* LR holds the return address */
	uint8_t constant; /* register that holds `value`; ARM_NO_REGISTER */
	int64_t value;
	int32_t depth;    /* CFA - SP, with ARM_CFA_SP */
	int32_t fp_depth; /* CFA - FP while that marks the frame; else 0 */
	int32_t fp_slot;  /* of the caller's FP from the CFA; NOT_SAVED: FP has it */
	int32_t lr_slot;  /* of the return address; NOT_SAVED */
};

/* What an instruction makes of the state; branches make nothing of it. */
void apply_arm_instruction(struct arm_state *state, const struct arm_instruction *i);
packed_rule arm_rule(const struct arm_state *state);

#endif
