/* SPDX-License-Identifier: Apache-2.0 */
/* Cutting a byte stream into records, damage and an unfinished end: the careful path for whatever the fast one of
 * record.c does not take. */
#include "frame.h"

/* Parses the record that starts at `start` (not a padding byte). */
enum spe_status spe_parse(const uint8_t *buf, size_t len, size_t start, enum spe_mode mode, struct spe_record *r)
{
	const uint8_t *p = buf + start, *end = buf + len;
	const uint8_t *last = len - start > SPE_MAX_RECORD ? p + SPE_MAX_RECORD : end;
	uint64_t seen_impdef = 0;
	int first = -1;

	memset(r, 0, sizeof *r);
	r->start = start;
	for (;;) {
		struct spe_packet packet;

		p = spe_skip_padding(p, last);
		if (p >= last) {
			r->end = (size_t)(p - buf);
			return last == end ? SPE_UNFINISHED : SPE_BROKEN;
		}
		packet = spe_read_packet(p, end);
		r->end = (size_t)(p - buf) + packet.bytes;
		switch (packet.kind) {
		case SPE_END: r->close = SPE_END; return SPE_CLOSED;
		case SPE_TS:
			r->close = SPE_TS;
			r->value[SPE_TS] = packet.payload;
			r->present |= 1u << SPE_TS;
			return r->end - start > SPE_MAX_RECORD ? SPE_BROKEN : SPE_CLOSED;
		case SPE_BAD: return SPE_BROKEN;
		case SPE_CUT: return SPE_UNFINISHED;
		case SPE_UNKNOWN:
			if (mode == SPE_DEFINED || (mode == SPE_DISTINCT && r->unknown == SPE_MAX_UNKNOWN))
				return SPE_BROKEN;
			r->unknown++;
			r->others++;
			r->present |= SPE_HAS_OTHER;
			break;
		case SPE_IMPDEF: {
			uint64_t bit = 1ull << (packet.index + (spe_is_address((uint8_t)packet.header) ? 32 : 0));

			if (seen_impdef & bit) {
				if (mode != SPE_ANY)
					return SPE_BROKEN;
				r->duplicates++;
				r->present |= SPE_HAS_DUPLICATE;
			}
			seen_impdef |= bit;
			r->others++;
			r->present |= SPE_HAS_OTHER;
			break;
		}
		default: /* a field */
			if (r->present >> packet.kind & 1) {
				if (mode != SPE_ANY)
					return SPE_BROKEN;
				if (packet.kind == first && !r->restart)
					r->restart = (size_t)(p - buf);
				r->duplicates++;
				r->present |= SPE_HAS_DUPLICATE;
				break;
			}
			r->present |= 1u << packet.kind;
			r->value[packet.kind] = packet.payload;
			if (packet.kind == SPE_OP)
				r->op_class = packet.header & 3;
		}
		if (first < 0)
			first = packet.kind;
		p += packet.bytes;
	}
}

static int has(const struct spe_record *r, uint32_t fields)
{
	return (r->present & fields) == fields;
}

/* The end of a damaged record: do bytes from `at` on read as two whole records, or as one and the end of the input? */
static int is_boundary(const uint8_t *buf, size_t len, size_t at, const struct spe_sync *sync)
{
	uint32_t required = sync->required ? sync->required : SPE_REQUIRED;
	struct spe_record r;

	for (int i = 0; i < 2; i++) {
		at = (size_t)(spe_skip_padding(buf + at, buf + len) - buf);
		if (at == len)
			return i;
		switch (spe_parse(buf, len, at, sync->unknown_ok ? SPE_DISTINCT : SPE_DEFINED, &r)) {
		case SPE_BROKEN: return 0;
		case SPE_UNFINISHED: return i;
		case SPE_CLOSED:
			if (!has(&r, required))
				return 0;
		}
		at = r.end;
	}
	return 1;
}

/* Does a record follow at `at`? Asked about a record that is odd but closed, so one look ahead is enough; it may have
 * unknown packets only if the odd one has. */
static int is_followed(const uint8_t *buf, size_t len, size_t at, enum spe_mode mode)
{
	struct spe_record r;

	at = (size_t)(spe_skip_padding(buf + at, buf + len) - buf);
	if (at == len)
		return 1;
	switch (spe_parse(buf, len, at, mode, &r)) {
	case SPE_CLOSED: return has(&r, 1u << SPE_PC);
	case SPE_UNFINISHED: return !r.unknown;
	default: return 0;
	}
}

/* The offset after the closing packet that `at` may be, or 0. */
static size_t after_close(const uint8_t *buf, size_t len, size_t at)
{
	size_t next = buf[at] == 0x01 ? at + 1 : buf[at] == 0x71 ? at + 9 : 0;

	return next <= len ? next : 0;
}

/* A boundary near `start` where a record begins with the same kind of packet as the last one did: after something
 * like a close, or, where the close was destroyed, at something like the last record's PC. 0: none. */
static size_t find_similar(const uint8_t *buf, size_t len, size_t start, const struct spe_sync *sync)
{
	size_t stop = len - start > 2 * SPE_MAX_RECORD ? start + 2 * SPE_MAX_RECORD : len;
	struct spe_record last, r;
	uint8_t first;

	if (!sync->last)
		return 0;
	spe_parse(buf, len, sync->last - 1, SPE_ANY, &last);
	first = spe_read_packet(buf + sync->last - 1, buf + len).kind;
	for (size_t at = start; at < stop; at++) {
		size_t next = after_close(buf, len, at);
		const uint8_t *p = spe_skip_padding(buf + next, buf + len);

		if (next && p < buf + len && spe_short_kind(*p) == first && is_boundary(buf, len, next, sync))
			return next;
		if (at > start && spe_short_kind(buf[at]) == first &&
		    spe_parse(buf, len, at, SPE_DISTINCT, &r) == SPE_CLOSED &&
		    (r.value[SPE_PC] ^ last.value[SPE_PC]) >> 48 == 0 && is_boundary(buf, len, at, sync))
			return at;
	}
	return 0;
}

