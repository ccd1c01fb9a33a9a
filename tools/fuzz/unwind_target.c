// SPDX-License-Identifier: Apache-2.0
/* libFuzzer target: arbitrary bytes as .eh_frame, .debug_frame and .gopclntab of both machines; the table that comes
 * out must hold to its format, and a walk over arbitrary bytes of stack must end. Run by tools/fuzz/unwind. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "unwind_api.h"

enum { TEXT = 0x401000, MOST_FRAMES = 255 };

static void walk(const uint8_t *table, uint16_t machine, const uint8_t *data, size_t size)
{
	struct unwind_mapping mapping = { 0x7f0000001000, 0x7f0000003000, 0x1000, 0, UNWIND_MAPPING_TABLE };
	uint32_t first[] = { 0, 1 }, space = 0, depth, bytes = (uint32_t)size;
	uint64_t registers[UNWIND_X86_64_WORDS] = { 0 }, start = 0, addresses[MOST_FRAMES];
	uint8_t end;
	uint16_t methods[UNWIND_METHODS], guessed_from;
	struct unwind_world world = { first, &mapping, &table, 1, 1 };
	struct unwind_samples samples = { registers, &space, &start,  &bytes,      data, size,
		                          1,         1,      machine, MOST_FRAMES, NULL };
	struct unwind_stacks out = { addresses, MOST_FRAMES, &depth, &end, methods, &guessed_from, NULL };

	memcpy(registers, data, size < sizeof(registers) ? size : sizeof(registers));
	registers[machine == 62 ? 16 : 3] = mapping.start + (size ? data[0] : 0) * 16;
	registers[machine == 62 ? 7 : 2] &= ~7ULL;
	assert(tdprof_unwind_walk(&samples, &world, &out) == 1);
	assert(depth >= 1 && depth <= MOST_FRAMES && tdprof_unwind_end_word(end));
}

/* What code without entries is made of: the input once more. */
static const uint8_t *code_bytes;
static size_t code_size;

static int read_code(uint64_t address, uint8_t *code, uint64_t size)
{
	for (uint64_t i = 0; i < size; i++)
		code[i] = code_size ? code_bytes[(address + i) % code_size] : 0;
	return address % 16 == 15;
}

/* Input: two bytes that say which section it is, which machine and where the search table begins, then the section.
 * It is copied to memory of exactly its size, so that reading one byte too far is seen. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct unwind_segment segments[] = { { TEXT, 0x1000, 0x2000, 0 }, { 0x500010, 0x4010, 0x800, 0 } };
	struct unwind_stretch stretch = { TEXT + 0x100, TEXT + 0x200, { .cfa = UNWIND_STOP } };
	struct unwind_input input = { .text_address = TEXT,
		                      .segments = segments,
		                      .segment_count = 2,
		                      .stretches = &stretch,
		                      .stretch_count = 1,
		                      .read_code = read_code };

	if (size < 2)
		return 0;
	unsigned which = data[0] % 3;

	input.machine = data[1] & 1 ? 183 : 62;
	size_t table_at = data[1] / 2 * 8; /* of functions, among the sections */

	data += 2;
	size -= 2;

	uint8_t *copy = malloc(size);

	memcpy(copy, data, size);
	code_bytes = copy;
	code_size = size;
	input.symbols = (struct unwind_section){ copy, size, 0 };
	size_t header_at = table_at < size ? table_at : size;

	input.eh_frame_hdr = (struct unwind_section){ copy + header_at, size - header_at, TEXT };
	struct unwind_section *section = which == 0   ? &input.eh_frame
	                                 : which == 1 ? &input.debug_frame
	                                              : &input.gopclntab;

	*section = (struct unwind_section){ copy, size, 0x480000 };
	struct unwind_table *table = tdprof_unwind_build(&input);

	if (table) {
		uint64_t bytes = tdprof_unwind_size(table);
		uint8_t *file = malloc(bytes);

		tdprof_unwind_write(table, file);
		assert(tdprof_unwind_check(file, bytes));
		walk(file, input.machine, copy, size);
		free(file);
		tdprof_unwind_close(table);
	}
	tdprof_unwind_check(copy, size);
	free(copy);
	return 0;
}
