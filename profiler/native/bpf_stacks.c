/* SPDX-License-Identifier: Apache-2.0 */
/* Splits a stream of BPF ring-buffer records into call stacks; tdprof/decode/bpf_aggregates.py is its only user. */
#include "bpf_stacks.h"

#include <string.h>

enum {
	RING_HEADER = 8,	/* u32 length with two flag bits, u32 page offset (kernel/bpf/ringbuf.c) */
	STACK_HEADER = 16,	/* struct stack_record of bpf/sample.h before its addresses */
	MAX_DEPTH = 127,
};

static const uint32_t RING_BUSY = 1u << 31, RING_DISCARD = 1u << 30;

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

/*
 * Reads whole records from data[0..size) until the input ends or an output is full (room for `capacity` stacks of
 * MAX_DEPTH addresses each is the caller's promise). start[i] is where stack i's addresses begin; start has one more.
 */
__attribute__((visibility("default"))) void tdprof_bpf_stacks(const uint8_t *data, uint64_t size, uint64_t capacity,
							      uint64_t *hash, uint8_t *is_kernel, uint64_t *start,
							      uint64_t *address, struct bpf_stacks_result *result)
{
	uint64_t at = 0, n = 0, total = 0, damaged = 0;

	while (size - at >= RING_HEADER && n < capacity) {
		uint32_t word = load32(data + at);
		uint64_t length = word & ~(RING_BUSY | RING_DISCARD);
		uint64_t whole = RING_HEADER + ((length + 7) & ~7ull);

		if (whole > size - at)
			break;
		const uint8_t *record = data + at + RING_HEADER;

		at += whole;
		if (word & RING_DISCARD)
			continue;
		uint32_t depth = length >= STACK_HEADER ? load32(record + 8) : MAX_DEPTH + 1;

		if (word & RING_BUSY || depth > MAX_DEPTH || STACK_HEADER + 8ull * depth != length) {
			damaged++;
			continue;
		}
		hash[n] = load64(record);
		is_kernel[n] = load32(record + 12) != 0;
		start[n++] = total;
		/* A frame pointer chain may end in a return address of 0, which is no frame. */
		while (depth > 0 && load64(record + STACK_HEADER + 8ull * (depth - 1)) == 0)
			depth--;
		memcpy(address + total, record + STACK_HEADER, 8ull * depth);
		total += depth;
	}
	start[n] = total;
	*result = (struct bpf_stacks_result){at, n, total, damaged};
}
