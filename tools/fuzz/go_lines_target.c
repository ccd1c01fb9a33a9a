// SPDX-License-Identifier: Apache-2.0
/* libFuzzer target: arbitrary bytes as Go's table of functions, with the header that stands in them, for all addresses
 * of a small text; the bytes themselves are the inline trees, too. What comes out is in order and within bounds. Run by
 * tools/fuzz/go-lines. */
#include "go_lines.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { WANTED = 512, ROOM = 4096, HEADER_BYTES = 72 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static uint64_t wanted[WANTED], start[ROOM];
	static uint32_t columns[7][ROOM];
	static int32_t tree[ROOM];
	uint64_t words[8];
	uint32_t magic;

	if (size < HEADER_BYTES)
		return 0;
	memcpy(&magic, data, sizeof(magic));
	memcpy(words, data + 8, sizeof(words));
	int old = magic == 0xfffffffa; /* without the text's address */
	const uint64_t *parts = words + (old ? 2 : 3);
	struct go_functions table = { .data = data,
		                      .inlined = data,
		                      .size = size,
		                      .inlined_size = size,
		                      .inlined_base = size / 2,
		                      .text = old ? 0 : words[2],
		                      .functions = words[0],
		                      .units = parts[1],
		                      .files = parts[2],
		                      .values = parts[3],
		                      .lines = old ? words[6] : words[7],
		                      .magic = magic,
		                      .quantum = data[6] };

	for (unsigned i = 0; i < WANTED; i++)
		wanted[i] = table.text + 3 * i;
	for (unsigned i = 1; i < WANTED; i++)
		if (wanted[i] < wanted[i - 1])
			return 0;
	/* With little room as well, which is asked for again then. */
	for (uint64_t room = 8; room <= ROOM; room *= ROOM / 8) {
		struct go_columns out = { .range_start = start,
			                  .range_node = columns[0],
			                  .range_file = columns[1],
			                  .range_line = columns[2],
			                  .node_function = columns[3],
			                  .node_parent = columns[4],
			                  .node_call_file = columns[5],
			                  .node_call_line = columns[6],
			                  .node_tree = tree,
			                  .range_room = room,
			                  .node_room = room,
			                  .steps = 1 << 16 };

		tdprof_go_lines(&table, wanted, WANTED, &out);
		assert(out.ranges <= room && out.nodes <= room);
		for (uint64_t i = 0; i < out.ranges; i++) {
			assert(!i || start[i] > start[i - 1]);
			assert(columns[0][i] == GO_NO_ID || columns[0][i] < out.nodes);
			assert(columns[1][i] == GO_NO_ID || columns[1][i] < size);
		}
		for (uint64_t i = 0; i < out.nodes; i++)
			assert(columns[4][i] == GO_NO_ID || columns[4][i] < i);
	}
	return 0;
}
