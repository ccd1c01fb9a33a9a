/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes to columns. Three paths with the same result: a template for the 64-byte slots of Neoverse cores, a walk over
 * packets for any other record without peculiarities, and frame.c for all else. */
#include "record.h"

#include "slot.h"

static void clear_columns(const struct spe_columns *c)
{
	uint64_t n = c->capacity;
	/* Those that a lean decoder fills come first. */
	uint64_t *const words[] = {
		c->pc, c->va, c->pa, c->events, c->timestamp, c->branch_target, c->previous_branch_target
	};
	uint32_t *const contexts[] = { c->context_el1, c->context_el2 };
	uint16_t *const halves[] = { c->total_latency, c->issue_latency, c->translation_latency, c->data_source,
		                     c->alt_issue_latency };
	uint8_t *const bytes[] = {
		c->op_class, c->op, c->pc_top, c->branch_target_top, c->va_top, c->pa_top, c->previous_branch_target_top
	};

	for (size_t i = 0; i < (c->is_lean ? 5 : sizeof words / sizeof *words); i++)
		memset(words[i], 0, n * sizeof(uint64_t));
	for (size_t i = 0; i < sizeof contexts / sizeof *contexts; i++)
		memset(contexts[i], 0, n * sizeof(uint32_t));
	for (size_t i = 0; i < (c->is_lean ? 4 : sizeof halves / sizeof *halves); i++)
		memset(halves[i], 0, n * sizeof(uint16_t));
	for (size_t i = 0; i < (c->is_lean ? 2 : sizeof bytes / sizeof *bytes); i++)
		memset(bytes[i], 0, n);
}

static void write_record(const struct spe_columns *c, uint64_t row, const struct spe_record *r)
{
	const uint64_t *value = r->value;

	c->offset[row] = r->start;
	c->present[row] = r->present;
	c->pc[row] = spe_canonical(value[SPE_PC]);
	c->branch_target[row] = spe_canonical(value[SPE_TGT]);
	c->va[row] = spe_canonical(value[SPE_VA]);
	c->pa[row] = value[SPE_PA] << 8 >> 8;
	c->previous_branch_target[row] = spe_canonical(value[SPE_PBT]);
	c->events[row] = value[SPE_EVENTS];
	c->timestamp[row] = value[SPE_TS];
	c->context_el1[row] = (uint32_t)value[SPE_CTX1];
	c->context_el2[row] = (uint32_t)value[SPE_CTX2];
	c->total_latency[row] = (uint16_t)value[SPE_TOT];
	c->issue_latency[row] = (uint16_t)value[SPE_ISSUE];
	c->translation_latency[row] = (uint16_t)value[SPE_XLAT];
	c->alt_issue_latency[row] = (uint16_t)value[SPE_ALT];
	c->data_source[row] = (uint16_t)value[SPE_SOURCE];
	c->op_class[row] = r->op_class;
	c->op[row] = (uint8_t)value[SPE_OP];
	c->pc_top[row] = (uint8_t)(value[SPE_PC] >> 56);
	c->branch_target_top[row] = (uint8_t)(value[SPE_TGT] >> 56);
	c->va_top[row] = (uint8_t)(value[SPE_VA] >> 56);
	c->pa_top[row] = (uint8_t)(value[SPE_PA] >> 56);
	c->previous_branch_target_top[row] = (uint8_t)(value[SPE_PBT] >> 56);
}

/* The packets of `r` that are no fields, as rows of other_…. */
static uint64_t write_others(const uint8_t *buf, const struct spe_columns *c, uint64_t n, uint64_t row,
                             const struct spe_record *r)
{
	const uint8_t *p = buf + r->start, *end = buf + r->end;

	while ((p = spe_skip_padding(p, end)) < end) {
		struct spe_packet packet = spe_read_packet(p, end);

		if (packet.kind == SPE_IMPDEF || packet.kind == SPE_UNKNOWN) {
			c->other_record[n] = (uint32_t)row;
			c->other_header[n] = packet.header;
			c->other_payload[n] = packet.payload;
			n++;
		}
		p += packet.bytes;
	}
	return n;
}

/* Everything the fast paths carry between records. */
struct cursor {
	const uint8_t *buf;
	const struct spe_columns *c;
	uint64_t row;
	uint64_t record_bytes;
	struct spe_sync sync;
};

