// SPDX-License-Identifier: Apache-2.0
/* The walk of bpf/unwind_step.h over registers and stack bytes that were copied. */
#include <stdbool.h>
#include <string.h>

#include "unwind_file.h"

#define EXPORT __attribute__((visibility("default")))

struct unwind_memory {
	const uint8_t *bytes;
	uint64_t start; /* address of the first */
	uint64_t size;
	uint64_t pages; /* as unwind_samples.pages */
	int is_aarch64;
	const struct unwind_world *world;
	uint32_t space;
};

struct unwind_tables {
	struct table_view view;
};

/* How much of what lies between the first byte and a page is not there. */
static inline uint64_t missing_bytes(const struct unwind_memory *memory, uint64_t page)
{
	uint64_t missing = ~memory->pages & ((1ULL << page) - 1);

	return (uint64_t)__builtin_popcountll(missing) * UNWIND_PAGE - (missing & 1) * (memory->start % UNWIND_PAGE);
}

static inline int unwind_read(struct unwind_memory *memory, uint64_t address, __u64 *word)
{
	uint64_t offset = address - memory->start;

	if (address < memory->start || memory->size == 0)
		return UNWIND_END_UNREADABLE;
	if (memory->pages != UNWIND_ALL_PAGES) {
		uint64_t page = address / UNWIND_PAGE - memory->start / UNWIND_PAGE;

		if (page > 63 || !(memory->pages >> page & 1) || address % UNWIND_PAGE > UNWIND_PAGE - 8)
			return UNWIND_END_COPY_ENDED;
		offset -= missing_bytes(memory, page);
	}
	if (memory->size < 8 || offset > memory->size - 8)
		return UNWIND_END_COPY_ENDED;
	memcpy(word, memory->bytes + offset, 8);
	return 0;
}

/* Copies hold no code, but some tables say where calls in it return to. */
static int unwind_returns_to(struct unwind_memory *memory, uint64_t pc);

static inline int unwind_bucket(struct unwind_tables *tables, __u32 number, __u32 *first_row)
{
	if (number >= tables->view.header->buckets)
		return -1;
	*first_row = tables->view.buckets[number];
	return 0;
}

static inline int unwind_row(struct unwind_tables *tables, __u32 number, __u32 *row)
{
	if (number >= tables->view.header->rows)
		return -1;
	*row = tables->view.rows[number];
	return 0;
}

#define UNWIND_MACHINE (memory->is_aarch64)
#include "unwind_step.h"

static const char *const END_WORDS[] = { NULL,
#define END_WORD(name, word, meaning) word,
	                                 UNWIND_ENDS(END_WORD)
#undef END_WORD
};

EXPORT const char *tdprof_unwind_end_word(uint32_t end)
{
	return end < UNWIND_ENDS_COUNT ? END_WORDS[end] : NULL;
}

/* The mapping that holds an address; NULL if none does. */
static const struct unwind_mapping *find_mapping(const struct unwind_world *world, uint32_t space, uint64_t address)
{
	uint32_t low, high;

	if (space >= world->spaces)
		return NULL;
	low = world->first_mapping[space];
	high = world->first_mapping[space + 1];
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;
		const struct unwind_mapping *mapping = &world->mappings[middle];

		if (address < mapping->start)
			high = middle;
		else if (address >= mapping->end)
			low = middle + 1;
		else
			return mapping;
	}
	return NULL;
}

static bool is_generated(const struct unwind_mapping *mapping)
{
	return mapping->kind == UNWIND_MAPPING_JIT || mapping->kind == UNWIND_MAPPING_TRAMPOLINES;
}

/* The place of a file's byte among the buckets of a table: bucket number × 256 + offset in it; UINT64_MAX: it has none.
 */
static uint64_t find_place(const struct table_view *view, uint64_t offset)
{
	for (uint32_t i = 0; i < view->header->segments; i++) {
		const struct unwind_segment *segment = &view->segments[i];
		uint64_t inside = offset - segment->file_offset;

		if (offset >= segment->file_offset && inside < segment->bytes)
			return ((uint64_t)segment->first_bucket << UNWIND_BUCKET_SHIFT) + inside +
			       (segment->elf_address & 0xff);
	}
	return UINT64_MAX;
}

static struct unwind_rule find_rule(const struct unwind_world *world, const struct unwind_mapping *mapping,
                                    uint64_t address, bool is_caller)
{
	struct unwind_rule none = { .cfa = UNWIND_NONE };

	/* Its only call is made with a word beside the return address (Python/asm_trampoline.S). */
	if (mapping->kind == UNWIND_MAPPING_TRAMPOLINES && is_caller)
		return (struct unwind_rule){ .cfa = UNWIND_CFA_SP, .fp = UNWIND_FP_SAME, .offset = 16 };
	if (is_generated(mapping))
		return (struct unwind_rule){ .cfa = UNWIND_FP_GUESS };
	if (mapping->table >= world->table_count)
		return none;

	struct unwind_tables tables = { view_table(world->tables[mapping->table]) };
	uint64_t place = find_place(&tables.view, address - mapping->start + mapping->file_offset);

	if (place == UINT64_MAX)
		return none;
	return tables.view.rules[unwind_search(&tables, (uint32_t)(place >> UNWIND_BUCKET_SHIFT), place & 0xff)];
}

static bool has_place(const uint32_t *places, uint32_t count, uint64_t place)
{
	uint32_t first = 0, end = count;

	while (first < end) {
		uint32_t middle = first + (end - first) / 2;

		if (places[middle] == place)
			return true;
		if (places[middle] < place)
			first = middle + 1;
		else
			end = middle;
	}
	return false;
}

