/* SPDX-License-Identifier: Apache-2.0 */
/* Which threads were started, by perf records. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* enum perf_event_type and struct perf_event_header, include/uapi/linux/perf_event.h */
#define PERF_RECORD_FORK 7
struct header {
	uint32_t type;
	uint16_t misc;
	uint16_t size; /* bytes, this header included */
};
struct fork {
	struct header header;
	uint32_t pid, parent, tid, starter;
	uint64_t time_ns;
};
struct started {
	uint64_t time_ns;
	uint32_t tid, starter;
};

/*
 * The threads that these records say were started, in their order, as far as there is room for them; returns how many
 * there are. Stops at what is no whole record.
 */
__attribute__((visibility("default"))) uint64_t tdprof_started_threads(const uint8_t *records, uint64_t size,
                                                                       struct started *out, uint64_t room)
{
	uint64_t count = 0;
	struct header header;
	struct fork fork;

	for (uint64_t at = 0; size - at >= sizeof header; at += header.size) {
		memcpy(&header, records + at, sizeof header);
		if (header.size < sizeof header || header.size > size - at)
			break;
		if (header.type != PERF_RECORD_FORK || header.size < sizeof fork)
			continue;
		memcpy(&fork, records + at, sizeof fork);
		if (count++ < room)
			out[count - 1] =
				(struct started){ .time_ns = fork.time_ns, .tid = fork.tid, .starter = fork.starter };
	}
	return count;
}
