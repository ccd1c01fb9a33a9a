/* SPDX-License-Identifier: Apache-2.0 */
/* The way back to the records after damage, and the note of it. */
#ifndef TDPROF_PERF_RESYNC_H
#define TDPROF_PERF_RESYNC_H

#include <linux/perf_event.h>

#include "perf_cursor.h"
#include "perf_records.h"

#define FIRST_TOOL_TYPE  PERF_TYPES
#define LAST_KERNEL_TYPE 22
#define LAST_TOOL_TYPE   95

enum verdict { NO, YES, UNDECIDED };

/* Could a record start here? Asked only where something is wrong already. */
static bool is_likely_header(const uint8_t *at, bool swap)
{
	const uint32_t type = load32(at, swap);
	const uint16_t misc = load16(at + 4, swap), size = load16(at + 6, swap);
	const bool known =
		(type >= 1 && type <= LAST_KERNEL_TYPE) || (type >= FIRST_TOOL_TYPE && type <= LAST_TOOL_TYPE);
	return known && size >= 8 && size % 8 == 0 && (misc & ~(PERF_RECORD_MISC_CPUMODE_MASK | 0xf000)) == 0;
}

/* Do `records` records in a row look right? Where the data ends first, more of it decides, or YES if there is none. */
static enum verdict is_likely_chain(const uint8_t *at, const uint8_t *end, int records, bool swap, bool final)
{
	for (int i = 0; i < records; i++) {
		if (end - at < 8)
			return final ? YES : UNDECIDED;
		if (!is_likely_header(at, swap))
			return NO;
		const uint16_t size = load16(at + 6, swap);
		at = size < end - at ? at + size : end;
	}
	return YES;
}

static void count_damage(struct perf_losses *losses, uint64_t offset, uint64_t bytes)
{
	struct perf_damage *last = losses->malformed > 0 && losses->malformed <= PERF_DAMAGE_KEPT
	                                   ? &losses->damage[losses->malformed - 1]
	                                   : NULL;
	losses->malformed_bytes += bytes;
	if (last != NULL && last->offset + last->bytes == offset) { /* the search went on in the next call */
		last->bytes += bytes;
		return;
	}
	if (losses->malformed < PERF_DAMAGE_KEPT)
		losses->damage[losses->malformed] = (struct perf_damage){ offset, bytes };
	losses->malformed++;
}

/* Where to go on: the next place from `at` on where three records in a row look right. */
static const uint8_t *find_record(struct perf_decoder *d, const uint8_t *at, const uint8_t *end, bool swap, bool final)
{
	enum verdict verdict = NO;
	while (end - at >= 8 && (verdict = is_likely_chain(at, end, 3, swap, final)) == NO)
		at += 8;
	d->searching = verdict != YES;
	return at;
}

#endif
