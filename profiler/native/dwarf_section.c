// SPDX-License-Identifier: Apache-2.0
/* Sections that are read when they are needed: of large debug data a profile asks for a part. Not mapped, since its
 * file may change: what was read once stays as it was. */
#include "dwarf.h"

#include <sys/types.h>
#include <unistd.h>

#define BLOCK_BITS 12 /* names stand far from each other */
#define BLOCK      (UINT64_C(1) << BLOCK_BITS)
#define OWN_BITS   14
#define OWN_BLOCK  (UINT64_C(1) << OWN_BITS)
#define MOST_READ  (1u << 30) /* Linux reads at most 2 GiB at once */

#define LARGEST_OWN (UINT64_C(1) << 24) /* bytes of a unit, which most are far from */

enum block_state { BLOCK_UNREAD, BLOCK_BEING_READ, BLOCK_READ };

/* Which blocks of a section are in memory. */
struct section_blocks {
	pthread_mutex_t lock;
	pthread_cond_t changed; /* a block is not being read any more */
	uint8_t state[];
};

bool open_sections(struct debug_file *file, const struct dwarf_section *sections, struct budget *budget)
{
	for (int i = 0; i < SECTION_COUNT; i++) {
		size_t bytes = sizeof(struct section_blocks) + (sections[i].size >> BLOCK_BITS) + 1;

		file->sections[i] = sections[i];
		if (!sections[i].unread)
			continue;
		file->blocks[i] = take_memory(budget, bytes) ? calloc(1, bytes) : NULL;
		if (!file->blocks[i]) {
			budget->exhausted = true;
			return false;
		}
		pthread_mutex_init(&file->blocks[i]->lock, NULL);
		pthread_cond_init(&file->blocks[i]->changed, NULL);
	}
	return true;
}

void close_sections(struct debug_file *file)
{
	for (int i = 0; i < SECTION_COUNT; i++) {
		if (!file->blocks[i])
			continue;
		pthread_mutex_destroy(&file->blocks[i]->lock);
		pthread_cond_destroy(&file->blocks[i]->changed);
		free(file->blocks[i]);
	}
}

/* Read a piece to where it stands in memory that is laid out as the section is; where what the file has of it ends. */
static uint64_t read_piece(const struct dwarf_section *section, uint8_t *into, uint64_t from, uint64_t to)
{
	uint64_t at = from;

	while (at < to) {
		size_t wanted = to - at < MOST_READ ? to - at : MOST_READ;
		ssize_t got = pread(section->fd, into + at, wanted, (off_t)(section->offset + at));

		if (got <= 0)
			break;
		at += (uint64_t)got;
	}
	return at;
}

/* Read the unread blocks from `first` on, which are one at least; where they end. The lock is held before and after. */
static uint64_t read_blocks(const struct dwarf_section *section, struct section_blocks *blocks, uint64_t first,
                            uint64_t end)
{
	uint64_t last = first, read;

	for (; last < end && blocks->state[last] == BLOCK_UNREAD; last++)
		__atomic_store_n(&blocks->state[last], BLOCK_BEING_READ, __ATOMIC_RELAXED);
	pthread_mutex_unlock(&blocks->lock);
	read = read_piece(section, section->unread, first << BLOCK_BITS,
	                  last << BLOCK_BITS < section->size ? last << BLOCK_BITS : section->size);
	pthread_mutex_lock(&blocks->lock);
	for (uint64_t i = first; i < last; i++)
		__atomic_store_n(&blocks->state[i],
		                 read >= (i + 1) << BLOCK_BITS || read == section->size ? BLOCK_READ : BLOCK_UNREAD,
		                 __ATOMIC_RELEASE);
	pthread_cond_broadcast(&blocks->changed);
	return last;
}

bool load_bytes(const struct debug_file *file, enum section_id id, uint64_t from, uint64_t bytes)
{
	const struct dwarf_section *section = &file->sections[id];
	struct section_blocks *blocks = file->blocks[id];
	uint64_t at = from >> BLOCK_BITS, end;
	bool fine = true;

	if (!blocks || from >= section->size || !bytes)
		return true;
	end = bytes < section->size - from ? from + bytes : section->size;
	end = (end + BLOCK - 1) >> BLOCK_BITS;
	while (at < end && __atomic_load_n(&blocks->state[at], __ATOMIC_ACQUIRE) == BLOCK_READ)
		at++;
	if (at == end)
		return true;
	pthread_mutex_lock(&blocks->lock);
	while (at < end && fine) {
		uint64_t first = at;

		while (blocks->state[at] == BLOCK_BEING_READ)
			pthread_cond_wait(&blocks->changed, &blocks->lock);
		at = blocks->state[at] == BLOCK_READ ? at + 1 : read_blocks(section, blocks, at, end);
		for (; first < at && fine; first++)
			fine = blocks->state[first] == BLOCK_READ;
	}
	pthread_mutex_unlock(&blocks->lock);
	return fine;
}

