/* SPDX-License-Identifier: Apache-2.0 */
/* Packets in words, one a line, as `perf report -D` prints them where perf has words. arm_spe/text.py is the twin. */
#include "frame.h"

/* Longer than any line: 16 bytes in hex, and all 64 events by name or number. */
#define LONGEST_LINE 1024

/* Where a dump stands. Zeros at the start; the caller keeps it between calls. */
struct spe_dumper {
	uint64_t position;    /* next byte to print */
	uint64_t piece_end;   /* of the piece that `position` is in; not above position: none */
	uint64_t is_unparsed; /* in damage, past the last packet that could be read */
	struct spe_sync sync;
};

static const char *const reasons[SPE_REASONS] = {
	[SPE_REASON_HEADER] = "a byte that starts no packet",
	[SPE_REASON_NO_PC] = "a record without a PC",
	[SPE_REASON_UNCLOSED] = "a record that ran into the next",
	[SPE_REASON_BOUNDARY] = "no record follows its end",
};

static const char *const event_names[64] = {
	[0] = " EXCEPTION-GEN", [1] = " RETIRED",           [2] = " L1D-ACCESS",
	[3] = " L1D-REFILL",    [4] = " TLB-ACCESS",        [5] = " TLB-REFILL",
	[6] = " NOT-TAKEN",     [7] = " MISPRED",           [8] = " LLC-ACCESS",
	[9] = " LLC-REFILL",    [10] = " REMOTE-ACCESS",    [11] = " ALIGNMENT",
	[16] = " TXN",          [17] = " SVE-PARTIAL-PRED", [18] = " SVE-EMPTY-PRED",
	[19] = " L2D-ACCESS",   [20] = " L2D-MISS",         [21] = " HITM",
	[22] = " LFB",          [23] = " SNOOPED",          [24] = " STREAMING-SVE",
	[25] = " SMCU",
};

static const char hex_digits[] = "0123456789abcdef";

static char *put(char *o, const char *text)
{
	size_t bytes = strlen(text);

	memcpy(o, text, bytes);
	return o + bytes;
}

static char *put_decimal(char *o, uint64_t value)
{
	char digits[20];
	int n = 0;

	do {
		digits[n++] = (char)('0' + value % 10);
		value /= 10;
	} while (value);
	while (n)
		*o++ = digits[--n];
	return o;
}

static char *put_hex(char *o, uint64_t value, int least_digits)
{
	int n = value ? (67 - __builtin_clzll(value)) >> 2 : 1;

	for (n = n < least_digits ? least_digits : n; n; n--)
		*o++ = hex_digits[value >> (4 * (n - 1)) & 15];
	return o;
}

static char *put_flag(char *o, int is_set, const char *text)
{
	return is_set ? put(o, text) : o;
}

static char *put_reserved(char *o, uint8_t payload)
{
	return put_hex(put(o, " RESERVED 0x"), payload, 2);
}

static char *put_other(char *o, uint8_t v)
{
	unsigned code = (v >> 4 & 7) << 1 | (v >> 2 & 1); /* SME: the size code's low bit is bit 2 */

	if ((v & 0xf8) == 0) {
		o = put_flag(put(o, "OTHER"), v & 4, " ASE");
		return put(put_flag(o, v & 2, " FP"), v & 1 ? " COND-SELECT" : " INSN-OTHER");
	}
	if ((v & 0x89) == 0x08) {
		o = put_decimal(put(o, "SVE-OTHER EVLEN "), 32u << (v >> 4 & 7));
		return put_flag(put_flag(o, v & 2, " FP"), v & 4, " PRED");
	}
	if ((v & 0x89) == 0x88) {
		o = put(o, "SME-OTHER ETS ");
		o = code < 12 ? put_decimal(o, 128u << code) : put(o, code == 15 ? "ZA" : "RESERVED");
		return put_flag(o, v & 2, " FP");
	}
	return put_reserved(put(o, "OTHER"), v);
}

