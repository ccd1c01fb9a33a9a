// SPDX-License-Identifier: Apache-2.0
/* Sections that are read when they are needed: of large debug data a profile asks for a part. Not mapped, since its
 * file may change: what was read once stays as it was. */
#include "dwarf.h"

#include <sys/mman.h>
#include <sys/types.h>
#include <unistd.h>

#define BLOCK_BITS 14
#define BLOCK      (UINT64_C(1) << BLOCK_BITS)
#define MOST_READ  (1u << 30) /* Linux reads at most 2 GiB at once */

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

/* How much of a piece the file has; what is missing of it stays zeros. */
static uint64_t read_piece(const struct dwarf_section *section, uint64_t from, uint64_t to)
{
	uint64_t at = from;

#ifdef MADV_POPULATE_WRITE /* one fault instead of one a page; an older kernel refuses */
	madvise(section->unread + from, to - from, MADV_POPULATE_WRITE);
#endif
	while (at < to) {
		size_t wanted = to - at < MOST_READ ? to - at : MOST_READ;
		ssize_t got = pread(section->fd, section->unread + at, wanted, (off_t)(section->offset + at));

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
	read = read_piece(section, first << BLOCK_BITS,
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

bool load_unit(const struct unit *unit)
{
	const struct dwarf_section *section = &unit->file->sections[SECTION_INFO];

	return load_bytes(unit->file, SECTION_INFO, unit->offset,
	                  (uint64_t)(unit->dies.end - section->data) - unit->offset);
}
