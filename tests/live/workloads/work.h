/* SPDX-License-Identifier: Apache-2.0 */
/* Work of a known length for the live tests: each iteration depends on the one before it, so that neither code
 * alignment nor a wider processor changes how iterations share the time. */
#ifndef WORK_H
#define WORK_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define KEEP __attribute__((noinline, noclone))

/* Chunks of varied length, other ones in each process, so that a periodic sample cannot lock on to them. */
static inline uint64_t chunk_length(void)
{
	static uint64_t state;

	if (!state)
		state = (uint64_t)getpid() * 0x9e3779b97f4a7c15ull;
	state = state * 6364136223846793005ull + 1442695040888963407ull;
	return 30000 + (state >> 33) % 40000;
}

/* A macro, so that no inlined call stands between the work and the function it is charged to. Whoever asks for its
 * frame gets one, even a leaf function: without it its caller is not on the stack. */
#define SPIN(iterations)                                                                                               \
	({                                                                                                             \
		uint64_t end_ = (iterations), x_ = end_;                                                               \
		__asm__ volatile("" ::"r"(__builtin_frame_address(0)));                                                \
		for (uint64_t i_ = 0; i_ < end_; i_++) {                                                               \
			x_ = x_ * 6364136223846793005ull + 1;                                                          \
			__asm__ volatile("" : "+r"(x_));                                                               \
		}                                                                                                      \
		x_;                                                                                                    \
	})

static inline double cpu_seconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Calls a function until the process has worked so long; returns the sum of what it returned. */
static inline uint64_t work_in(uint64_t (*function)(uint64_t), double seconds)
{
	double end = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) + seconds;
	uint64_t sum = 0;

	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < end)
		sum += function(100000);
	return sum;
}

#endif
