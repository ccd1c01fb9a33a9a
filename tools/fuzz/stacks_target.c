/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target of the tables of call stacks: bytes become call chains, which go all the way to folded lines.
 *
 * Every table is as small as it may be, so that the sanitizer sees the first byte written or read too far, and what
 * comes out is compared with what the chains say. Run by tools/fuzz/perf-data. */
#include "stacks.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

uint64_t tdprof_number_places(struct stack_places *t, const int32_t *start, const uint64_t *address,
                              const int64_t *chain, const uint32_t *context, uint64_t chains, uint64_t first,
                              const int64_t *place_start, int32_t *place);
void tdprof_rehash_places(struct stack_places *t, const uint64_t *old, uint64_t old_count);
void tdprof_cut_chains(const int64_t *start, const int32_t *place, uint64_t chains, const uint8_t *outside,
                       int64_t *length, uint8_t *used);
void tdprof_gather_numbered(const int64_t *start, const int64_t *length, const int32_t *value, const int32_t *number,
                            const int64_t *rows, uint64_t count, int32_t *out);
void tdprof_count_frames(const uint32_t *stack_start, const int32_t *location, uint64_t stacks,
                         const uint32_t *frame_start, int64_t *start);
void tdprof_expand_frames(const uint32_t *stack_start, const int32_t *location, uint64_t stacks,
                          const uint32_t *frame_start, const int32_t *frame_function, const uint32_t *frame_line,
                          const int64_t *start, int32_t *function, uint32_t *line);
uint64_t tdprof_merge_stacks(struct stack_merge *m);
uint64_t tdprof_rank_stacks(const int64_t *start, const int32_t *function, const struct stack_names *names,
                            uint32_t *order, uint64_t stacks, uint32_t *rank);
uint64_t tdprof_folded_lines(const struct folded_rows *r, uint64_t first, uint8_t *out, uint64_t capacity,
                             uint64_t *written);

#define CHECK(condition)                                                                                               \
	do {                                                                                                           \
		if (!(condition))                                                                                      \
			__builtin_trap();                                                                              \
	} while (0)

enum { CHAINS = 64, WORDS = 4096, FUNCTIONS = 16 };

static void *room(uint64_t count, uint64_t size)
{
	void *block = calloc(count > 0 ? count : 1, size);
	CHECK(block != NULL);
	return block;
}

static void grow_places(struct stack_places *t)
{
	uint64_t *old = t->slots;
	const uint64_t old_count = t->slot_mask + 1;
	t->slots = room(old_count * 2, 8);
	t->slot_mask = old_count * 2 - 1;
	t->capacity = old_count * 2 / 4 * 3;
	t->address = realloc(t->address, t->capacity * 8);
	t->context = realloc(t->context, t->capacity * 4);
	CHECK(t->address != NULL && t->context != NULL);
	tdprof_rehash_places(t, old, old_count);
	free(old);
}

