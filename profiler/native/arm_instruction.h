/* SPDX-License-Identifier: Apache-2.0 */
/* What an instruction of aarch64 does to the stack pointer, to FP and LR, and where it leads. Encodings: Arm
 * Architecture Reference Manual for A-profile, C4.1. */
#ifndef TDPROF_ARM_INSTRUCTION_H
#define TDPROF_ARM_INSTRUCTION_H

#include <stdbool.h>
#include <stdint.h>

enum { ARM_FP = 29, ARM_LR = 30, ARM_SP = 31, ARM_NO_REGISTER = 32 };

#define ARM_NOP       0xd503201fU
#define ARM_PACIASP   0xd503233fU
#define ARM_PACIBSP   0xd503237fU
#define ARM_BTI_C     0xd503245fU
#define ARM_RETURN    0xd65f03c0U
#define ARM_SIGRETURN 0xd2801168U /* MOV x8, the number of rt_sigreturn */
#define ARM_SVC       0xd4000001U

enum arm_kind {
	ARM_OTHER,       /* writes `first` and `second`, or no register */
	ARM_CONDITIONAL, /* may go to `offset` from itself */
	ARM_BRANCH,      /* goes there */
	ARM_CALL,        /* calls what is there; with offset 0 what a register says */
	ARM_JUMP,        /* goes to where a register says */
	ARM_END,         /* RET; BRK and the like: nothing falls through */
	ARM_ADD,         /* first = base + offset, of 64 bits; either may be SP */
	ARM_ADD_SP,      /* SP += `first`, or -= where offset is -1 */
	ARM_SET_SP,      /* SP becomes something else */
	ARM_CONSTANT,    /* first = offset */
	ARM_CONSTANT_16, /* 16 bits of first, from bit `base` on, are offset */
	ARM_LOAD,        /* first, and second from the word behind, out of base + offset; words of 8 bytes */
	ARM_STORE,
};

struct arm_instruction {
	uint8_t kind;          /* enum arm_kind */
	uint8_t first, second; /* general registers that are written or stored; ARM_NO_REGISTER */
	uint8_t base;
	int64_t offset;
	int64_t writeback; /* what loads and stores add to their base */
};

struct arm_instruction arm_decode(uint32_t word);

/* RET and its forms that authenticate. */
static inline bool arm_is_return(uint32_t word)
{
	return word == ARM_RETURN || (word & ~0x400U) == 0xd65f0bff;
}

#endif