static char *put_access(char *o, uint8_t v)
{
	o = put(o, v & 1 ? "ST" : "LD");
	if ((v & 0xe2) == 0x02)
		return put_flag(put_flag(put_flag(o, v & 4, " AT"), v & 8, " EXCL"), v & 16, " AR");
	switch (v & 0xfe) {
	case 0x00: return put(o, " GP-REG");
	case 0x04: return put(o, " SIMD-FP");
	case 0x10: return put(o, " UNSPEC-REG");
	case 0x14: return put(o, " MTE-TAG");
	case 0x20: return put(o, " MEMCPY");
	case 0x30: return put(o, " NV-SYSREG");
	}
	if (v == 0x25)
		return put(o, " MEMSET");
	if ((v & 0x0a) == 0x08) {
		o = put_decimal(put(o, " SVE-SME-REG EVLEN "), 32u << (v >> 4 & 7));
		return put_flag(put_flag(o, v & 4, " PRED"), v & 0x80, " SG");
	}
	if ((v & 0xfa) == 0x40)
		return put_flag(put(o, " GCS"), v & 4, " COMM");
	return put_reserved(o, v);
}

static char *put_branch(char *o, uint8_t v)
{
	static const char *const call_return[4] = { "", " CR-BL", " CR-RET", " CR-NON-BL-RET" };

	*o++ = 'B';
	if (v & 0xe0)
		return put_reserved(o, v);
	o = put_flag(put_flag(put_flag(o, v & 1, " COND"), v & 2, " IND"), v & 4, " GCS");
	return put(o, call_return[v >> 3]);
}

static char *put_events(char *o, uint64_t value)
{
	uint64_t unnamed = 0;
	char separator = ':';

	o = put(o, "EV");
	for (; value; value &= value - 1) {
		int bit = __builtin_ctzll(value);

		if (event_names[bit])
			o = put(o, event_names[bit]);
		else
			unnamed |= 1ull << bit;
	}
	if (!unnamed)
		return o;
	o = put(o, " IMPDEF");
	for (; unnamed; unnamed &= unnamed - 1) {
		*o++ = separator;
		o = put_decimal(o, (uint64_t)__builtin_ctzll(unnamed));
		separator = ',';
	}
	return o;
}

static char *put_instruction_address(char *o, const char *name, uint64_t payload)
{
	o = put_hex(put(put(o, name), " 0x"), payload << 8 >> 8, 1);
	o = put_decimal(put(o, " el"), payload >> 61 & 3);
	return put_decimal(put(o, " ns="), payload >> 63);
}

static char *put_latency(char *o, const char *name, uint64_t payload)
{
	return put(put_decimal(put(o, "LAT "), payload), name);
}

static char *put_unnamed(char *o, const struct spe_packet *packet)
{
	const char *sort = packet->kind == SPE_IMPDEF ? " IMPDEF-" : " RESERVED-";

	if (packet->index && spe_is_address((uint8_t)packet->header))
		return put_hex(put(put_decimal(put(put(o, "ADDR"), sort), packet->index), " 0x"), packet->payload, 1);
	if (packet->index && spe_is_counter((uint8_t)packet->header))
		return put_decimal(put_latency(o, sort, packet->payload), packet->index);
	o = put_hex(put(o, "UNKNOWN 0x"), packet->header, 1);
	return put_hex(put(o, " 0x"), packet->payload, 1);
}

static char *put_packet(char *o, const struct spe_packet *packet)
{
	uint64_t payload = packet->payload;

	switch ((enum spe_kind)packet->kind) {
	case SPE_PC: return put_instruction_address(o, "PC", payload);
	case SPE_TGT: return put_instruction_address(o, "TGT", payload);
	case SPE_PBT: return put_instruction_address(o, "PBT", payload);
	case SPE_VA: return put_hex(put(o, "VA 0x"), payload, 1);
	case SPE_PA:
		o = put_hex(put(o, "PA 0x"), payload << 8 >> 8, 1);
		o = put_decimal(put(o, " ns="), payload >> 63);
		o = put_decimal(put(o, " ch="), payload >> 62 & 1);
		return put_hex(put(o, " pat="), payload >> 56 & 15, 1);
	case SPE_TOT: return put_latency(o, " TOT", payload);
	case SPE_ISSUE: return put_latency(o, " ISSUE", payload);
	case SPE_XLAT: return put_latency(o, " XLAT", payload);
	case SPE_ALT: return put_latency(o, " ALT-ISSUE", payload);
	case SPE_EVENTS: return put_events(o, payload);
	case SPE_OP:
		return (packet->header & 3) == 0   ? put_other(o, (uint8_t)payload)
		       : (packet->header & 3) == 1 ? put_access(o, (uint8_t)payload)
		                                   : put_branch(o, (uint8_t)payload);
	case SPE_CTX1: return put(put_hex(put(o, "CONTEXT 0x"), payload, 1), " el1");
	case SPE_CTX2: return put(put_hex(put(o, "CONTEXT 0x"), payload, 1), " el2");
	case SPE_SOURCE: return put_decimal(put(o, "DATA-SOURCE "), payload);
	case SPE_TS: return put_decimal(put(o, "TS "), payload);
	case SPE_END: return put(o, "END");
	case SPE_PAD: return put(o, "PAD");
	case SPE_BAD: return put(o, "BAD");
	case SPE_CUT: return put(o, "CUT");
	default: return put_unnamed(o, packet);
	}
}

