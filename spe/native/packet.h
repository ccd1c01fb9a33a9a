/* SPDX-License-Identifier: Apache-2.0 */
/* One SPE packet: what its header says, how long it is, what it carries.
 * Format: Arm Architecture Reference Manual (DDI 0487), Statistical Profiling Extension sample record format. */
#ifndef SPE_PACKET_H
#define SPE_PACKET_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "packets are little-endian and are loaded as they are"
#endif

#define SPE_EXPORT __attribute__((visibility("default")))

/* A packet's kind. The first fifteen are the fields of a record, at most one of each: the kind is also the field's bit
 * in the `present` column. arm_spe/packet.py holds the same numbers. */
enum spe_kind {
	SPE_PC,    /* address 0 */
	SPE_TGT,   /* address 1: branch target */
	SPE_VA,    /* address 2 */
	SPE_PA,    /* address 3 */
	SPE_PBT,   /* address 4: previous branch target */
	SPE_TOT,   /* counter 0: total latency */
	SPE_ISSUE, /* counter 1 */
	SPE_XLAT,  /* counter 2 */
	SPE_ALT,   /* counter 4: issue latency in the alternate clock */
	SPE_EVENTS,
	SPE_OP,
	SPE_CTX1, /* CONTEXTIDR_EL1 */
	SPE_CTX2, /* CONTEXTIDR_EL2 */
	SPE_SOURCE,
	SPE_TS,  /* closes a record */
	SPE_END, /* closes a record */
	SPE_PAD,
	SPE_IMPDEF,  /* address or counter with an implementation-defined index */
	SPE_UNKNOWN, /* reserved, but its size is known */
	SPE_BAD,     /* no defined size: the stream is damaged here */
	SPE_CUT,     /* the input ends inside the packet */
};

/* Bits of `present` beyond the fields. */
#define SPE_HAS_OTHER     (1u << 16) /* packets of kind IMPDEF or UNKNOWN, listed beside the columns */
#define SPE_HAS_DUPLICATE (1u << 17) /* a second packet of a kind; the first was kept */

struct spe_packet {
	uint64_t payload; /* zero-extended */
	uint16_t header;  /* first byte of an extended header << 8 | header byte */
	uint8_t kind;     /* enum spe_kind */
	uint8_t bytes;    /* header and payload; 1 for BAD; what is left of the input for CUT */
	uint8_t index;    /* of an address or counter */
};

/* `bytes` is 1, 2, 4 or 8. One typed copy each: gcc turns a copy into part of a wider variable into a stalled reload.
 */
static inline uint64_t spe_load(const uint8_t *p, unsigned bytes)
{
	uint16_t half;
	uint32_t word;
	uint64_t doubleword;

	switch (bytes) {
	case 1: return *p;
	case 2: memcpy(&half, p, sizeof half); return half;
	case 4: memcpy(&word, p, sizeof word); return word;
	default: memcpy(&doubleword, p, sizeof doubleword); return doubleword;
	}
}

static inline int spe_is_address(uint8_t header)
{
	return (header & 0xf8) == 0xb0;
}

static inline int spe_is_counter(uint8_t header)
{
	return (header & 0xf8) == 0x98;
}

static inline uint8_t spe_indexed_kind(uint8_t header, unsigned index)
{
	static const uint8_t addresses[8] = { SPE_PC,  SPE_TGT,     SPE_VA,     SPE_PA,
		                              SPE_PBT, SPE_UNKNOWN, SPE_IMPDEF, SPE_IMPDEF };
	static const uint8_t counters[8] = { SPE_TOT, SPE_ISSUE,   SPE_XLAT,   SPE_UNKNOWN,
		                             SPE_ALT, SPE_UNKNOWN, SPE_IMPDEF, SPE_IMPDEF };

	if (index >= 16)
		return SPE_IMPDEF;
	if (index >= 8)
		return SPE_UNKNOWN;
	return spe_is_address(header) ? addresses[index] : counters[index];
}

static inline uint8_t spe_short_kind(uint8_t header)
{
	if (header == 0x71)
		return SPE_TS;
	if (spe_is_address(header) || spe_is_counter(header))
		return spe_indexed_kind(header, header & 7);
	if ((header & 0xcf) == 0x42)
		return SPE_EVENTS;
	/* The size rule allows 4 and 8 bytes of data source too; no core writes them, so they stay unknown and whole.
	 */
	if ((header & 0xef) == 0x43)
		return SPE_SOURCE;
	if (header == 0x64)
		return SPE_CTX1;
	if (header == 0x65)
		return SPE_CTX2;
	if (header >= 0x48 && header <= 0x4a)
		return SPE_OP;
	return SPE_UNKNOWN;
}

/* The packet at `p`, which must be below `end`. Padding comes one byte at a time. */
static inline struct spe_packet spe_read_packet(const uint8_t *p, const uint8_t *end)
{
	struct spe_packet packet = { .header = p[0], .bytes = 1 };
	uint8_t header = p[0];
	unsigned header_bytes = 1, payload_bytes;

	if (header < 0x20) {
		packet.kind = header == 0 ? SPE_PAD : header == 1 ? SPE_END : SPE_BAD;
		return packet;
	}
	if (header < 0x40) {
		if (end - p < 2) {
			packet.kind = SPE_CUT;
			return packet;
		}
		header = p[1];
		/* Includes the alignment packet of early drafts (20-2f, 00): no core writes it, so it means damage. */
		if (header < 0x40) {
			packet.kind = SPE_BAD;
			return packet;
		}
		header_bytes = 2;
		packet.header = (uint16_t)(p[0] << 8 | header);
		if (p[0] < 0x24 && (spe_is_address(header) || spe_is_counter(header))) {
			packet.index = (uint8_t)((p[0] & 3) << 3 | (header & 7));
			packet.kind = spe_indexed_kind(header, packet.index);
		} else {
			packet.kind = SPE_UNKNOWN;
		}
	} else {
		packet.kind = spe_short_kind(header);
		packet.index = header & 7;
	}
	payload_bytes = 1u << (header >> 4 & 3);
	if ((size_t)(end - p) < header_bytes + payload_bytes) {
		packet.kind = SPE_CUT;
		packet.bytes = (uint8_t)(end - p);
		return packet;
	}
	packet.payload = spe_load(p + header_bytes, payload_bytes);
	packet.bytes = (uint8_t)(header_bytes + payload_bytes);
	return packet;
}

/* The first byte at or after `p` that is not padding, or `end`. */
static inline const uint8_t *spe_skip_padding(const uint8_t *p, const uint8_t *end)
{
	while (end - p >= 8) {
		uint64_t word = spe_load(p, 8);

		if (word)
			return p + (__builtin_ctzll(word) >> 3);
		p += 8;
	}
	while (p < end && !*p)
		p++;
	return p;
}

/* Only bits 55:0 of a virtual address are delivered; bit 55 says what the rest were. */
static inline uint64_t spe_canonical(uint64_t payload)
{
	return (uint64_t)((int64_t)(payload << 8) >> 8);
}

#endif
