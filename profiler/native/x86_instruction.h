/* SPDX-License-Identifier: Apache-2.0 */
/* The length of an x86-64 instruction, and of its parts what says how it moves the stack pointer. Encodings: Intel 64
 * and IA-32 Architectures Software Developer's Manual, volume 2, chapter 2 and appendix A. */
#ifndef TDPROF_X86_INSTRUCTION_H
#define TDPROF_X86_INSTRUCTION_H

#include <stdbool.h>
#include <stdint.h>

/* Opcode maps; those of VEX and EVEX have other instructions. */
enum x86_map { X86_ONE_BYTE, X86_0F, X86_0F38, X86_0F3A, X86_VECTOR };

struct x86_instruction {
	uint8_t length; /* 0: none that is known */
	uint8_t map;    /* enum x86_map */
	uint8_t opcode;
	uint8_t rex;
	bool has_modrm;
	uint8_t modrm, sib; /* sib: 0x24, which is [rsp] without an index, where there is none */
	int32_t displacement;
	int64_t immediate; /* sign extended; of branches the distance from the instruction's end */
};

/* An instruction at the beginning of some bytes. */
struct x86_instruction x86_decode(const uint8_t *code, uint64_t size);

static inline bool x86_is_conditional(const struct x86_instruction *i)
{
	return (i->map == X86_ONE_BYTE && ((i->opcode & 0xf0) == 0x70 || (i->opcode & 0xfc) == 0xe0)) ||
	       (i->map == X86_0F && (i->opcode & 0xf0) == 0x80);
}

static inline bool x86_is_jump(const struct x86_instruction *i)
{
	return i->map == X86_ONE_BYTE && (i->opcode == 0xe9 || i->opcode == 0xeb);
}

static inline bool x86_is_table_jump(const struct x86_instruction *i)
{
	return i->map == X86_ONE_BYTE && i->opcode == 0xff && (i->modrm >> 3 & 7) == 4;
}

/* Nothing falls through. */
static inline bool x86_is_end(const struct x86_instruction *i)
{
	if (i->map == X86_0F)
		return i->opcode == 0x0b; /* ud2 */
	return i->map == X86_ONE_BYTE &&
	       (i->opcode == 0xc3 || i->opcode == 0xc2 || i->opcode == 0xf4 || x86_is_jump(i) || x86_is_table_jump(i));
}

#endif