/* Stacks of functions into an order and lines. */
static void fold(const int64_t *start, const int32_t *function, uint64_t stacks, uint64_t chunk)
{
	uint64_t slots = 1;
	while (slots * 3 < stacks * 4 + 4)
		slots *= 2;
	struct stack_merge merge = { .start = start,
		                     .function = function,
		                     .stacks = stacks,
		                     .slots = room(slots, 8),
		                     .slot_mask = slots - 1,
		                     .seed = 99,
		                     .merged = room(stacks, 8),
		                     .representative = room(stacks, 8) };
	const uint64_t distinct = tdprof_merge_stacks(&merge);

	/* Every function has a name of its own, so that texts are equal where stacks are. */
	int64_t name_start[FUNCTIONS + 2];
	uint8_t text[2 * (FUNCTIONS + 1)];
	uint32_t inner[FUNCTIONS + 1], leaf[FUNCTIONS + 1];
	for (int i = 0; i <= FUNCTIONS; i++) {
		name_start[i] = 2 * i;
		text[2 * i] = (uint8_t)('a' + i);
		text[2 * i + 1] = ';';
		leaf[i] = (uint32_t)(2 * i + 1);
		inner[i] = (uint32_t)(2 * i + 2);
	}
	name_start[FUNCTIONS + 1] = 2 * (FUNCTIONS + 1);
	const struct stack_names names = { name_start, text, inner, leaf };
	uint32_t *order = room(stacks, 4), *rank = room(stacks, 4), *thread = room(stacks, 4);
	uint64_t *weight = room(stacks, 8);
	for (uint64_t i = 0; i < stacks; i++) {
		order[i] = (uint32_t)i;
		weight[i] = UINT64_MAX - i;
	}
	CHECK(tdprof_rank_stacks(start, function, &names, order, stacks, rank) == distinct);
	for (uint64_t i = 0; i < stacks; i++) {
		CHECK(rank[i] < distinct);
		CHECK((rank[i] == rank[0]) == (merge.merged[i] == merge.merged[0]));
		CHECK(i == 0 || rank[order[i - 1]] <= rank[order[i]]);
	}
	const struct folded_rows rows = { .start = start,
		                          .function = function,
		                          .names = names,
		                          .thread_start = name_start,
		                          .thread_text = text,
		                          .thread = thread,
		                          .stack = order,
		                          .weight = weight,
		                          .rows = stacks };
	uint64_t bytes = 0, lines = 0, expected = 0;
	for (uint64_t i = 0, written; i < stacks;) {
		uint8_t *out = room(chunk, 1);
		i = tdprof_folded_lines(&rows, i, out, chunk, &written);
		CHECK(written <= chunk);
		for (uint64_t at = 0; at < written; at++)
			lines += out[at] == '\n';
		CHECK(lines == i);
		bytes += written;
		free(out);
		chunk = written > 0 ? chunk : 2 * chunk + 1;
	}
	for (uint64_t i = 0; i < stacks; i++)
		expected += 2 + 2 * (uint64_t)(start[i + 1] - start[i]) + 20 + 1; /* all weights have 20 digits */
	CHECK(bytes == expected);
	void *owned[] = { merge.slots, merge.merged, merge.representative, order, rank, thread, weight };
	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
	if (bytes < 4 || bytes > WORDS)
		return 0;
	const uint64_t seed = data[0], chunk = data[1];
	const int split = data[2] | 1;
	/* A byte that divides by `split` ends a chain, any other is an address; the last chain ends with the data. */
	int32_t start[CHAINS + 1] = { 0 };
	uint64_t *address = room(bytes, 8), chains = 0;
	int32_t words = 0;
	for (size_t i = 3; i < bytes && chains < CHAINS; i++)
		if (data[i] % split == 0)
			start[++chains] = words;
		else
			address[words++] = data[i];
	if (chains == 0)
		start[++chains] = words;
	int64_t chain[CHAINS], place_start[CHAINS + 1] = { 0 };
	uint32_t context[CHAINS];
	for (uint64_t i = 0; i < chains; i++) {
		chain[i] = (int64_t)((i * 7 + seed) % chains);
		context[i] = (uint32_t)(i % 3);
		place_start[i + 1] = place_start[i] + start[chain[i] + 1] - start[chain[i]];
	}
	int32_t *place = room((uint64_t)place_start[chains], 4);
	struct stack_places t = { .slots = room(2, 8), .slot_mask = 1, .seed = seed };
	uint64_t done = 0;
	while ((done = tdprof_number_places(&t, start, address, chain, context, chains, done, place_start, place)) <
	       chains)
		grow_places(&t);
	uint8_t *outside = room(t.rows, 1), *used = room(t.rows, 1);
	for (uint64_t i = 0; i < t.rows; i++)
		outside[i] = t.address[i] % 13 == 0;
	for (uint64_t i = 0; i < chains; i++)
		for (int64_t at = place_start[i]; at < place_start[i + 1]; at++) {
			CHECK(place[at] >= 0 && (uint64_t)place[at] < t.rows);
			const bool is_caller = at > place_start[i];
			CHECK(t.address[place[at]] == address[start[chain[i]] + at - place_start[i]] - is_caller);
			CHECK(t.context[place[at]] == context[i]);
		}
	int64_t length[CHAINS], rows[2 * CHAINS], total = 0;
	tdprof_cut_chains(place_start, place, chains, outside, length, used);
	uint32_t stack_start[CHAINS + 1] = { 0 };
	for (uint64_t i = 0; i < chains; i++) {
		CHECK(length[i] <= place_start[i + 1] - place_start[i]);
		rows[2 * i] = (int64_t)i - 1;
		rows[2 * i + 1] = i % 5 == 4 ? -1 : (int64_t)(chains - 1 - i);
		for (uint64_t j = 2 * i; j < 2 * i + 2; j++)
			total += rows[j] < 0 ? 0 : length[rows[j]];
		stack_start[i + 1] = (uint32_t)total;
	}
	/* A place's location has as many frames as its number modulo 3. */
	int32_t *number = room(t.rows, 4), *location = room((uint64_t)total, 4), *frame_function = room(3 * t.rows, 4);
	uint32_t *frame_start = room(t.rows + 1, 4), *frame_line = room(3 * t.rows, 4);
	for (uint64_t i = 0; i < t.rows; i++) {
		number[i] = (int32_t)(t.rows - 1 - i);
		frame_start[i + 1] = frame_start[i] + (uint32_t)(i % 3);
		for (uint32_t frame = frame_start[i]; frame < frame_start[i + 1]; frame++)
			frame_function[frame] = (int32_t)((i + frame) % FUNCTIONS);
	}
	tdprof_gather_numbered(place_start, length, place, number, rows, 2 * chains, location);
	for (int64_t i = 0; i < total; i++)
		CHECK(used[t.rows - 1 - (uint64_t)location[i]]);
	int64_t first_frame[CHAINS + 1];
	tdprof_count_frames(stack_start, location, chains, frame_start, first_frame);
	int32_t *function = room((uint64_t)first_frame[chains], 4);
	uint32_t *line = room((uint64_t)first_frame[chains], 4);
	tdprof_expand_frames(stack_start, location, chains, frame_start, frame_function, frame_line, first_frame,
	                     function, line);
	fold(first_frame, function, chains, chunk);
	void *owned[] = { address, place,    t.slots,        t.address,   t.context,  outside,  used,
		          number,  location, frame_function, frame_start, frame_line, function, line };
	for (size_t i = 0; i < sizeof(owned) / sizeof(*owned); i++)
		free(owned[i]);
	return 0;
}
