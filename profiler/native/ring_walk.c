/* SPDX-License-Identifier: Apache-2.0 */
/* Perf's records with copied user stacks into records with call chains, while a recording runs. */
#include "ring_walk.h"

#include <linux/perf_event.h>
#include <string.h>

#include "perf_cursor.h"
#include "unwind.h"

#define EXPORT         __attribute__((visibility("default")))
#define HEADER_BYTES   8
#define EXECUTABLE     4         /* PROT_EXEC */
#define MISC_COMM_EXEC (1 << 13) /* PERF_RECORD_MISC_COMM_EXEC */

/* A sample: identifier, ip, pid and tid, time, cpu, period; chain; user registers; user stack; what else was asked for.
 */
enum { TID_AT = HEADER_BYTES + 16, TIME_AT = TID_AT + 8, CHAIN_AT = TIME_AT + 24 };

struct sample {
	const uint8_t *record, *chain, *registers, *stack, *rest;
	uint64_t size, chain_count, stack_bytes, rest_bytes; /* of the stack: that could be read */
};

static struct ring_space *find_space(const struct ring_walk *walk, uint32_t pid)
{
	uint32_t low = 0, high = walk->space_count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (walk->spaces[middle].pid < pid)
			low = middle + 1;
		else
			high = middle;
	}
	return low < walk->space_count && walk->spaces[low].pid == pid ? &walk->spaces[low] : NULL;
}

static void ask(struct ring_walk *walk, struct ring_space *space, uint32_t pid)
{
	if (space != NULL) {
		if (space->is_asked)
			return;
		space->is_asked = 1;
	}
	for (uint32_t i = 0; i < walk->asked_count; i++)
		if (walk->asked[i] == pid)
			return;
	if (walk->asked_count < walk->asked_capacity)
		walk->asked[walk->asked_count++] = pid;
}

/*
 * Whether a PERF_RECORD_MMAP2 puts something else where a file was known to be. From its header on: pid, tid, address,
 * length, file offset, 24 bytes that name the file, protection; the path, and what all records end with.
 */
static bool replaces_file(const struct ring_space *space, const uint8_t *record, uint64_t bytes)
{
	if (bytes < HEADER_BYTES + 64 + 24 || !(load32(record + HEADER_BYTES + 56, false) & EXECUTABLE))
		return false;
	uint64_t start = load64(record + HEADER_BYTES + 8, false);
	uint64_t end = start + load64(record + HEADER_BYTES + 16, false);

	for (uint32_t i = 0; i < space->mapping_count; i++) {
		const struct unwind_mapping *mapping = &space->mappings[i];

		if (mapping->kind == UNWIND_MAPPING_TABLE && mapping->start < end && start < mapping->end)
			return true;
	}
	return false;
}

EXPORT void tdprof_ring_forget(struct ring_walk *walk, const uint8_t *data, uint64_t size)
{
	for (uint64_t at = 0; size - at >= HEADER_BYTES;) {
		const uint8_t *record = data + at;
		uint32_t type = load32(record, false);
		uint64_t bytes = load16(record + 6, false);
		bool is_exec = type == PERF_RECORD_COMM && load16(record + 4, false) & MISC_COMM_EXEC;
		bool is_mapped = type == PERF_RECORD_MMAP2;

		if (bytes < HEADER_BYTES || bytes > size - at)
			return;
		at += bytes;
		if ((!is_exec && !is_mapped && type != PERF_RECORD_EXIT) || bytes < HEADER_BYTES + 24)
			continue;
		/* pid first in both. An exit: pid, ppid, tid, ptid, time; what all end with: …, time, cpu, identifier.
		 */
		struct ring_space *space = find_space(walk, load32(record + 8, false));

		if (space == NULL || (type == PERF_RECORD_EXIT && load32(record + 16, false) != space->pid) ||
		    (is_mapped && !replaces_file(space, record, bytes)))
			continue;
		uint64_t time_ns = load64(record + bytes - 24, false);

		if (time_ns <= space->begin_ns)
			continue; /* a record that was looked at before */
		space->begin_ns = time_ns;
		space->mapping_count = 0;
		space->is_asked = 0;
	}
}

