/* SPDX-License-Identifier: Apache-2.0 */
/* Call chains into stacks of numbered places, so that only distinct addresses have to be attributed. */
#include "stacks.h"

#include "hash.h"

/* The number of a place, which is added if new and there is room, or -1. */
static int32_t number_of(struct stack_places *t, uint64_t address, uint32_t context)
{
	const uint64_t hash = hash_end(hash_pair(t->seed, address, context, t->seed));
	uint64_t slot = hash & t->slot_mask;
	for (uint64_t entry; (entry = t->slots[slot]) != 0; slot = (slot + 1) & t->slot_mask) {
		const uint64_t row = (uint32_t)entry - 1;
		if (entry >> 32 == hash && t->address[row] == address && t->context[row] == context)
			return (int32_t)row;
	}
	if (t->rows >= t->capacity)
		return -1;
	t->address[t->rows] = address;
	t->context[t->rows] = context;
	t->rows++;
	t->slots[slot] = hash << 32 | t->rows;
	return (int32_t)(t->rows - 1);
}

/* Number the places of chain[first ..] of a ragged array of addresses, in context[first ..]. A return address counts as
 * one less, so that it falls into the call; a chain's leaf is where the processor was, or left user space.
 * place: one for each address of all chains, one chain behind the other; place_start: [chains + 1], where each begins.
 * Returns the first chain there was no room for, or `chains`. */
EXPORT uint64_t tdprof_number_places(struct stack_places *t, const int32_t *start, const uint64_t *address,
                                     const int64_t *chain, const uint32_t *context, uint64_t chains, uint64_t first,
                                     const int64_t *place_start, int32_t *place)
{
	for (uint64_t i = first; i < chains; i++) {
		int32_t *out = place + place_start[i];
		const uint64_t *from = address + start[chain[i]], *const end = address + start[chain[i] + 1];
		for (uint64_t is_caller = 0; from < end; is_caller = 1)
			if ((*out++ = number_of(t, *from++ - is_caller, context[i])) < 0)
				return i;
	}
	return chains;
}

/* Move every entry of `old` (old_count slots) into the new, zeroed slots. */
EXPORT void tdprof_rehash_places(struct stack_places *t, const uint64_t *old, uint64_t old_count)
{
	hash_move(t->slots, t->slot_mask, old, old_count);
}

/* length[i]: places of chain i in front of the first caller at one that is `outside`; those get used[place] = 1. */
EXPORT void tdprof_cut_chains(const int64_t *start, const int32_t *place, uint64_t chains, const uint8_t *outside,
                              int64_t *length, uint8_t *used)
{
	for (uint64_t i = 0; i < chains; i++) {
		const int32_t *row = place + start[i];
		const int64_t whole = start[i + 1] - start[i];
		int64_t kept = 0;
		for (; kept < whole && (kept == 0 || !outside[row[kept]]); kept++)
			used[row[kept]] = 1;
		length[i] = kept;
	}
}

/* Write the first length[row] values of each of `rows` (-1: none) behind each other, as `number` has them. */
EXPORT void tdprof_gather_numbered(const int64_t *start, const int64_t *length, const int32_t *value,
                                   const int32_t *number, const int64_t *rows, uint64_t count, int32_t *out)
{
	for (uint64_t i = 0; i < count; i++) {
		if (rows[i] < 0)
			continue;
		const int32_t *from = value + start[rows[i]];
		for (int64_t j = 0; j < length[rows[i]]; j++)
			*out++ = number[from[j]];
	}
}
