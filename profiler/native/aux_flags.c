/* SPDX-License-Identifier: Apache-2.0 */
/* What the kernel says of AUX data while it is recorded. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* enum perf_event_type and struct perf_event_header, include/uapi/linux/perf_event.h */
#define PERF_RECORD_LOST 2
#define PERF_RECORD_AUX  11
struct header {
	uint32_t type;
	uint16_t misc;
	uint16_t size; /* bytes, this header included */
};
struct aux {
	struct header header;
	uint64_t offset, size, flags;
};

/*
 * Whether one of these records is a PERF_RECORD_AUX with any of the flags, or says that records were lost, of which any
 * may have been one. Stops at what is no whole record.
 */
__attribute__((visibility("default"))) int tdprof_has_aux_flags(const uint8_t *records, uint64_t size, uint64_t flags)
{
	struct header header;
	struct aux aux;

	for (uint64_t at = 0; size - at >= sizeof header; at += header.size) {
		memcpy(&header, records + at, sizeof header);
		if (header.size < sizeof header || header.size > size - at)
			return 0;
		if (header.type == PERF_RECORD_LOST)
			return 1;
		if (header.type != PERF_RECORD_AUX || header.size < sizeof aux)
			continue;
		memcpy(&aux, records + at, sizeof aux);
		if (aux.flags & flags)
			return 1;
	}
	return 0;
}
