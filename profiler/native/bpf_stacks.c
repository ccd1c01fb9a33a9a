/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Splits streams of BPF ring-buffer records into call stacks and copied ones, for tdprof/decode/bpf_aggregates.py and
 * bpf_copies.py.
 */
#include "bpf_stacks.h"

#include <stdbool.h>
#include <string.h>

enum {
	RING_HEADER = 8,       /* u32 length with two flag bits, u32 page offset (kernel/bpf/ringbuf.c) */
	STACK_HEADER = 24,     /* struct stack_record of bpf/sample.h before its addresses */
	OLD_STACK_HEADER = 16, /* until stacks said how they ended: u64 hash, u32 depth, u32 is_kernel */
	MAX_DEPTH = 255,
	/* struct stack_copy before its stack: identity, time, u32 pid, u32 bytes of the stack, pages, registers */
	COPY_HEADER = 32 + 8 * BPF_COPY_REGISTERS,
	MAX_COPY = 65536,
};

#define EXPORT __attribute__((visibility("default")))

static const uint32_t RING_BUSY = 1u << 31, RING_DISCARD = 1u << 30;

static uint16_t load16(const uint8_t *p)
{
	uint16_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint32_t load32(const uint8_t *p)
{
	uint32_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

static uint64_t load64(const uint8_t *p)
{
	uint64_t v;

	memcpy(&v, p, sizeof(v));
	return v;
}

struct ring_record {
	const uint8_t *data;
	uint64_t length;
	uint32_t flags;
};

/* Whether a whole record stands at `*at` in data[0..size); `*at` is then behind it. */
static bool next_record(const uint8_t *data, uint64_t size, uint64_t *at, struct ring_record *record)
{
	if (size - *at < RING_HEADER)
		return false;
	uint32_t word = load32(data + *at);
	uint64_t length = word & ~(RING_BUSY | RING_DISCARD);
	uint64_t whole = RING_HEADER + ((length + 7) & ~7ull);

	if (whole > size - *at)
		return false;
	*record = (struct ring_record){ data + *at + RING_HEADER, length, word & (RING_BUSY | RING_DISCARD) };
	*at += whole;
	return true;
}

/* Bytes of a record before its addresses, 0 if it is none of a stack. */
static uint64_t header_size(const uint8_t *record, uint64_t length)
{
	if (length < OLD_STACK_HEADER)
		return 0;
	uint64_t depth = load16(record + 8);

	if (depth > MAX_DEPTH)
		return 0;
	return length == STACK_HEADER + 8 * depth || length == OLD_STACK_HEADER + 8 * depth ? length - 8 * depth : 0;
}

/*
 * Reads whole records from data[0..size) until the input ends or an output is full (room for `capacity` stacks of
 * MAX_DEPTH addresses each is the caller's promise). start[i] is where stack i's addresses begin; start has one more.
 */
EXPORT void tdprof_bpf_stacks(const uint8_t *data, uint64_t size, uint64_t capacity, uint64_t *hash,
                              struct bpf_stack_walk *walk, uint64_t *start, uint64_t *address,
                              struct bpf_stacks_result *result)
{
	uint64_t at = 0, n = 0, total = 0, damaged = 0;
	struct ring_record next;

	while (n < capacity && next_record(data, size, &at, &next)) {
		const uint8_t *record = next.data;

		if (next.flags & RING_DISCARD)
			continue;
		uint64_t header = header_size(record, next.length);

		if (next.flags & RING_BUSY || !header) {
			damaged++;
			continue;
		}
		uint64_t depth = (next.length - header) / 8;

		/* A frame pointer chain may end in a return address of 0, which is no frame. */
		while (depth > 0 && load64(record + header + 8 * (depth - 1)) == 0)
			depth--;
		if (header == STACK_HEADER)
			memcpy(&walk[n], record + 8, sizeof(walk[n]));
		else
			walk[n] = (struct bpf_stack_walk){ .is_kernel = load32(record + 12) != 0 };
		walk[n].depth = (uint16_t)depth;
		hash[n] = load64(record);
		start[n++] = total;
		memcpy(address + total, record + header, 8 * depth);
		total += depth;
	}
	start[n] = total;
	*result = (struct bpf_stacks_result){ at, n, total, damaged };
}

/* Reads whole records from data[0..size) until the input ends or `out` is full. `result->addresses` counts stack bytes.
 */
EXPORT void tdprof_bpf_copies(const uint8_t *data, uint64_t size, const struct bpf_copies *out,
                              struct bpf_stacks_result *result)
{
	uint64_t at = 0, n = 0, total = 0, damaged = 0;
	struct ring_record next;

	while (n < out->capacity && next_record(data, size, &at, &next)) {
		const uint8_t *record = next.data;

		if (next.flags & RING_DISCARD)
			continue;
		if (next.flags & RING_BUSY || next.length < COPY_HEADER || next.length - COPY_HEADER > MAX_COPY) {
			damaged++;
			continue;
		}
		out->identity[n] = load64(record);
		out->time_ns[n] = load64(record + 8);
		out->pid[n] = load32(record + 16);
		out->pages[n] = load64(record + 24);
		memcpy(&out->registers[n * BPF_COPY_REGISTERS], record + 32, 8 * BPF_COPY_REGISTERS);
		out->stack_start[n] = (uint64_t)(record - data) + COPY_HEADER;
		out->stack_bytes[n] = (uint32_t)(next.length - COPY_HEADER);
		total += out->stack_bytes[n++];
	}
	*result = (struct bpf_stacks_result){ at, n, total, damaged };
}
