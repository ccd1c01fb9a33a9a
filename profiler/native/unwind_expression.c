// SPDX-License-Identifier: Apache-2.0
/* DWARF expressions (2.5) in call-frame information: those of the form register + constant, maybe read and added to
 * once more, and two of x86-64: that of the PLT and one with an index. Others are named unsupported. */
#include "unwind_build.h"

enum {
	DW_OP_deref = 0x06,
	DW_OP_const1u = 0x08,
	DW_OP_const1s = 0x09,
	DW_OP_const2u = 0x0a,
	DW_OP_const2s = 0x0b,
	DW_OP_const4u = 0x0c,
	DW_OP_const4s = 0x0d,
	DW_OP_constu = 0x10,
	DW_OP_consts = 0x11,
	DW_OP_minus = 0x1c,
	DW_OP_plus = 0x22,
	DW_OP_plus_uconst = 0x23,
	DW_OP_mul = 0x1e,
	DW_OP_lit0 = 0x30,
	DW_OP_breg0 = 0x70,
	DW_OP_bregx = 0x92,

	MOST_DEPTH = 4, /* of the expression's stack; deeper ones are of no form that is known */
	NO_REGISTER = UINT32_MAX,
};

/* register + before, or the word there + after; without a register the constant `before`. */
struct term {
	uint32_t base;
	bool is_read;
	int64_t before, after;
};

static int64_t read_constant(struct cursor *c, uint8_t op)
{
	switch (op) {
	case DW_OP_const1u: return read_u8(c);
	case DW_OP_const1s: return (int8_t)read_u8(c);
	case DW_OP_const2u: return read_u16(c);
	case DW_OP_const2s: return (int16_t)read_u16(c);
	case DW_OP_const4u: return read_u32(c);
	case DW_OP_const4s: return (int32_t)read_u32(c);
	case DW_OP_constu: return (int64_t)read_uleb(c);
	case DW_OP_consts: return read_sleb(c);
	default: return op - DW_OP_lit0;
	}
}

static bool is_constant(uint8_t op)
{
	return (op >= DW_OP_const1u && op <= DW_OP_const4s) || op == DW_OP_constu || op == DW_OP_consts ||
	       (op >= DW_OP_lit0 && op < DW_OP_lit0 + 32);
}

/* Sums wrap, as the addresses that they are. */
static void add_to(struct term *term, int64_t value)
{
	int64_t *part = term->is_read ? &term->after : &term->before;

	*part = (int64_t)((uint64_t)*part + (uint64_t)value);
}

/* Adds or subtracts the two top terms; false if that gives no term. */
static bool combine(struct term *left, const struct term *right, bool is_minus)
{
	if (right->base == NO_REGISTER) {
		add_to(left, is_minus ? (int64_t)(0 - (uint64_t)right->before) : right->before);
		return true;
	}
	if (left->base != NO_REGISTER || is_minus)
		return false;
	struct term sum = *right;

	add_to(&sum, left->before);
	*left = sum;
	return true;
}

/* `stack` holds one term more than what the caller began with. */
static bool evaluate(struct cursor c, struct term *out)
{
	struct term stack[MOST_DEPTH];
	unsigned depth = 0;

	while (cursor_left(&c) && !c.bad) {
		uint8_t op = read_u8(&c);
		bool is_register = (op >= DW_OP_breg0 && op < DW_OP_breg0 + 32) || op == DW_OP_bregx;

		if (is_register || is_constant(op)) {
			if (depth == MOST_DEPTH)
				return false;
			struct term *top = &stack[depth++];

			*top = (struct term){ .base = NO_REGISTER };
			if (op == DW_OP_bregx) {
				uint64_t number = read_uleb(&c);

				top->base = number < 32 ? (uint32_t)number : 32;
			} else if (is_register) {
				top->base = op - DW_OP_breg0;
			}
			top->before = is_register ? read_sleb(&c) : read_constant(&c, op);
		} else if (op == DW_OP_deref && depth) {
			struct term *top = &stack[depth - 1];

			if (top->is_read || top->base == NO_REGISTER)
				return false;
			top->is_read = true;
		} else if (op == DW_OP_plus_uconst && depth) {
			add_to(&stack[depth - 1], (int64_t)read_uleb(&c));
		} else if ((op == DW_OP_plus || op == DW_OP_minus) && depth >= 2) {
			depth--;
			if (!combine(&stack[depth - 1], &stack[depth], op == DW_OP_minus))
				return false;
		} else {
			return false;
		}
	}
	if (c.bad || depth != 1 || stack[0].base == NO_REGISTER)
		return false;
	*out = stack[0];
	return true;
}