static bool reserve(struct own_memory *memory, uint64_t bytes, struct budget *budget)
{
	if (bytes <= memory->capacity)
		return true;
	free(memory->bytes);
	memory->capacity = bytes;
	memory->bytes = take_memory(budget, bytes) ? malloc(bytes) : NULL;
	if (memory->bytes)
		return true;
	memory->capacity = 0;
	budget->exhausted = true;
	return false;
}

struct cursor read_once(const struct debug_file *file, enum section_id id, uint64_t from, uint64_t bytes,
                        struct own_memory *memory, struct budget *budget)
{
	const struct dwarf_section *section = &file->sections[id];

	if (from > section->size)
		return (struct cursor){ .bad = true };
	if (bytes > section->size - from)
		bytes = section->size - from;
	if (!file->blocks[id] || !bytes)
		return cursor_over(section->data, from + bytes, from);
	if (bytes > LARGEST_OWN)
		return load_bytes(file, id, from, bytes) ? cursor_over(section->data, from + bytes, from)
		                                         : (struct cursor){ .bad = true };
	if (!reserve(memory, bytes, budget) ||
	    read_piece(section, memory->bytes - from, from, from + bytes) < from + bytes)
		return (struct cursor){ .bad = true };
	return cursor_over(memory->bytes, bytes, 0);
}

const struct unit *open_unit(const struct unit *unit, struct unit_memory *memory, struct budget *budget)
{
	uint64_t start = unit->offset & ~(OWN_BLOCK - 1), end = (uint64_t)(unit->dies.end - unit->info);
	uint64_t blocks = (end - start + OWN_BLOCK - 1) >> OWN_BITS;

	if (!unit->file->blocks[SECTION_INFO] || end - start > LARGEST_OWN)
		return unit;
	if (!reserve(&memory->dies, blocks << OWN_BITS, budget) || !reserve(&memory->is_read, blocks, budget))
		return unit;
	memset(memory->is_read.bytes, 0, blocks);
	memory->start = start;
	memory->unit = *unit;
	memory->unit.memory = memory;
	memory->unit.info = memory->dies.bytes - start;
	memory->unit.dies.at = memory->unit.info + (unit->dies.at - unit->info);
	memory->unit.dies.end = memory->unit.info + end;
	return &memory->unit;
}

void close_unit_memory(struct unit_memory *memory)
{
	free(memory->dies.bytes);
	free(memory->is_read.bytes);
}

uint64_t place_of(const char *text, const struct unit_memory *memory)
{
	uint64_t at = (uint64_t)((uintptr_t)text - (uintptr_t)memory->dies.bytes);

	if (at >= memory->dies.capacity)
		return (uint64_t)(uintptr_t)text;
	return (uint64_t)(uintptr_t)memory->unit.file->sections[SECTION_INFO].data + memory->start + at;
}

/* Have bytes of an opened unit's section in its memory. */
static bool load_own(const struct unit *unit, uint64_t from, uint64_t to)
{
	const struct dwarf_section *section = &unit->file->sections[SECTION_INFO];
	struct unit_memory *memory = unit->memory;

	for (from &= ~(OWN_BLOCK - 1); from < to; from += OWN_BLOCK) {
		uint8_t *is_read = &memory->is_read.bytes[(from - memory->start) >> OWN_BITS];
		uint64_t end = section->size - from < OWN_BLOCK ? section->size : from + OWN_BLOCK;

		*is_read = *is_read || read_piece(section, memory->dies.bytes - memory->start, from, end) == end;
		if (!*is_read)
			return false;
	}
	return true;
}

static bool fetch_dies(struct cursor *c, uint64_t size)
{
	const struct unit *unit = c->source;
	uint64_t from = (uint64_t)(c->at - unit->info), end = (uint64_t)(unit->dies.end - unit->info), loaded;
	uint64_t block = unit->memory ? OWN_BLOCK : BLOCK; /* nothing less is read */

	if (size > end - from)
		return false;
	if (!(unit->memory ? load_own(unit, from, from + size) : load_bytes(unit->file, SECTION_INFO, from, size)))
		return false;
	loaded = (from + size + block - 1) & ~(block - 1);
	c->end = unit->info + (loaded < end ? loaded : end);
	return true;
}

struct cursor dies_from(const struct unit *unit, uint64_t offset)
{
	const struct debug_file *file = unit->file;
	uint64_t first = (uint64_t)(unit->dies.at - unit->info), end = (uint64_t)(unit->dies.end - unit->info);
	struct cursor c;

	if (offset < first)
		return (struct cursor){ .bad = true };
	c = cursor_over(unit->info, end, offset);
	if (file->blocks[SECTION_INFO] && !c.bad) {
		c.end = c.at;
		c.fetch = fetch_dies;
		c.source = unit;
	}
	return c;
}

struct cursor all_dies(const struct unit *unit)
{
	return dies_from(unit, (uint64_t)(unit->dies.at - unit->info));
}
