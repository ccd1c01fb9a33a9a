/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays and a hash map for the DWARF index. How much a binary holds is not known before it is read, so
 * these allocate, unlike the decoders that fill the caller's columns. They do so, and work, within a budget in
 * proportion to the input. Running out of memory sets a flag that the caller checks once at the end; what could not
 * be stored is left out. */
#ifndef TDPROF_DWARF_MEMORY_H
#define TDPROF_DWARF_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include "hash.h"

/* What all threads together may still take. */
struct common_budget {
	uint64_t memory; /* bytes */
	uint64_t work;   /* steps of some nanoseconds */
};

/* One thread's part of it, refilled by BUDGET_PART. */
struct budget {
	struct common_budget *common; /* NULL: there is no limit but the system's */
	uint64_t memory, work;
	bool exhausted; /* there was no memory, or more was asked for than is left */
	bool is_spent;  /* the same for work */
};

#define BUDGET_PART (1u << 20)

static inline bool take_part(uint64_t *mine, uint64_t *common, uint64_t amount)
{
	uint64_t left = __atomic_load_n(common, __ATOMIC_RELAXED), part;

	if (amount <= *mine) {
		*mine -= amount;
		return true;
	}
	amount -= *mine;
	do {
		if (left < amount)
			return false;
		part = left - amount < BUDGET_PART ? left : amount + BUDGET_PART;
	} while (!__atomic_compare_exchange_n(common, &left, left - part, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
	*mine = part - amount;
	return true;
}

static inline bool take_memory(struct budget *budget, uint64_t bytes)
{
	if (budget->common)
		budget->exhausted |= !take_part(&budget->memory, &budget->common->memory, bytes);
	return !budget->exhausted;
}

static inline bool spend_work(struct budget *budget, uint64_t steps)
{
	if (budget->common)
		budget->is_spent |= !take_part(&budget->work, &budget->common->work, steps);
	return !budget->is_spent;
}

#define VECTOR(type)                                                                                                   \
	struct {                                                                                                       \
		type *items;                                                                                           \
		uint32_t count, capacity;                                                                              \
	}

/* Room for `needed` items; false, and the budget exhausted, if there is no memory. */
static inline bool grow_vector(void **items, uint32_t *capacity, uint64_t needed, size_t item_bytes,
                               struct budget *budget)
{
	uint64_t wanted = *capacity ? (uint64_t)*capacity * 2 : 64;
	void *moved;

	if (needed <= *capacity)
		return true;
	if (wanted < needed)
		wanted = needed;
	if (!take_memory(budget, (wanted - *capacity) * item_bytes))
		return false;
	moved = wanted < UINT32_MAX ? realloc(*items, wanted * item_bytes) : NULL;
	if (!moved) {
		budget->exhausted = true;
		return false;
	}
	*items = moved;
	*capacity = (uint32_t)wanted;
	return true;
}

/* Append; evaluates to false if there was no memory. */
#define PUSH(vector, budget, ...)                                                                                      \
	(((vector).count < (vector).capacity ||                                                                        \
	  grow_vector((void **)&(vector).items, &(vector).capacity, (uint64_t)(vector).count + 1,                      \
	              sizeof(*(vector).items), (budget))) &&                                                           \
	 ((vector).items[(vector).count++] = (__VA_ARGS__), true))

#define RELEASE(vector) (free((vector).items), (vector).items = NULL, (vector).count = (vector).capacity = 0)

/* uint64 to uint32, open addressing; a value of MAP_NOTHING marks a free slot. */
#define MAP_NOTHING UINT32_MAX

struct map_slot {
	uint64_t key;
	uint32_t value;
};

struct map {
	struct map_slot *slots;
	uint32_t size; /* a power of two, or 0 */
	uint32_t count;
};

static inline uint32_t map_home(const struct map *map, uint64_t key)
{
	return (uint32_t)hash_home(key, map->slots) & (map->size - 1);
}

static inline uint32_t map_find(const struct map *map, uint64_t key)
{
	if (!map->size)
		return MAP_NOTHING;
	for (uint32_t i = map_home(map, key);; i = (i + 1) & (map->size - 1))
		if (map->slots[i].value == MAP_NOTHING || map->slots[i].key == key)
			return map->slots[i].value;
}

static inline void map_place(struct map *map, uint64_t key, uint32_t value)
{
	uint32_t i = map_home(map, key);

	while (map->slots[i].value != MAP_NOTHING)
		i = (i + 1) & (map->size - 1);
	map->slots[i] = (struct map_slot){ key, value };
}

/* Add a key that is not there yet. */
static inline void map_add(struct map *map, uint64_t key, uint32_t value, struct budget *budget)
{
	if ((uint64_t)map->count * 2 >= map->size) {
		struct map bigger = { NULL, map->size ? map->size * 2 : 256, map->count };

		if (!take_memory(budget, (uint64_t)(bigger.size - map->size) * sizeof(*bigger.slots)))
			return;
		bigger.slots = bigger.size > map->size ? malloc((size_t)bigger.size * sizeof(*bigger.slots)) : NULL;
		if (!bigger.slots) {
			budget->exhausted = true;
			return;
		}
		for (uint32_t i = 0; i < bigger.size; i++)
			bigger.slots[i].value = MAP_NOTHING;
		for (uint32_t i = 0; i < map->size; i++)
			if (map->slots[i].value != MAP_NOTHING)
				map_place(&bigger, map->slots[i].key, map->slots[i].value);
		free(map->slots);
		*map = bigger;
	}
	map_place(map, key, value);
	map->count++;
}

#endif
