/* SPDX-License-Identifier: Apache-2.0 */
/* The stretch of a process's time that a sample falls into. */
#ifndef TDPROF_PERF_INTERVALS_H
#define TDPROF_PERF_INTERVALS_H

#include <stdbool.h>

#include "perf_records.h"

/* A stretch of one process's time in which nothing changed; what falls into it gets the time `end_ns`. */
struct span {
	uint64_t start_ns, end_ns;
	uint32_t pid;
	bool known;
};

/* First change of `pid` after `time_ns`, as an index. */
static inline uint64_t next_change(const struct perf_intervals *all, uint32_t pid, uint64_t time_ns)
{
	uint64_t low = 0, high = all->changes;
	while (low < high) {
		const uint64_t middle = low + (high - low) / 2;
		if (all->change_pid[middle] < pid ||
		    (all->change_pid[middle] == pid && all->change_ns[middle] <= time_ns))
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static inline struct span span_of(const struct perf_intervals *all, uint32_t pid, uint64_t time_ns)
{
	const uint64_t start = time_ns - time_ns % all->interval_ns;
	struct span span = { start, start + (all->interval_ns - 1), pid, true };
	if (span.end_ns < start)
		span.end_ns = UINT64_MAX;
	const uint64_t change = next_change(all, pid, time_ns);
	if (change < all->changes && all->change_pid[change] == pid && all->change_ns[change] - 1 < span.end_ns)
		span.end_ns = all->change_ns[change] - 1;
	if (change > 0 && all->change_pid[change - 1] == pid && all->change_ns[change - 1] > span.start_ns)
		span.start_ns = all->change_ns[change - 1];
	return span;
}

/* The time of what is added up; `span` is the one of the sample before, whose interval this one mostly shares. */
static inline uint64_t interval_end(const struct perf_intervals *all, uint32_t pid, uint64_t time_ns, struct span *span)
{
	if (!span->known || span->pid != pid || time_ns < span->start_ns || time_ns > span->end_ns)
		*span = span_of(all, pid, time_ns);
	return span->end_ns;
}

/* The capture's number of an event of the file, NO_EVENT if it is not wanted. */
static inline uint32_t event_number(const struct perf_intervals *all, uint32_t event)
{
	return event < all->events ? all->event_number[event] : NO_EVENT;
}

#endif
