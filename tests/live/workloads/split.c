/* SPDX-License-Identifier: Apache-2.0 */
/* split SECONDS: spends that much CPU time, three quarters of it in heavy() and one quarter in light(). */
#include "work.h"

#include <stdio.h>

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
	double end = argc > 1 ? atof(argv[1]) : 1.0;
	uint64_t sum = 0;

	printf("ready\n");
	fflush(stdout);
	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < end) {
		/* Clocks are read once in a while, so that they take no share worth naming. */
		for (int i = 0; i < 4; i++) {
			uint64_t n = chunk_length();

			if (n & 1)
				sum += heavy(n) + light(n);
			else
				sum += light(n) + heavy(n);
		}
	}
	return sum == 42;
}