/* False: it has another form, or its stack was not copied. */
static bool parse_sample(const struct ring_walk *walk, const uint8_t *record, uint64_t bytes, struct sample *sample)
{
	struct cursor c = { record + CHAIN_AT, record + bytes, false, bytes < CHAIN_AT };
	uint64_t filled;

	if (c.failed)
		return false;
	sample->record = record;
	sample->size = bytes;
	sample->chain_count = take64(&c);
	if (sample->chain_count > left(&c) / 8)
		return false;
	sample->chain = take(&c, 8 * sample->chain_count);
	if (take64(&c) != PERF_SAMPLE_REGS_ABI_64)
		return false;
	sample->registers = take(&c, 8 * (uint64_t)walk->register_count);
	sample->stack_bytes = take64(&c);
	if (sample->stack_bytes == 0)
		return false;
	sample->stack = take(&c, sample->stack_bytes);
	filled = take64(&c); /* how much of it the kernel could read */
	if (filled < sample->stack_bytes)
		sample->stack_bytes = filled;
	sample->rest_bytes = left(&c);
	sample->rest = take(&c, sample->rest_bytes);
	return !c.failed;
}

/* Returns the depth; `head` is as in the header, `is_lost` as in unwind_stacks. */
static uint32_t walk_sample(const struct ring_walk *walk, const struct ring_space *space, const struct sample *sample,
                            uint64_t *addresses, struct ring_walk_head *head, uint8_t *is_lost)
{
	uint64_t registers[UNWIND_X86_64_WORDS] = { 0 }, stack_start = 0;
	uint32_t number = 0, stack_bytes = (uint32_t)sample->stack_bytes, depth = 0;
	uint32_t first_mapping[2] = { 0, space->mapping_count };
	uint16_t methods[UNWIND_METHODS], guessed_from;
	struct unwind_samples samples = {
		registers, &number, &stack_start,  &stack_bytes,     sample->stack, stack_bytes,
		1,         1,       walk->machine, RING_WALK_FRAMES, NULL
	};
	struct unwind_world world = { first_mapping, space->mappings, walk->tables, 1, walk->table_count };
	struct unwind_stacks out = { addresses, RING_WALK_FRAMES, &depth, &head->end, methods, &guessed_from, is_lost };

	for (uint32_t i = 0; i < UNWIND_X86_64_WORDS; i++)
		if (walk->places[i] >= 0 && (uint32_t)walk->places[i] < walk->register_count)
			registers[i] = load64(sample->registers + 8 * (uint64_t)walk->places[i], false);
	tdprof_unwind_walk(&samples, &world, &out);
	head->guessed_from = (uint8_t)guessed_from;
	head->by_table = methods[UNWIND_BY_TABLE];
	head->by_fp = methods[UNWIND_BY_FP];
	head->by_lr = methods[UNWIND_BY_LR];
	return depth;
}

static uint8_t *put64(uint8_t *out, uint64_t word)
{
	memcpy(out, &word, 8);
	return out + 8;
}

/* The record with a call chain; returns its bytes, 0 where it would be larger than before. */
static uint64_t put_sample(const struct sample *sample, const struct ring_walk_head *head, const uint64_t *addresses,
                           uint32_t depth, uint8_t *out)
{
	uint64_t chain_count = sample->chain_count + 2 + depth,
		 bytes = CHAIN_AT + 8 + 8 * chain_count + 16 + sample->rest_bytes;
	uint16_t size = (uint16_t)bytes;
	uint8_t *at = out + CHAIN_AT;

	if (bytes > sample->size)
		return 0;
	memcpy(out, sample->record, CHAIN_AT);
	memcpy(out + 6, &size, sizeof(size));
	at = put64(at, chain_count);
	memcpy(at, sample->chain, 8 * sample->chain_count);
	at = put64(at + 8 * sample->chain_count, PERF_CONTEXT_USER);
	memcpy(at, head, 8);
	memcpy(at + 8, addresses, 8 * (uint64_t)depth);
	at = put64(at + 8 + 8 * (uint64_t)depth, PERF_SAMPLE_REGS_ABI_NONE);
	at = put64(at, 0); /* bytes of stack */
	memcpy(at, sample->rest, sample->rest_bytes);
	return bytes;
}

/* The record with no more of its stack than there was; returns its bytes. */
static uint64_t put_copy(const struct sample *sample, uint8_t *out)
{
	const uint8_t *behind = sample->rest - 8; /* the word that says how much there was */
	uint64_t before = (uint64_t)(sample->stack - sample->record), room = (uint64_t)(behind - sample->stack);
	uint64_t kept = sample->stack_bytes < 8 ? 8 : (sample->stack_bytes + 7) / 8 * 8;

	if (kept > room)
		kept = room;

	uint16_t size = (uint16_t)(sample->size - (room - kept));

	memcpy(out, sample->record, before + kept);
	memcpy(out + 6, &size, sizeof(size));
	put64(out + before - 8, kept);
	memcpy(out + before + kept, behind, 8 + sample->rest_bytes);
	return size;
}