static inline int take_clean(struct cursor *at, const uint8_t *start, const uint8_t *p, uint32_t present, uint8_t close,
                             uint64_t timestamp)
{
	struct spe_sync *sync = &at->sync;
	uint64_t length = (uint64_t)(p - start);

	if ((present & SPE_REQUIRED) != SPE_REQUIRED || sync->close != close ||
	    spe_is_far(sync->timestamp, timestamp) || length > SPE_MAX_RECORD ||
	    (sync->slot_run == SPE_SLOT_RUN && length != SPE_SLOT))
		return 0;
	at->c->present[at->row] = present;
	at->c->offset[at->row] = (uint64_t)(start - at->buf);
	at->row++;
	at->record_bytes += length;
	sync->last = (uint64_t)(start - at->buf) + 1;
	sync->timestamp = timestamp;
	sync->present = present;
	sync->required = SPE_REQUIRED;
	sync->unknown_ok = 0;
	sync->slot_run = length == SPE_SLOT ? sync->slot_run + (sync->slot_run < SPE_SLOT_RUN) : 0;
	return 1;
}

/* One 64-byte slot, into the columns. Returns 0 if it is not one, or what surrounds it calls for a closer look. */
static inline __attribute__((always_inline)) int take_slot(struct cursor *at, const uint8_t *p, unsigned events_bytes)
{
	const struct spe_columns *c = at->c;
	uint64_t row = at->row;
	struct spe_slot s;
	int is_ts;

	if (!spe_read_slot(p, events_bytes, &s))
		return 0;
	is_ts = s.present >> SPE_TS & 1;
	if (!take_clean(at, p, p + SPE_SLOT, s.present, is_ts ? SPE_TS : SPE_END,
	                is_ts ? s.timestamp : at->sync.timestamp))
		return 0;
	c->pc[row] = spe_canonical(s.pc);
	c->va[row] = spe_canonical(s.va);
	c->pa[row] = s.pa << 8 >> 8;
	c->events[row] = s.events;
	c->timestamp[row] = s.timestamp;
	c->context_el1[row] = s.context_el1;
	c->context_el2[row] = s.context_el2;
	c->total_latency[row] = s.latency[0];
	c->issue_latency[row] = s.latency[1];
	c->translation_latency[row] = s.latency[2];
	c->data_source[row] = s.data_source;
	c->op_class[row] = s.op_class;
	c->op[row] = s.op;
	if (c->is_lean)
		return 1;
	c->pc_top[row] = (uint8_t)(s.pc >> 56);
	c->branch_target[row] = spe_canonical(s.target);
	c->branch_target_top[row] = (uint8_t)(s.target >> 56);
	c->va_top[row] = (uint8_t)(s.va >> 56);
	c->pa_top[row] = (uint8_t)(s.pa >> 56);
	return 1;
}

/* Any record of defined packets, each once. Returns the byte after it, or NULL with the row's cells in disorder. */
static inline const uint8_t *walk_record(struct cursor *at, const uint8_t *p, const uint8_t *limit)
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Woverride-init"
	static const void *const handler[256] = {
		[0 ... 255] = &&odd, [0x00] = &&pad,         [0x01] = &&end,     [0x42] = &&events1, [0x52] = &&events2,
		[0x62] = &&events4,  [0x72] = &&events8,     [0x43] = &&source1, [0x53] = &&source2, [0x64] = &&ctx1,
		[0x65] = &&ctx2,     [0x48 ... 0x4a] = &&op, [0x71] = &&ts,      [0x98] = &&tot,     [0x99] = &&issue,
		[0x9a] = &&xlat,     [0x9c] = &&alt,         [0xb0] = &&pc,      [0xb1] = &&tgt,     [0xb2] = &&va,
		[0xb3] = &&pa,       [0xb4] = &&pbt,
	};
#pragma GCC diagnostic pop
	const struct spe_columns *c = at->c;
	const uint8_t *start = p;
	uint64_t row = at->row, payload;
	uint32_t present = 0, twice = 0;

#define NEXT(bytes)                                                                                                    \
	do {                                                                                                           \
		p += (bytes);                                                                                          \
		if (p > limit)                                                                                         \
			return NULL;                                                                                   \
		goto *handler[*p];                                                                                     \
	} while (0)
#define SEEN(kind) (twice |= present & 1u << (kind), present |= 1u << (kind))
#define FIELD(kind, column, bytes)                                                                                     \
	do {                                                                                                           \
		c->column[row] = (__typeof__(*c->column))spe_load(p + 1, bytes);                                       \
		SEEN(kind);                                                                                            \
		NEXT(1 + (bytes));                                                                                     \
	} while (0)
