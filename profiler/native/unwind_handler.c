// SPDX-License-Identifier: Apache-2.0
/*
 * Where libgcc goes on in an exception's handler, on x86-64. A function that ends with __builtin_eh_return first calls
 * uw_init_context_1, with a structure in its frame, which keeps the return address, and with its CFA; and at the end
 * uw_install_context_1, with the structure, which writes the handler's registers, and last where it returns to, over
 * those in the frame: libgcc/unwind-dw2.c.
 */
#include "unwind_build.h"
#include "x86_instruction.h"

enum {
	MOST_CODE = 64 << 10,
	MOV_TO = 0x89,
	LEA = 0x8d,
	CALL = 0xe8,
	/* Registers as instructions number them */
	FP = 5,
	SECOND = 6, /* argument: RSI */
	FIRST = 7,
	REGISTERS = 16,
	FRAME = 16,    /* CFA - RBP */
	KEPT = 19 * 8, /* of `ra` in struct _Unwind_Context, behind 18 pointers and the CFA */
};

static const uint8_t SET_SP[] = { 0x48, 0x89, 0xcc }; /* mov %rcx, %rsp */

/* What is known of a function, one instruction after the other. */
struct function {
	int32_t places[REGISTERS]; /* of what registers point to, from RBP; 0: not known */
	int32_t context;           /* place of the structure; 0: none yet */
	uint32_t install;          /* behind the last call of another function with it */
};

static void follow(struct function *function, const struct x86_instruction *i, uint32_t behind)
{
	unsigned reg = (i->modrm >> 3 & 7) | (i->rex & 4) << 1, other = (i->modrm & 7) | (i->rex & 1) << 3;
	unsigned mode = i->modrm >> 6;
	int32_t *places = function->places;

	if (i->map != X86_ONE_BYTE)
		return;
	if (i->opcode == LEA)
		places[reg] = (mode == 1 || mode == 2) && other == FP ? i->displacement : 0;
	else if (i->opcode == MOV_TO && mode == 3)
		places[other] = places[reg];
	if (i->opcode != CALL)
		return;
	if (!function->context && places[SECOND] == FRAME)
		function->context = places[FIRST];
	else if (function->context && places[FIRST] == function->context)
		function->install = behind;
	places[FIRST] = places[SECOND] = 0;
}

bool find_handler_install(struct unwind_table *table, place_t start, place_t end, struct placed_rule *out)
{
	uint32_t size = end - start, at = 0;
	struct function function = { 0 };

	if (!table->input->read_code || size > MOST_CODE)
		return false;
	uint8_t *code = malloc(size + sizeof(SET_SP));

	if (code && !table->input->read_code(elf_address(table, start), code, size + sizeof(SET_SP)) &&
	    !memcmp(code + size, SET_SP, sizeof(SET_SP))) {
		while (at < size) {
			struct x86_instruction i = x86_decode(code + at, size - at);

			if (!i.length)
				break;
			at += i.length;
			follow(&function, &i, at);
		}
	}
	free(code);

	int64_t kept = (int64_t)function.context + KEPT - FRAME;

	if (at != size || !function.install || kept & 7 || kept < INT16_MIN || kept >= 0)
		return false;
	out->place = start + function.install - 1; /* a return address is looked up one byte before it */
	out->rule = pack_rule(UNWIND_CFA_FP, UNWIND_RA_KEPT, (int16_t)kept, FRAME);
	return true;
}