/* Returns the bytes of the record that takes the sample's place, 0: it stays as it is. */
static uint64_t replace_sample(struct ring_walk *walk, const struct sample *sample, uint8_t *out)
{
	uint32_t pid = load32(sample->record + TID_AT, false);
	struct ring_space *space = find_space(walk, pid);
	bool is_known =
		space != NULL && space->mapping_count && load64(sample->record + TIME_AT, false) >= space->begin_ns;
	struct ring_space nothing = { .pid = pid };
	uint64_t addresses[RING_WALK_FRAMES], bytes;
	struct ring_walk_head head;
	uint8_t is_lost;
	uint32_t depth = walk_sample(walk, is_known ? space : &nothing, sample, addresses, &head, &is_lost);

	if (is_lost)
		ask(walk, space, pid);
	if (is_lost || head.end == UNWIND_END_NO_TABLE) {
		/* Of a process that is not known at all only the bytes of the recording are limited. */
		if ((space == NULL || space->copies_left) && walk->copied_bytes_left >= sample->size) {
			if (space != NULL)
				space->copies_left--;
			bytes = put_copy(sample, out);
			walk->copied_bytes_left -= bytes;
			walk->copied++;
			return bytes;
		}
		/* Where a guess leads, mostly nothing is. */
		walk->not_copied += head.end == UNWIND_END_NO_TABLE || head.end == UNWIND_END_NO_MAPPING;
	}
	bytes = put_sample(sample, &head, addresses, depth, out);
	walk->walked += bytes != 0;
	return bytes;
}

/* The bytes of a ring from a position on, in one piece: where they wrap, copied to `wrapped`. */
static const uint8_t *in_one_piece(const struct ring_part *part, uint64_t position, uint64_t bytes, uint8_t *wrapped)
{
	uint64_t at = position % part->size, first = part->size - at;

	if (bytes <= first)
		return part->data + at;
	memcpy(wrapped, part->data + at, first);
	memcpy(wrapped + first, part->data, bytes - first);
	return wrapped;
}

/* The bytes of the record at a position; 0: there is no whole one. */
static uint64_t record_bytes(const struct ring_part *part, uint64_t position, uint32_t *type)
{
	uint8_t wrapped[HEADER_BYTES];

	if (part->end - position < HEADER_BYTES)
		return 0;
	const uint8_t *header = in_one_piece(part, position, HEADER_BYTES, wrapped);
	uint64_t bytes = load16(header + 6, false);

	*type = load32(header, false);
	return bytes < HEADER_BYTES || bytes > part->end - position ? 0 : bytes;
}

EXPORT uint64_t tdprof_ring_side_band(const struct ring_part *part, uint8_t *out)
{
	uint8_t wrapped[RING_WALK_RECORD];
	uint64_t used = 0, bytes;
	uint32_t type;

	for (uint64_t at = part->start; (bytes = record_bytes(part, at, &type)) != 0; at += bytes) {
		if (type == PERF_RECORD_SAMPLE)
			continue;
		if (out != NULL)
			memcpy(out + used, in_one_piece(part, at, bytes, wrapped), bytes);
		used += bytes;
	}
	return used;
}

EXPORT uint64_t tdprof_ring_walk(struct ring_walk *walk, struct ring_part *part, uint8_t *out, uint64_t capacity)
{
	uint8_t wrapped[RING_WALK_RECORD];
	uint64_t used = 0;

	while (part->start < part->end) {
		uint32_t type = 0;
		uint64_t bytes = record_bytes(part, part->start, &type), written = 0;
		struct sample sample;

		if (bytes == 0) {
			/* The kernel writes no such thing; who reads the spool says what is damaged. */
			bytes = part->end - part->start < RING_WALK_RECORD ? part->end - part->start : RING_WALK_RECORD;
			type = 0;
		}
		if (bytes > capacity - used)
			break;
		const uint8_t *record = in_one_piece(part, part->start, bytes, wrapped);

		if (type == PERF_RECORD_SAMPLE && parse_sample(walk, record, bytes, &sample))
			written = replace_sample(walk, &sample, out + used);
		if (written == 0) {
			memcpy(out + used, record, bytes);
			written = bytes;
		}
		used += written;
		part->start += bytes;
	}
	return used;
}