static int unwind_returns_to(struct unwind_memory *memory, uint64_t pc)
{
	const struct unwind_world *world = memory->world;
	/* Of the call, which may be the last of its segment. */
	const struct unwind_mapping *mapping = find_mapping(world, memory->space, pc - 1);

	if (!mapping || mapping->kind != UNWIND_MAPPING_TABLE || mapping->table >= world->table_count)
		return -1;

	struct table_view view = view_table(world->tables[mapping->table]);
	uint64_t place = find_place(&view, pc - 1 - mapping->start + mapping->file_offset);

	if (place == UINT64_MAX)
		return -1;
	place++;
	if (view.header->calls)
		return has_place(view.calls, view.header->calls, place);
	return has_place(view.beginnings, view.header->beginnings, place) ? 0 : -1;
}

/* One stack, leaf first; returns its depth. */
static uint32_t walk(struct unwind_memory *memory, struct unwind_state *state, const struct unwind_world *world,
                     uint32_t space, uint32_t most_frames, uint64_t *addresses, uint8_t *why, uint16_t *guessed_from,
                     uint8_t *is_lost)
{
	uint32_t depth = 0;
	int end = UNWIND_NOT_ENDED;
	bool is_jit = false; /* the frame that led here is of generated code */
	uint32_t first_guess = 0;
	bool is_called = false; /* the last address is one that a file's code returns to */

	for (;;) {
		uint64_t address = unwind_lookup_pc(state);
		const struct unwind_mapping *mapping = find_mapping(world, space, address);

		/* The topmost is shown wherever it is; a caller that is no code was never one. */
		if ((depth == 0 || mapping) && !(state->flags & UNWIND_TRY_FP)) {
			addresses[depth] = depth ? unwind_caller_address(state) : state->pc;
			is_called = mapping && !is_generated(mapping) && !(state->flags & UNWIND_EXACT);
			depth++;
		}
		*is_lost = !mapping;
		if (!mapping) {
			end = !(state->flags & UNWIND_GUESSED) ? UNWIND_END_NO_MAPPING
			      : is_jit                         ? UNWIND_END_JIT
			                                       : UNWIND_END_NO_UNWIND_INFO;
			break;
		}
		if (depth == most_frames && !(state->flags & UNWIND_TRY_FP)) {
			end = UNWIND_END_TOO_DEEP;
			break;
		}
		if (mapping->kind == UNWIND_MAPPING_NO_TABLE) {
			end = UNWIND_END_NO_TABLE;
			break;
		}
		struct unwind_rule rule = state->flags & UNWIND_TRY_FP
		                                  ? (struct unwind_rule){ .cfa = UNWIND_INFERRED | UNWIND_FP_GUESS }
		                                  : find_rule(world, mapping, address, !(state->flags & UNWIND_EXACT));

		is_jit = is_generated(mapping);
		end = unwind_step(memory, state, &rule);
		if (first_guess == 0 && state->flags & UNWIND_GUESSED)
			first_guess = depth;
		if (end) {
			end = is_jit && end == UNWIND_END_NO_UNWIND_INFO ? UNWIND_END_JIT : end;
			break;
		}
	}
	if (is_called && unwind_is_no_caller(memory, state, addresses[depth - 1], end))
		depth--;
	unwind_count_callers(state, depth);
	*why = (uint8_t)end;
	*guessed_from = (uint16_t)(first_guess < depth ? first_guess : 0);
	return depth;
}

static void begin_x86_64(struct unwind_state *state, const uint64_t *words, bool is_leaf_known)
{
	memcpy(state->leaf, words, sizeof(state->leaf));
	unwind_begin(state, words[16], words[7], words[6], 0, is_leaf_known ? UNWIND_REGISTERS : 0);
}

EXPORT uint64_t tdprof_unwind_walk(const struct unwind_samples *samples, const struct unwind_world *world,
                                   const struct unwind_stacks *out)
{
	bool is_aarch64 = samples->machine == 183; /* EM_AARCH64 */
	uint64_t used = 0, i;
	struct unwind_state state;
	uint8_t is_lost;

	for (i = 0; i < samples->count && out->capacity - used >= samples->most_frames; i++) {
		uint64_t at = samples->stack_start[i], bytes = samples->stack_bytes[i];
		struct unwind_memory memory = { .is_aarch64 = is_aarch64, .world = world, .space = samples->space[i] };

		if (is_aarch64) {
			const uint64_t *words = &samples->registers[i * UNWIND_AARCH64_WORDS];

			unwind_begin(&state, words[3], words[2], words[0], words[1], 0);
		} else {
			begin_x86_64(&state, &samples->registers[i * UNWIND_X86_64_WORDS], samples->is_leaf_known);
		}
		memory.start = state.sp;
		memory.pages = samples->pages ? samples->pages[i] : UNWIND_ALL_PAGES;
		if (at <= samples->stack_total && bytes <= samples->stack_total - at) {
			memory.bytes = samples->stack + at;
			memory.size = bytes;
		}
		out->depth[i] =
			walk(&memory, &state, world, samples->space[i], samples->most_frames, out->addresses + used,
		             &out->end[i], &out->guessed_from[i], out->is_lost ? &out->is_lost[i] : &is_lost);
		used += out->depth[i];
		for (unsigned method = 0; method < UNWIND_METHODS; method++)
			out->methods[i * UNWIND_METHODS + method] = (uint16_t)state.methods[method];
	}
	return i;
}
