/* SPDX-License-Identifier: Apache-2.0 */
/* Growing arrays and a hash map for the DWARF index. How much a binary holds is not known before it is read, so
 * these allocate, unlike the decoders that fill the caller's columns. Running out of memory sets a flag that the
 * caller checks once at the end; what could not be stored is left out. */
#ifndef TDPROF_DWARF_MEMORY_H
#define TDPROF_DWARF_MEMORY_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#define VECTOR(type) struct { type *items; uint32_t count, capacity; }

/* Room for `needed` items; false, and *exhausted set, if there is no memory. */
static inline bool grow_vector(void **items, uint32_t *capacity, uint64_t needed, size_t item_bytes, bool *exhausted)
{
	uint64_t wanted = *capacity ? (uint64_t)*capacity * 2 : 64;
	void *moved;

	if (needed <= *capacity)
		return true;
	if (wanted < needed)
		wanted = needed;
	moved = wanted < UINT32_MAX ? realloc(*items, wanted * item_bytes) : NULL;
	if (!moved) {
		*exhausted = true;
		return false;
	}
	*items = moved;
	*capacity = (uint32_t)wanted;
	return true;
}

/* Append; evaluates to false if there was no memory. */
#define PUSH(vector, exhausted, ...)                                                                            \
	(((vector).count < (vector).capacity ||                                                                 \
	  grow_vector((void **)&(vector).items, &(vector).capacity, (uint64_t)(vector).count + 1,               \
		      sizeof(*(vector).items), (exhausted))) &&                                                 \
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
	return (uint32_t)(key * 0x9e3779b97f4a7c15u >> 32) & (map->size - 1);
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
static inline void map_add(struct map *map, uint64_t key, uint32_t value, bool *exhausted)
{
	if ((uint64_t)map->count * 2 >= map->size) {
		struct map bigger = { NULL, map->size ? map->size * 2 : 256, map->count };

		bigger.slots = bigger.size > map->size ? malloc((size_t)bigger.size * sizeof(*bigger.slots)) : NULL;
		if (!bigger.slots) {
			*exhausted = true;
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
