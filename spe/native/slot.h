/* SPDX-License-Identifier: Apache-2.0 */
/* One record in a slot of 64 bytes as Neoverse cores write it: each packet at its place, the optional ones padding. */
#ifndef SPE_SLOT_H
#define SPE_SLOT_H

#include "frame.h"

/* Bytes that the fast paths may look at without asking where the input ends. */
#define SPE_LONGEST_PACKET 9

/* What a slot holds; 0 where `present` has no bit. */
struct spe_slot {
	uint64_t pc, va, target, pa; /* payloads */
	uint64_t timestamp;
	uint32_t present; /* as in the column */
	uint32_t events, context_el1, context_el2;
	uint16_t latency[3]; /* total, issue, translation */
	uint16_t data_source;
	uint8_t op_class, op;
};

/* `field` holds the header in its lowest byte, and of the payload at least whether it is zero. All ones if the header
 * is the expected one, else 0; `*bad` gathers the bits of anything else but padding. */
static inline uint64_t spe_optional(uint8_t expected, uint64_t field, uint64_t *bad)
{
	uint64_t keep = (uint64_t)0 - ((uint8_t)field == expected);

	*bad |= ~keep & field;
	return keep;
}

/* `events_bytes` is 2 (N1) or 4 (V1, V2). Returns 0 if the bytes are no such slot.
 * No branch depends on which optional packets there are: in a sampled stream that is as good as random. */
static inline __attribute__((always_inline)) int spe_read_slot(const uint8_t *p, unsigned events_bytes,
                                                               struct spe_slot *s)
{
	const uint8_t *q = p + 22 + events_bytes;
	uint64_t bad = 0;
	uint64_t operation = spe_load(p + 19, 8), latencies = spe_load(q, 8);
	uint64_t address = spe_load(q + 7, 8), pa = spe_load(q + 19, 8), closing = spe_load(p + 56, 8);
	uint64_t context_el1 = spe_load(p + 9, 8) & 0xffffffffff, context_el2 = spe_load(p + 14, 8) & 0xffffffffff;
	uint64_t xlat = spe_load(q + 15, 4) & 0xffffff, source = spe_load(q + 27, 2);
	uint64_t is_tgt = (uint64_t)0 - (q[6] == 0xb1), is_va = (uint64_t)0 - (q[6] == 0xb2);
	uint64_t is_ctx1 = spe_optional(0x64, context_el1, &bad), is_ctx2 = spe_optional(0x65, context_el2, &bad);
	uint64_t is_xlat = spe_optional(0x9a, xlat, &bad), is_source = spe_optional(0x43, source, &bad);
	uint64_t is_pa = (uint64_t)0 - (q[18] == 0xb3), is_ts = (uint64_t)0 - (p[55] == 0x71);

	bad |= ~is_pa & (q[18] | pa);
	bad |= ~(is_tgt | is_va) & (q[6] | address);
	bad |= ~is_ts & (p[55] | (closing ^ 1ull << 56));
	bad |= p[0] ^ 0xb0u;
	bad |= (latencies ^ 0x98000099) & 0xff0000ff;
	bad |= (operation & 0xfc) ^ 0x48;
	bad |= (operation & 3) == 3;
	for (const uint8_t *gap = q + 29; gap < p + 55; gap++)
		bad |= *gap;
	if (bad)
		return 0;
	*s = (struct spe_slot){
		.pc = spe_load(p + 1, 8),
		.pa = pa,
		.va = address & is_va,
		.target = address & is_tgt,
		.timestamp = closing & is_ts,
		.present = (uint32_t)(SPE_REQUIRED | 1u << SPE_ISSUE | (is_tgt & 1u << SPE_TGT) |
		                      (is_va & 1u << SPE_VA) | (is_ctx1 & 1u << SPE_CTX1) | (is_ctx2 & 1u << SPE_CTX2) |
		                      (is_xlat & 1u << SPE_XLAT) | (is_pa & 1u << SPE_PA) |
		                      (is_source & 1u << SPE_SOURCE) | (is_ts & 1u << SPE_TS)),
		.events = (uint32_t)spe_load(p + 22, events_bytes),
		.context_el1 = (uint32_t)(context_el1 >> 8),
		.context_el2 = (uint32_t)(context_el2 >> 8),
		.latency = { (uint16_t)(latencies >> 32), (uint16_t)(latencies >> 8), (uint16_t)(xlat >> 8) },
		.data_source = (uint16_t)(source >> 8),
		.op_class = operation & 3,
		.op = (uint8_t)(operation >> 8),
	};
	return 1;
}

#endif
