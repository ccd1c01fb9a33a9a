/* SPDX-License-Identifier: Apache-2.0 */
/* bench_work ITERATIONS RESULT: appends to the file RESULT one line: CLOCK_MONOTONIC at the start of main(), wall and
 * CPU nanoseconds of a fixed amount of work at the bottom of eight calls. 0 ITERATIONS: the start alone. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static uint64_t nanoseconds(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

__attribute__((noinline, noclone)) static uint64_t descend(int depth, uint64_t iterations)
{
	uint64_t x = iterations;

	if (depth) {
		x = descend(depth - 1, iterations);
		__asm__ volatile("" : "+r"(x));
		return x;
	}
	for (uint64_t i = 0; i < iterations; i++) {
		x = x * 6364136223846793005ull + 1;
		__asm__ volatile("" : "+r"(x));
	}
	return x;
}

int main(int argc, char **argv)
{
	uint64_t start = nanoseconds(CLOCK_MONOTONIC), cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
	uint64_t left = argc > 2 ? strtoull(argv[1], NULL, 0) : 0, sum = 0;
	FILE *file;

	for (; left >= 100000; left -= 100000)
		sum += descend(8, 100000);
	cpu = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - cpu;
	file = argc > 2 ? fopen(argv[2], "a") : NULL;
	if (!file)
		return 1;
	fprintf(file, "%llu %llu %llu\n", (unsigned long long)start,
	        (unsigned long long)(nanoseconds(CLOCK_MONOTONIC) - start), (unsigned long long)cpu);
	return fclose(file) || sum == 42;
}
