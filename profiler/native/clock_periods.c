/* SPDX-License-Identifier: Apache-2.0 */
/* Periods of sampled clocks that vary, so that no program keeps step with them. */
#define _GNU_SOURCE /* ppoll */
#include <poll.h>
#include <stdint.h>
#include <sys/ioctl.h>
#include <time.h>

#define PERF_EVENT_IOC_PERIOD 0x40082404 /* include/uapi/linux/perf_event.h */
#define NS_PER_S              1000000000ull
#define SAMPLES_EACH          32          /* with one period */
#define LEAST_EACH_NS         10000000ull /* however frequent they are */

/* A number from 0 to below 1 that only these three decide (splitmix64). */
static double random_share(uint64_t seed, uint64_t turn, uint64_t event)
{
	uint64_t x = seed + (turn << 20 | event) * 0x9e3779b97f4a7c15;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
	x = (x ^ x >> 27) * 0x94d049bb133111eb;
	return (double)((x ^ x >> 31) >> 11) / (1ull << 53);
}

/*
 * Give each of some events another period, again and again, until `stop` can be read. Rates are spread evenly over
 * `width` of the one asked for to either side, each with its opposite right after it, so that the mean is that one. A
 * change discards the period under way, half a sample each time.
 */
__attribute__((visibility("default"))) void tdprof_vary_periods(const int *events, uint64_t n, double hz, double width,
                                                                uint64_t seed, int stop)
{
	struct pollfd stopping = { .fd = stop, .events = POLLIN };
	uint64_t each_ns = (uint64_t)(SAMPLES_EACH * (double)NS_PER_S / hz);

	if (each_ns < LEAST_EACH_NS)
		each_ns = LEAST_EACH_NS;
	struct timespec wait = { each_ns / NS_PER_S, each_ns % NS_PER_S };

	for (uint64_t turn = 0;; turn++) {
		for (uint64_t i = 0; i < n; i++) {
			double off = width * (2 * random_share(seed, turn / 2, i) - 1);
			double rate = hz * (1 + (turn & 1 ? -off : off));
			uint64_t period_ns = (uint64_t)((double)NS_PER_S / rate);

			ioctl(events[i], PERF_EVENT_IOC_PERIOD, &period_ns); /* that of a CPU that is gone has none */
		}
		if (ppoll(&stopping, 1, &wait, 0) > 0)
			return;
	}
}
