/* SPDX-License-Identifier: Apache-2.0 */
/* Where the CFA is while instructions of x86-64 run one after the other. */
#ifndef TDPROF_UNWIND_CODE_H
#define TDPROF_UNWIND_CODE_H

#include "unwind_build.h"
#include "x86_instruction.h"

#define NO_COPY 16

/* Where the CFA is: a distance from the register or word named. */
enum code_cfa {
	CODE_DEAD,
	CODE_LOST,
	CODE_SP,
	CODE_FP,
	CODE_COPY,
	CODE_WORD,
	CODE_FP_WORD, /* as CODE_WORD, once FP is what the stack pointer was */
	CODE_POPPED,  /* not known: V8 moves arguments while `ra` holds the return address */
};

/* What of a frame of V8's builtins is there: nothing but registers, the mark of its kind, all. */
enum code_prologue { CODE_NO_PROLOGUE, CODE_BEGUN, CODE_MARKED };

struct code_state {
	uint8_t cfa;      /* enum code_cfa; CODE_DEAD: nothing falls through to here */
	uint8_t copy;     /* register that holds an earlier stack pointer; NO_COPY */
	uint8_t ra;       /* of V8's builtins: register that holds the return address; NO_COPY */
	uint8_t doubt;    /* 0: followed from a known function's beginning; 1: from behind padding; 2: from amid code */
	bool is_called;   /* a call leads here */
	bool is_builtin;  /* V8's, whose callers keep frame pointers */
	uint8_t prologue; /* enum code_prologue */
	int16_t fp_slot;  /* of the saved FP from the CFA; UNWIND_FP_SAME */
	int32_t depth;    /* CFA - sp, with CODE_SP */
	int32_t fp_depth; /* CFA - FP while that marks the frame; else 0 */
	int32_t frame_depth; /* of V8's builtins: CFA - sp of the frame without what is pushed for calls, which pop it
	                      */
	int32_t copy_depth;  /* CFA - copy */
	uint32_t assumed;    /* with `doubt` 1: the offset where the function was taken to begin */
	int32_t word; /* with CODE_WORD, CODE_FP_WORD: where the copy lies from sp, FP; CFA = that + copy_depth */
};

/* What an instruction may change of a state. */
enum code_effect {
	EFFECT_UNKNOWN,
	EFFECT_NONE,
	EFFECT_REGISTER, /* only one in which a stack pointer or a return address is held */
	EFFECT_BUILTIN,  /* only that of a builtin */
	EFFECT_ANY,      /* or leads elsewhere */
};

enum code_effect instruction_effect(const struct x86_instruction *i);
/* The least effect by which a state changes. */
enum code_effect least_effect(const struct code_state *state);
/* What an instruction makes of the state; branches and calls make nothing of it. */
void apply_instruction(struct code_state *state, const struct x86_instruction *i);
packed_rule code_rule(const struct code_state *state);
/* Of V8's builtins, whose callers keep frame pointers: no guess where the instructions were followed from the
 * beginning. */
packed_rule builtin_rule(const struct code_state *state);

/* The next stretch of data among code, from `*to` on, where it was last found or 0; false if there is none. */
bool find_data(const uint8_t *code, uint32_t size, uint32_t *from, uint32_t *to);

#endif