static char *put_offset(char *o, uint64_t offset)
{
	return put(put_hex(put(o, ".  "), offset, 8), ": ");
}

/* Offset and bytes; at most 16 of them, which only padding exceeds. */
static char *put_bytes(char *o, uint64_t offset, const uint8_t *p, uint64_t bytes)
{
	uint64_t shown = bytes < 16 ? bytes : 16;

	o = put_offset(o, offset);
	memset(o, ' ', 3 * 16);
	for (uint64_t i = 0; i < shown; i++) {
		o[3 * i + 1] = hex_digits[p[i] >> 4];
		o[3 * i + 2] = hex_digits[p[i] & 15];
	}
	return o + 3 * 16;
}

static char *put_piece(char *o, uint64_t offset, const struct spe_record *r, enum spe_piece piece, uint8_t reason)
{
	o = put_offset(o, offset);
	o = put(o, piece == SPE_PIECE_DAMAGE ? " ---- damaged: " : " ---- open: ");
	o = put_decimal(o, r->end - r->start);
	o = put(o, " bytes, ");
	o = put(o, piece == SPE_PIECE_DAMAGE ? reasons[reason] : "not closed before the input ends");
	*o++ = '\n';
	return o;
}

/* Prints from d->position on into `out` until fewer than a line's bytes are left or the input is done
 * (d->position == len); returns the bytes written. `base` is added to the offsets shown. */
SPE_EXPORT uint64_t spe_dump(const uint8_t *buf, uint64_t len, uint64_t base, struct spe_dumper *d, char *out,
                             uint64_t capacity)
{
	char *o = out, *last = out + capacity;

	while (d->position < len && last - o >= 2 * LONGEST_LINE) {
		const uint8_t *p = buf + d->position, *end;
		struct spe_packet packet;

		if (d->position >= d->piece_end && *p) {
			struct spe_record r = { .start = d->position };
			enum spe_piece piece = spe_next_piece(buf, len, &d->sync, &r);

			if (piece == SPE_PIECE_RECORD)
				spe_note_record(&d->sync, &r);
			else
				o = put_piece(o, base + d->position, &r, piece, d->sync.reason);
			d->piece_end = r.end;
			d->is_unparsed = 0;
		}
		end = d->position < d->piece_end ? buf + d->piece_end : buf + len;
		packet = spe_read_packet(p, end);
		if (packet.kind == SPE_BAD || packet.kind == SPE_CUT)
			d->is_unparsed = 1;
		if (d->position >= d->piece_end) { /* padding between pieces */
			uint64_t run = (uint64_t)(spe_skip_padding(p, end) - p);

			o = put(put_bytes(o, base + d->position, p, run), " PAD");
			d->position += run;
		} else if (d->is_unparsed) {
			uint64_t run = (uint64_t)(end - p) < 16 ? (uint64_t)(end - p) : 16;

			o = put(put_bytes(o, base + d->position, p, run), " skipped");
			d->position += run;
		} else {
			uint64_t bytes =
				packet.kind == SPE_PAD ? (uint64_t)(spe_skip_padding(p, end) - p) : packet.bytes;

			o = put_packet(put(put_bytes(o, base + d->position, p, bytes), " "), &packet);
			d->position += bytes;
		}
		*o++ = '\n';
	}
	return (uint64_t)(o - out);
}
