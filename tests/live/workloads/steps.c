// Repeats four kinds of work, each in a function of its own: ROUNDS times, with PERCENT more in the first of them.
// None of them needs memory, so that what else runs on the machine matters little. Rounds differ in length: equal ones
// can keep step with a sampling clock, which then finds the same places of each round. At the end it says how many
// nanoseconds of processor time each function had.
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

__attribute__((noinline)) static uint64_t multiply(uint64_t x, int n)
{
	for (int i = 0; i < n; i++) {
		x *= 0x9e3779b97f4a7c15ull;
		x ^= x >> 29;
	}
	return x;
}

__attribute__((noinline)) static uint64_t shift(uint64_t x, int n)
{
	for (int i = 0; i < n; i++) {
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
	}
	return x;
}

__attribute__((noinline)) static double divide(double x, int n)
{
	for (int i = 0; i < n; i++)
		x = 1.0 + 1.0 / (x + 0.5);
	return x;
}

__attribute__((noinline)) static uint64_t rotate(uint64_t x, int n)
{
	for (int i = 0; i < n; i++)
		x = (x << 9 | x >> 55) + 0x6a09e667f3bcc909ull;
	return x;
}

static uint64_t used_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

int main(int argc, char **argv)
{
	int rounds = argc > 1 ? atoi(argv[1]) : 1000, percent = argc > 2 ? atoi(argv[2]) : 0;
	uint64_t x = 88172645463325252ull;
	double y = 1;
	uint32_t random = 1;
	uint64_t used[4] = { 0 };

	for (int i = 0; i < rounds; i++) {
		random = random * 1664525 + 1013904223;
		int length = 1 + (random >> 28);

		uint64_t at[5] = { used_ns() };

		x = multiply(x, length * (12500 + 125 * percent));
		at[1] = used_ns();
		x = shift(x, length * 5000);
		at[2] = used_ns();
		y = divide(y, length * 2500);
		at[3] = used_ns();
		x = rotate(x, length * 7500);
		at[4] = used_ns();
		for (int k = 0; k < 4; k++)
			used[k] += at[k + 1] - at[k];
	}
	printf("%llu %f\n", (unsigned long long)x, y);
	for (int k = 0; k < 4; k++)
		printf("%llu ", (unsigned long long)used[k]);
	return 0;
}
