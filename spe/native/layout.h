/* SPDX-License-Identifier: Apache-2.0 */
/* How slots of one stream are laid out: in a handful of ways, by which packets a record has. Once a slot has been read
 * packet by packet, others like it are known by comparing them under a mask. */
#ifndef SPE_LAYOUT_H
#define SPE_LAYOUT_H

#include "slot.h"

#define SPE_LAYOUTS 128 /* what spe_layout_of tells apart */

struct spe_layout {
	uint64_t fixed[SPE_SLOT / 8];    /* bits that all such slots share: headers, and zeros in place of packets */
	uint64_t expected[SPE_SLOT / 8]; /* what those bits are */
	uint64_t is_va;                  /* all ones if the address packet is a data address */
	uint32_t present;                /* as in the column */
};

/* As if nothing had been read: no slot is laid out so. */
static inline void spe_forget_layouts(struct spe_layout layouts[SPE_LAYOUTS])
{
	memset(layouts, 0, SPE_LAYOUTS * sizeof *layouts);
	for (unsigned i = 0; i < SPE_LAYOUTS; i++)
		layouts[i].expected[0] = 1;
}

/* The layout that a slot may have, by the headers in which records of one stream differ. */
static inline unsigned spe_layout_of(const uint8_t *p, unsigned events_bytes)
{
	const uint8_t *q = p + 22 + events_bytes;

	return (p[19] & 3) | (q[6] & 3) << 2 | (q[15] & 2) << 3 | (q[18] & 1) << 5 | (q[27] & 1) << 6;
}

static inline int spe_is_laid_out(const uint8_t *p, const struct spe_layout *layout)
{
	typedef uint64_t two_words __attribute__((vector_size(16)));
	two_words differs = { 0 };

	for (unsigned i = 0; i < SPE_SLOT / sizeof differs; i++) {
		two_words bytes, fixed, expected;

		memcpy(&bytes, p + i * sizeof bytes, sizeof bytes);
		memcpy(&fixed, &layout->fixed[2 * i], sizeof fixed);
		memcpy(&expected, &layout->expected[2 * i], sizeof expected);
		differs |= (bytes & fixed) ^ expected;
	}
	return !(differs[0] | differs[1]);
}

/* The layout of a slot that spe_read_slot has read to `s`. */
static inline void spe_learn_layout(const uint8_t *p, unsigned events_bytes, const struct spe_slot *s,
                                    struct spe_layout *layout)
{
	const unsigned q = 22 + events_bytes;
	const struct {
		uint32_t kinds;
		unsigned place, bytes; /* of the payload */
	} payloads[] = {
		{ 1u << SPE_PC, 1, 8 },
		{ 1u << SPE_CTX1, 10, 4 },
		{ 1u << SPE_CTX2, 15, 4 },
		{ 1u << SPE_OP, 20, 1 },
		{ 1u << SPE_EVENTS, 22, events_bytes },
		{ 1u << SPE_ISSUE, q + 1, 2 },
		{ 1u << SPE_TOT, q + 4, 2 },
		{ 1u << SPE_TGT | 1u << SPE_VA, q + 7, 8 },
		{ 1u << SPE_XLAT, q + 16, 2 },
		{ 1u << SPE_PA, q + 19, 8 },
		{ 1u << SPE_SOURCE, q + 28, 1 },
		{ 1u << SPE_TS, 56, 8 },
	};
	uint8_t fixed[SPE_SLOT];

	memset(fixed, 0xff, sizeof fixed);
	for (unsigned i = 0; i < sizeof payloads / sizeof *payloads; i++)
		if (s->present & payloads[i].kinds)
			memset(fixed + payloads[i].place, 0, payloads[i].bytes);
	memcpy(layout->fixed, fixed, sizeof fixed);
	memcpy(layout->expected, p, SPE_SLOT);
	for (unsigned i = 0; i < SPE_SLOT / 8; i++)
		layout->expected[i] &= layout->fixed[i];
	layout->is_va = (uint64_t)0 - (s->present >> SPE_VA & 1);
	layout->present = s->present;
}

/* A slot that is laid out so, as spe_read_slot reads it; what no packet holds is zero in the slot, too. */
static inline __attribute__((always_inline)) struct spe_slot spe_take_slot(const uint8_t *p, unsigned events_bytes,
                                                                           const struct spe_layout *layout)
{
	const uint8_t *q = p + 22 + events_bytes;
	uint64_t address = spe_load(q + 7, 8), is_ts = (uint64_t)0 - (layout->present >> SPE_TS & 1);

	return (struct spe_slot){
		.pc = spe_load(p + 1, 8),
		.va = address & layout->is_va,
		.target = address & ~layout->is_va,
		.pa = spe_load(q + 19, 8),
		.timestamp = spe_load(p + 56, 8) & is_ts,
		.present = layout->present,
		.events = (uint32_t)spe_load(p + 22, events_bytes),
		.context_el1 = (uint32_t)spe_load(p + 10, 4),
		.context_el2 = (uint32_t)spe_load(p + 15, 4),
		.latency = { (uint16_t)spe_load(q + 4, 2), (uint16_t)spe_load(q + 1, 2),
		             (uint16_t)spe_load(q + 16, 2) },
		.data_source = q[28],
		.op_class = p[19] & 3,
		.op = p[20],
	};
}

#endif
