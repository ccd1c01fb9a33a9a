/* SPDX-License-Identifier: Apache-2.0 */
/* bursts SECONDS: works for so long in bursts that are all alike, three quarters of each in heavy() and then one in
 * light(), and sleeps a tenth of a millisecond after each. */
#include "work.h"

#include <stdio.h>

#define ITERATIONS 30000

KEEP uint64_t heavy(uint64_t iterations)
{
	return SPIN(3 * iterations);
}

KEEP uint64_t light(uint64_t iterations)
{
	return SPIN(iterations);
}

int main(int argc, char **argv)
{
	double end = cpu_seconds(CLOCK_MONOTONIC) + (argc > 1 ? atof(argv[1]) : 1.0);
	uint64_t sum = 0;

	while (cpu_seconds(CLOCK_MONOTONIC) < end) {
		sum += heavy(ITERATIONS) + light(ITERATIONS);
		usleep(100);
	}
	return sum == 42;
}
