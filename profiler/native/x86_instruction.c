// SPDX-License-Identifier: Apache-2.0
/* See the header. Tables are bit sets by opcode. */
#include "x86_instruction.h"

enum {
	MOST_BYTES = 15, /* of an instruction */
	REX_W = 8,
};

struct decoder {
	const uint8_t *code;
	unsigned at, size;
	bool is_bad, is_word, is_short_address; /* prefixes 66 and 67 */
	struct x86_instruction out;
};

static bool is_in(const uint32_t set[8], uint8_t opcode)
{
	return set[opcode >> 5] >> (opcode & 31) & 1;
}

/* Bit n of word k: opcode 32 * k + n. */
static const uint32_t ONE_BYTE_MODRM[8] = {
	0x0f0f0f0f, /* 00: arithmetic, each of 8 opcodes the first 4 */
	0x0f0f0f0f, /* 20 */
	0,          /* 40 */
	0x00000a08, /* 60: movsxd, imul */
	0x0000fffb, /* 80: 82 is none */
	0,          /* a0 */
	0xff0f00c3, /* c0: shifts, mov, x87 */
	0xc0c00000, /* e0: f6, f7, fe, ff */
};
static const uint32_t ONE_BYTE_IMM8[8] = {
	0x10101010, 0x10101010, 0, 0xffff0c00, 0x00000009, 0x00ff0100, 0x00002043, 0x000008ff,
};
/* As wide as an operand, but four bytes of eight. */
static const uint32_t ONE_BYTE_IMM[8] = {
	0x20202020, 0x20202020, 0, 0x00000300, 0x00000002, 0xff000200, 0x00000080, 0,
};
/* Not in 64-bit mode. */
static const uint32_t ONE_BYTE_NONE[8] = {
	0xc0c040c0, 0x80808080, 0, 0x00000003, 0x04000004, 0, 0x00700000, 0x00000400,
};
static const uint32_t TWO_BYTE_NO_MODRM[8] = {
	0x00004be0, 0x00ff0000, 0, 0x00800000, 0x0000ffff, 0x00000707, 0x0000ff00, 0,
};
static const uint32_t TWO_BYTE_IMM8[8] = { 0x00008000, 0, 0, 0x000f0000, 0, 0x04001010, 0x00000074, 0 };

static uint8_t take(struct decoder *d)
{
	if (d->at >= d->size) {
		d->is_bad = true;
		return 0;
	}
	return d->code[d->at++];
}

static int64_t take_signed(struct decoder *d, unsigned bytes)
{
	uint64_t value = 0;

	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)take(d) << 8 * i;
	if (bytes == 0 || bytes == 8)
		return (int64_t)value;
	unsigned unused = 64 - 8 * bytes;

	return (int64_t)(value << unused) >> unused;
}

static void take_modrm(struct decoder *d)
{
	struct x86_instruction *out = &d->out;
	unsigned displacement;

	out->has_modrm = true;
	out->modrm = take(d);
	unsigned mod = out->modrm >> 6, rm = out->modrm & 7;

	if (mod == 3)
		return;
	displacement = mod == 1 ? 1 : mod == 2 ? 4 : 0;
	if (rm == 4) {
		out->sib = take(d);
		rm = out->sib & 7;
	}
	if (mod == 0 && rm == 5)
		displacement = 4;
	out->displacement = (int32_t)take_signed(d, displacement);
}

/* Vector instructions: VEX with one or two bytes, EVEX; only their length matters. */
static void take_vector(struct decoder *d, uint8_t first)
{
	uint8_t map = 1, opcode;

	if (first != 0xc5)
		map = take(d) & 7;
	take(d);
	if (first == 0x62)
		take(d);
	opcode = take(d);
	d->out.map = X86_VECTOR;
	d->out.opcode = opcode;
	if (map == 0 || map == 4 || map == 7)
		d->is_bad = true;
	if (map != 1 || opcode != 0x77 || first == 0x62)
		take_modrm(d);
	if (map == 3 || (map == 1 && is_in(TWO_BYTE_IMM8, opcode)))
		d->out.immediate = take_signed(d, 1);
}

