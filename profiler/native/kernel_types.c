/* SPDX-License-Identifier: Apache-2.0 */
/* Which types the kernel's own type information has, and where (Documentation/bpf/btf.rst of the kernel). */
#include <stdint.h>
#include <string.h>

enum { ARRAY = 3, FUNC_PROTO = 13, INT = 1, STRUCT = 4, UNION, ENUM, VAR = 14, DATASEC, DECL_TAG = 17, ENUM64 = 19 };

/* struct btf_type; its last member, a size or a type, is not needed. */
struct type {
	uint32_t name, info, unused;
};

/* Bytes behind a type: of the whole, and of each of its parts. */
static const uint8_t fixed_bytes[] = { [INT] = 4, [ARRAY] = 12, [VAR] = 4, [DECL_TAG] = 4, [ENUM64] = 0 };
static const uint8_t part_bytes[] = {
	[STRUCT] = 12, [UNION] = 12, [ENUM] = 8, [FUNC_PROTO] = 8, [DATASEC] = 12, [ENUM64] = 12
};

struct wanted {
	uint32_t name, kind;
	uint32_t number; /* of the first type that has these; 0: none */
};

/*
 * Fill in the numbers of types, which count from 1 on, and where each type begins, as far as there is room; returns how
 * many there are, or -1 where one is of no known kind or cut off.
 */
__attribute__((visibility("default"))) int64_t tdprof_kernel_types(const uint8_t *types, uint64_t size,
                                                                   struct wanted *wanted, uint64_t wanted_count,
                                                                   uint32_t *places, uint64_t room)
{
	int64_t count = 0;
	struct type type;

	for (uint64_t at = 0; at < size; count++) {
		uint32_t kind;

		if (size - at < sizeof type)
			return -1;
		memcpy(&type, types + at, sizeof type);
		kind = type.info >> 24 & 0x1f;
		if (!kind || kind > ENUM64)
			return -1;
		for (uint64_t i = 0; i < wanted_count; i++)
			if (wanted[i].name == type.name && wanted[i].kind == kind && !wanted[i].number)
				wanted[i].number = (uint32_t)count + 1;
		if ((uint64_t)count < room)
			places[count] = (uint32_t)at;
		at += sizeof type + fixed_bytes[kind] + (uint64_t)part_bytes[kind] * (type.info & 0xffff);
	}
	return count;
}
