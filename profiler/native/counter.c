/* SPDX-License-Identifier: Apache-2.0 */
/* One moment on two clocks: the architecture's free-running counter, in which SPE stamps its records, and a clock. */
#include <stdint.h>
#include <time.h>

/* Readings of which the closest is taken: an interrupt between two clocks is not met so often in a row. */
#define TRIES 32

/* CNTVCT_EL0 on arm64; 0 where no counter is known that a profiler's records would be stamped in. */
static uint64_t read_counter(void)
{
#ifdef __aarch64__
	uint64_t value;

	/* The barriers keep the read between the two clock readings around it (Arm ARM, "Timers and counters"). */
	__asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(value) : : "memory");
	return value;
#else
	return 0;
#endif
}

static uint64_t read_clock_ns(clockid_t clock)
{
	struct timespec now;

	if (clock_gettime(clock, &now))
		return 0;
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* The counter and the clock at the same moment, as closely as it can be told; 0, or -1 where there is no counter. */
__attribute__((visibility("default"))) int tdprof_clock_pair(int clock, uint64_t *counter, uint64_t *ns)
{
	uint64_t closest = UINT64_MAX;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = read_clock_ns(clock), count = read_counter(), after = read_clock_ns(clock);

		if (!count || !before || after < before)
			return -1;
		if (after - before < closest) {
			closest = after - before;
			*counter = count;
			*ns = before + closest / 2;
		}
	}
	return 0;
}