/* The first boundary after the damaged record at `start`, or `len`. */
static size_t resynchronise(const uint8_t *buf, size_t len, size_t start, const struct spe_sync *sync)
{
	size_t similar;

	if (sync->slot_run >= SPE_SLOT_RUN)
		for (size_t at = start + SPE_SLOT; at <= start + 8 * SPE_SLOT && at < len; at += SPE_SLOT)
			if (buf[at] && is_boundary(buf, len, at, sync))
				return at;
	similar = find_similar(buf, len, start, sync);
	if (similar)
		return similar;
	for (size_t at = start; at < len; at++) {
		size_t next = after_close(buf, len, at);

		if (next && is_boundary(buf, len, next, sync))
			return next;
	}
	return len;
}

/* A close of the other kind, or a time far from the last one (2^32 ticks: at least four seconds), is what a damaged
 * header makes of a record; real ones occur too, so it only calls for a look at what follows. */
int spe_is_doubtful_close(const struct spe_sync *sync, uint8_t close, uint64_t timestamp)
{
	if (!sync->close)
		return 0;
	if (sync->close != close)
		return 1;
	return close == SPE_TS && spe_is_far(sync->timestamp, timestamp);
}

void spe_note_record(struct spe_sync *sync, const struct spe_record *r)
{
	sync->last = r->start + 1;
	sync->required = (r->present | sync->present) & SPE_REQUIRED;
	sync->present = r->present;
	sync->slot_run = r->end - r->start == SPE_SLOT ? sync->slot_run + (sync->slot_run < SPE_SLOT_RUN) : 0;
	sync->close = r->close;
	sync->unknown_ok = r->unknown > 0;
	if (r->close == SPE_TS)
		sync->timestamp = r->value[SPE_TS];
}

/* Has the record all that a record needs, once, and nothing that is not defined? */
static int is_clean(const struct spe_record *r)
{
	return has(r, SPE_REQUIRED) && !r->duplicates && !r->unknown;
}

/* Records of some cores fill slots of other sizes, too: is this clean one, which ends elsewhere than its slot of 64
 * bytes, what it looks like? A shorter one is if padding or a whole record follows it, for which a slot has no room
 * twice. A longer one is if what begins the next slot does not begin records here: the next record, into which it would
 * have run, does. */
static int leaves_slot(const uint8_t *buf, size_t len, const struct spe_sync *sync, const struct spe_record *r)
{
	size_t slot_end = r->start + SPE_SLOT, at;
	struct spe_record next;

	if (r->end > slot_end)
		return spe_read_packet(buf + slot_end, buf + len).kind !=
		       spe_read_packet(buf + sync->last - 1, buf + len).kind;
	at = (size_t)(spe_skip_padding(buf + r->end, buf + len) - buf);
	if (at == slot_end)
		return !spe_is_doubtful_close(sync, r->close, r->value[SPE_TS]);
	return spe_parse(buf, len, at, SPE_DEFINED, &next) == SPE_CLOSED && has(&next, SPE_REQUIRED);
}

static enum spe_piece give_up(struct spe_record *r, struct spe_sync *sync, enum spe_reason reason, size_t end)
{
	sync->reason = (uint8_t)reason;
	r->end = end;
	return SPE_PIECE_DAMAGE;
}

/* The piece that starts at r->start (not a padding byte) and goes up to r->end. */
enum spe_piece spe_next_piece(const uint8_t *buf, size_t len, struct spe_sync *sync, struct spe_record *r)
{
	size_t start = r->start, slot_end = start + SPE_SLOT, next;
	enum spe_status status = spe_parse(buf, len, start, SPE_ANY, r);
	enum spe_reason reason = SPE_REASON_HEADER;

	if (status == SPE_CLOSED) {
		struct spe_record second;

		/* On a core with slots a record that leaves its slot is damaged, if the next slot begins with records.
		 */
		if (sync->slot_run >= SPE_SLOT_RUN && r->end != slot_end && slot_end <= len &&
		    (slot_end == len || (buf[slot_end] && is_boundary(buf, len, slot_end, sync))) &&
		    !(is_clean(r) && leaves_slot(buf, len, sync, r)))
			return give_up(r, sync, SPE_REASON_UNCLOSED, slot_end);
		if (!r->present)
			return give_up(r, sync, SPE_REASON_NO_PC, r->end);
		if (is_clean(r) && !spe_is_doubtful_close(sync, r->close, r->value[SPE_TS]))
			return SPE_PIECE_RECORD;
		/* Its own close was lost and it ran into the next record, which is whole. */
		if (r->restart && spe_parse(buf, len, r->restart, SPE_DEFINED, &second) == SPE_CLOSED &&
		    has(&second, SPE_REQUIRED))
			return give_up(r, sync, SPE_REASON_UNCLOSED, r->restart);
		if (is_followed(buf, len, r->end, r->unknown ? SPE_DISTINCT : SPE_DEFINED)) {
			if (has(r, 1u << SPE_PC))
				return SPE_PIECE_RECORD;
			return give_up(r, sync, SPE_REASON_NO_PC, r->end);
		}
		reason = SPE_REASON_BOUNDARY;
	}
	next = resynchronise(buf, len, start, sync);
	if (status == SPE_UNFINISHED && next == len) {
		r->end = len;
		return SPE_PIECE_OPEN;
	}
	return give_up(r, sync, reason, next);
}
