/* SPDX-License-Identifier: Apache-2.0 */
/* A checked table in the bytes of its file: where its parts are. */
#ifndef TDPROF_UNWIND_FILE_H
#define TDPROF_UNWIND_FILE_H

#include "unwind_api.h"

struct table_view {
	const struct unwind_header *header;
	const struct unwind_segment *segments;
	const struct unwind_rule *rules;
	const uint32_t *buckets, *rows, *calls, *beginnings;
};

static inline struct table_view view_table(const uint8_t *table)
{
	struct table_view view;

	view.header = (const struct unwind_header *)table;
	view.segments = (const struct unwind_segment *)(view.header + 1);
	view.rules = (const struct unwind_rule *)(view.segments + view.header->segments);
	view.buckets = (const uint32_t *)(view.rules + view.header->rules);
	view.rows = view.buckets + view.header->buckets;
	view.calls = view.rows + view.header->rows;
	view.beginnings = view.calls + view.header->calls;
	return view;
}

uint32_t unwind_crc(const struct unwind_header *header);

#endif
