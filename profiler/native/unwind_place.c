// SPDX-License-Identifier: Apache-2.0
/* Tables from files: checked, and put into the arrays of a session. */
#include <stdbool.h>
#include <string.h>

#include "hash.h"
#include "unwind_file.h"

#define EXPORT __attribute__((visibility("default")))

enum { RULE_SLOTS = 2 * UNWIND_MOST_RULES };

/* CRC-32 as zlib's, bit by bit: a header is short. */
uint32_t unwind_crc(const struct unwind_header *header)
{
	struct unwind_header without = *header;
	const uint8_t *bytes = (const uint8_t *)&without;
	uint32_t crc = UINT32_MAX;

	without.crc = 0;
	for (size_t i = 0; i < sizeof(without); i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = crc >> 1 ^ (0xedb88320U & (0 - (crc & 1)));
	}
	return ~crc;
}

static bool are_segments_good(const struct table_view *view)
{
	uint64_t bucket = 0;

	for (uint32_t i = 0; i < view->header->segments; i++) {
		const struct unwind_segment *segment = &view->segments[i];

		if (segment->first_bucket != bucket || segment->elf_address > UINT64_MAX - segment->bytes)
			return false;
		bucket += (((segment->elf_address & 0xff) + segment->bytes + 0xff) >> UNWIND_BUCKET_SHIFT) + 1;
	}
	return bucket == view->header->buckets;
}

static bool are_ascending(const uint32_t *places, uint32_t count)
{
	for (uint32_t i = 1; i < count; i++)
		if (places[i] <= places[i - 1])
			return false;
	return true;
}

EXPORT int tdprof_unwind_check(const uint8_t *table, uint64_t size)
{
	struct unwind_header header;

	if (size < sizeof(header))
		return 0;
	memcpy(&header, table, sizeof(header));
	if (header.magic != UNWIND_MAGIC || header.version != UNWIND_VERSION || header.crc != unwind_crc(&header) ||
	    header.segments > UNWIND_MOST_SEGMENTS || header.rules > UNWIND_MOST_RULES || !header.rules)
		return 0;
	if (size != sizeof(header) + header.segments * sizeof(struct unwind_segment) +
	                    header.rules * sizeof(struct unwind_rule) +
	                    ((uint64_t)header.buckets + header.rows + header.calls + header.beginnings) * 4)
		return 0;

	struct table_view view = view_table(table);
	uint32_t before = 0, most = 0;

	if (!are_segments_good(&view))
		return 0;
	for (uint32_t i = 0; i < header.buckets; i++) {
		if (view.buckets[i] < before || view.buckets[i] > header.rows)
			return 0;
		before = view.buckets[i];
	}
	if (!are_ascending(view.calls, header.calls) || !are_ascending(view.beginnings, header.beginnings))
		return 0;
	for (uint32_t i = 0; i < header.rows; i++)
		most = most < UNWIND_ROW_RULE(view.rows[i]) ? UNWIND_ROW_RULE(view.rows[i]) : most;
	return most < header.rules;
}

/* The session's number of a rule; a slot holds it, 0 is free. */
static uint32_t session_rule(struct unwind_session *session, const struct unwind_rule *rule)
{
	static const struct unwind_rule unsupported = { .cfa = UNWIND_UNSUPPORTED };
	uint64_t packed;

	if (rule->cfa == UNWIND_NONE)
		return UNWIND_RULE_NONE;
	if (session->rule_count == 0) {
		session->rules[UNWIND_RULE_NONE] = (struct unwind_rule){ .cfa = UNWIND_NONE };
		session->rules[1] = unsupported;
		session->rule_count = 2;
	}
	memcpy(&packed, rule, sizeof(packed));
	uint32_t at = (uint32_t)hash_home(packed, session->rule_slots) & (RULE_SLOTS - 1);

	for (;; at = (at + 1) & (RULE_SLOTS - 1)) {
		uint32_t number = session->rule_slots[at];

		if (number && !memcmp(&session->rules[number], rule, sizeof(*rule)))
			return number;
		if (number)
			continue;
		if (session->rule_count >= session->rule_capacity)
			return 1;
		session->rules[session->rule_count] = *rule;
		return session->rule_slots[at] = session->rule_count++;
	}
}

EXPORT int tdprof_unwind_place(struct unwind_session *session, const uint8_t *table, uint32_t *first_bucket)
{
	struct table_view view = view_table(table);
	uint16_t numbers[UNWIND_MOST_RULES];
	uint32_t *buckets = session->buckets + session->bucket_count, *rows = session->rows + session->row_count;

	if (view.header->buckets > session->bucket_capacity - session->bucket_count ||
	    view.header->rows > session->row_capacity - session->row_count)
		return -1;
	for (uint32_t i = 0; i < view.header->rules; i++)
		numbers[i] = (uint16_t)session_rule(session, &view.rules[i]);
	for (uint32_t i = 0; i < view.header->rows; i++)
		rows[i] = UNWIND_ROW(UNWIND_ROW_LOW(view.rows[i]), numbers[UNWIND_ROW_RULE(view.rows[i])]);
	for (uint32_t i = 0; i < view.header->buckets; i++)
		buckets[i] = view.buckets[i] + session->row_count;
	*first_bucket = session->bucket_count;
	session->bucket_count += view.header->buckets;
	session->row_count += view.header->rows;
	return 0;
}

EXPORT int tdprof_unwind_extent(const uint8_t *table, uint64_t start, uint64_t end, uint64_t file_offset,
                                struct unwind_extent *out)
{
	struct table_view view = view_table(table);

	for (uint32_t i = 0; i < view.header->segments; i++) {
		const struct unwind_segment *segment = &view.segments[i];
		/* Buckets begin at addresses that are multiples of 256, so maybe a little before the segment. */
		uint64_t first = segment->file_offset - (segment->elf_address & 0xff);
		uint64_t last = segment->file_offset + segment->bytes, mapped = end - start, from = file_offset;

		if (file_offset >= last || first >= file_offset + mapped)
			continue;
		if (from < first)
			from = first;
		out->start = start + (from - file_offset);
		out->end = start + (last - file_offset < mapped ? last - file_offset : mapped);
		out->bucket = segment->first_bucket + (uint32_t)((from - first) >> UNWIND_BUCKET_SHIFT);
		out->reserved = 0;
		return 0;
	}
	return -1;
}