#define ADDRESS(kind, column, convert)                                                                                 \
	do {                                                                                                           \
		payload = spe_load(p + 1, 8);                                                                          \
		c->column[row] = convert;                                                                              \
		c->column##_top[row] = (uint8_t)(payload >> 56);                                                       \
		SEEN(kind);                                                                                            \
		NEXT(9);                                                                                               \
	} while (0)

	NEXT(0);
pad:
	payload = spe_load(p, 8);
	NEXT(payload ? __builtin_ctzll(payload) >> 3 : 8);
pc:
	ADDRESS(SPE_PC, pc, spe_canonical(payload));
tgt:
	ADDRESS(SPE_TGT, branch_target, spe_canonical(payload));
va:
	ADDRESS(SPE_VA, va, spe_canonical(payload));
pa:
	ADDRESS(SPE_PA, pa, payload << 8 >> 8);
pbt:
	ADDRESS(SPE_PBT, previous_branch_target, spe_canonical(payload));
tot:
	FIELD(SPE_TOT, total_latency, 2);
issue:
	FIELD(SPE_ISSUE, issue_latency, 2);
xlat:
	FIELD(SPE_XLAT, translation_latency, 2);
alt:
	FIELD(SPE_ALT, alt_issue_latency, 2);
events1:
	FIELD(SPE_EVENTS, events, 1);
events2:
	FIELD(SPE_EVENTS, events, 2);
events4:
	FIELD(SPE_EVENTS, events, 4);
events8:
	FIELD(SPE_EVENTS, events, 8);
source1:
	FIELD(SPE_SOURCE, data_source, 1);
source2:
	FIELD(SPE_SOURCE, data_source, 2);
ctx1:
	FIELD(SPE_CTX1, context_el1, 4);
ctx2:
	FIELD(SPE_CTX2, context_el2, 4);
op:
	c->op_class[row] = *p & 3;
	FIELD(SPE_OP, op, 1);
ts:
	payload = spe_load(p + 1, 8);
	c->timestamp[row] = payload;
	p += 9;
	SEEN(SPE_TS);
	return twice || !take_clean(at, start, p, present, SPE_TS, payload) ? NULL : p;
end:
	p++;
	return twice || !take_clean(at, start, p, present, SPE_END, at->sync.timestamp) ? NULL : p;
odd:
	return NULL;
#undef NEXT
#undef SEEN
#undef FIELD
#undef ADDRESS
}

SPE_EXPORT uint64_t spe_decode(const uint8_t *buf, uint64_t len, struct spe_decoder *d, const struct spe_columns *c,
                               uint64_t *others)
{
	const uint8_t *end = buf + len, *p = buf + d->position;
	struct cursor at = { .buf = buf, .c = c, .sync = d->sync };

	*others = 0;
	clear_columns(c);
	while (at.row < c->capacity) {
		const uint8_t *start = spe_skip_padding(p, end), *next;
		struct spe_record r;
		enum spe_piece piece;

		d->padding_bytes += (uint64_t)(start - p);
		p = start;
		if (end - p >= SPE_SLOT + SPE_LONGEST_PACKET) {
			if ((p[21] == 0x52 && take_slot(&at, p, 2)) || (p[21] == 0x62 && take_slot(&at, p, 4))) {
				p += SPE_SLOT;
				continue;
			}
			next = walk_record(&at, p, end - SPE_LONGEST_PACKET);
			if (next) {
				p = next;
				continue;
			}
		} else if (p == end) {
			break;
		}

		if (c->other_capacity - *others < SPE_MAX_RECORD / 2)
			break;
		r.start = (size_t)(p - buf);
		piece = spe_next_piece(buf, len, &at.sync, &r);
		write_record(c, at.row, &(struct spe_record){ 0 });
		p = buf + r.end;
		if (piece == SPE_PIECE_RECORD) {
			write_record(c, at.row, &r);
			if (r.others)
				*others = write_others(buf, c, *others, at.row, &r);
			spe_note_record(&at.sync, &r);
			at.record_bytes += r.end - r.start;
			at.row++;
			d->unknown_packets += r.unknown;
			d->duplicate_packets += r.duplicates;
		} else if (piece == SPE_PIECE_DAMAGE) {
			d->damaged_regions++;
			d->damaged_bytes += r.end - r.start;
			d->damage[at.sync.reason]++;
		} else {
			d->open_records++;
			d->open_bytes += r.end - r.start;
		}
	}
	d->position = (uint64_t)(p - buf);
	d->sync = at.sync;
	d->records += at.row;
	d->record_bytes += at.record_bytes;
	return at.row;
}