/* AMD's XOP looks like VEX behind 8f, in maps from 8 on; below, 8f is a pop. */
static bool take_xop(struct decoder *d)
{
	uint8_t map = d->at < d->size ? d->code[d->at] & 31 : 0;

	if (map < 8)
		return false;
	take(d), take(d);
	d->out.map = X86_VECTOR;
	d->out.opcode = take(d);
	take_modrm(d);
	d->out.immediate = take_signed(d, map == 8 ? 1 : map == 10 ? 4 : 0);
	return true;
}

static void take_0f(struct decoder *d)
{
	struct x86_instruction *out = &d->out;

	out->map = X86_0F;
	out->opcode = take(d);
	if (out->opcode == 0x38 || out->opcode == 0x3a) {
		out->map = out->opcode == 0x38 ? X86_0F38 : X86_0F3A;
		out->opcode = take(d);
		take_modrm(d);
		if (out->map == X86_0F3A)
			out->immediate = take_signed(d, 1);
		return;
	}
	if (!is_in(TWO_BYTE_NO_MODRM, out->opcode))
		take_modrm(d);
	if (out->opcode >= 0x80 && out->opcode < 0x90)
		out->immediate = take_signed(d, 4);
	else if (is_in(TWO_BYTE_IMM8, out->opcode))
		out->immediate = take_signed(d, 1);
}

static void take_one_byte(struct decoder *d)
{
	struct x86_instruction *out = &d->out;
	unsigned operand = d->is_word ? 2 : 4;
	uint8_t opcode = out->opcode;

	if (is_in(ONE_BYTE_NONE, opcode)) {
		d->is_bad = true;
		return;
	}
	if (is_in(ONE_BYTE_MODRM, opcode))
		take_modrm(d);
	bool is_test = (opcode == 0xf6 || opcode == 0xf7) && (out->modrm & 0x38) < 0x10;

	if (is_in(ONE_BYTE_IMM8, opcode) || (is_test && opcode == 0xf6))
		out->immediate = take_signed(d, 1);
	else if (opcode >= 0xb8 && opcode < 0xc0 && out->rex & REX_W)
		out->immediate = take_signed(d, 8);
	else if (is_in(ONE_BYTE_IMM, opcode) || is_test)
		out->immediate = take_signed(d, operand);
	else if (opcode == 0xe8 || opcode == 0xe9) /* branches have four, whatever the prefixes */
		out->immediate = take_signed(d, 4);
	else if (opcode >= 0xa0 && opcode < 0xa4)
		out->immediate = take_signed(d, d->is_short_address ? 4 : 8);
	else if (opcode == 0xc2 || opcode == 0xca)
		out->immediate = take_signed(d, 2);
	else if (opcode == 0xc8)
		out->immediate = take_signed(d, 3);
}

struct x86_instruction x86_decode(const uint8_t *code, uint64_t size)
{
	struct decoder d = { .code = code,
		             .size = size < MOST_BYTES ? (unsigned)size : MOST_BYTES,
		             .out = { .sib = 0x24 } };
	uint8_t byte = take(&d);

	for (bool is_prefix = true; is_prefix && !d.is_bad;) {
		is_prefix = true;
		switch (byte) {
		case 0x66: d.is_word = true; break;
		case 0x67: d.is_short_address = true; break;
		case 0x26:
		case 0x2e:
		case 0x36:
		case 0x3e:
		case 0x64:
		case 0x65:
		case 0xf0:
		case 0xf2:
		case 0xf3: break;
		default: is_prefix = false;
		}
		if (is_prefix)
			byte = take(&d);
	}
	if ((byte & 0xf0) == 0x40) {
		d.out.rex = byte;
		d.is_word = d.is_word && !(byte & REX_W);
		byte = take(&d);
	}
	d.out.opcode = byte;
	if (byte == 0x0f)
		take_0f(&d);
	else if (byte == 0xc4 || byte == 0xc5 || byte == 0x62)
		take_vector(&d, byte);
	else if (byte != 0x8f || !take_xop(&d))
		take_one_byte(&d);
	d.out.length = d.is_bad ? 0 : (uint8_t)d.at;
	return d.out;
}