/* What GNU ld and gold say of the PLT: rsp + 8 + ((rip & 15) >= N) * 8. */
static bool is_plt(struct cursor c, int64_t *threshold)
{
	static const uint8_t before[] = { 0x77, 8, 0x80, 0, 0x3f, 0x1a }, after[] = { 0x2a, 0x33, 0x24, 0x22 };

	if (cursor_left(&c) != sizeof(before) + 1 + sizeof(after) || memcmp(c.at, before, sizeof(before)) ||
	    memcmp(c.at + sizeof(before) + 1, after, sizeof(after)))
		return false;
	*threshold = c.at[sizeof(before)] - DW_OP_lit0;
	return *threshold >= 0 && *threshold < 16;
}

/* What OpenSSL says of its Montgomery multiplication: the word at rsp + N + 8 * register, plus 8. */
static bool is_indexed(struct cursor c, uint32_t *base, int64_t *before, uint64_t *after)
{
	static const uint8_t scaled[] = { 0, DW_OP_lit0 + 8, DW_OP_mul, DW_OP_plus, DW_OP_deref, DW_OP_plus_uconst };

	if (read_u8(&c) != DW_OP_breg0 + SP_REGISTER(MACHINE_X86_64))
		return false;
	*before = read_sleb(&c);
	*base = (uint32_t)read_u8(&c) - DW_OP_breg0;
	if (c.bad || *base >= 16 || cursor_left(&c) <= sizeof(scaled) || memcmp(c.at, scaled, sizeof(scaled)))
		return false;
	cursor_skip(&c, sizeof(scaled));
	*after = read_uleb(&c);
	return !c.bad && !cursor_left(&c);
}

/* Both offsets in one field; false if they do not fit. */
static bool set_offsets(struct frame_row *row, int64_t before, int64_t after)
{
	if (after < 0 || after > 0xff || before < -(1 << 23) || before >= 1 << 23)
		return false;
	row->expression_offset = (int64_t)((uint64_t)before << 8) | after;
	return true;
}

void set_cfa_expression(struct frame_row *row, struct cursor expression, uint16_t machine)
{
	uint32_t index;
	int64_t before;
	uint64_t after;
	struct term term;

	row->cfa = UNWIND_UNSUPPORTED;
	if (machine == MACHINE_X86_64 && is_plt(expression, &row->expression_offset)) {
		row->cfa = UNWIND_CFA_PLT;
		return;
	}
	if (machine == MACHINE_X86_64 && is_indexed(expression, &index, &before, &after)) {
		if (after <= 0xff && set_offsets(row, before, (int64_t)after))
			row->cfa = (uint8_t)(UNWIND_CFA_INDEXED_DEREF + index);
		return;
	}
	if (!evaluate(expression, &term))
		return;
	if (!term.is_read) {
		row->cfa = cfa_by_register(term.base, machine);
		row->expression_offset = term.before;
		return;
	}
	if (!set_offsets(row, term.before, term.after))
		return;
	if (term.base == SP_REGISTER(machine))
		row->cfa = UNWIND_CFA_SP_DEREF;
	else if (term.base == FP_REGISTER(machine))
		row->cfa = UNWIND_CFA_FP_DEREF;
	else if (machine == MACHINE_X86_64 && term.base < 16)
		row->cfa = (uint8_t)(UNWIND_CFA_REGISTER_DEREF + term.base);
}

struct saved saved_by_expression(struct cursor expression, uint16_t machine)
{
	struct term term;

	if (!evaluate(expression, &term) || term.is_read)
		return (struct saved){ SAVED_OTHERWISE, 0 };
	if (term.base == FP_REGISTER(machine))
		return (struct saved){ SAVED_AT_FP, term.before };
	if (term.base == SP_REGISTER(machine))
		return (struct saved){ SAVED_AT_SP, term.before };
	return (struct saved){ SAVED_OTHERWISE, 0 };
}
