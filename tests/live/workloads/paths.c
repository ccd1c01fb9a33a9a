/* SPDX-License-Identifier: Apache-2.0 */
/* paths SECONDS [COMMAND…]: burns time below call paths that unwinding finds hard, in turns; then executes COMMAND. */
#include "work.h"

#include <alloca.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

KEEP uint64_t leaf(uint64_t iterations)
{
	return SPIN(iterations);
}

/* What a call returns is used, so that none is a jump. */
KEEP uint64_t with_big_frame(uint64_t iterations)
{
	volatile char frame[9000];

	frame[0] = 1;
	return leaf(iterations) + frame[0];
}

KEEP uint64_t with_alloca(uint64_t iterations)
{
	volatile char *frame = alloca(64 + iterations % 512);

	frame[0] = 1;
	return with_big_frame(iterations) + frame[0];
}

KEEP uint64_t variadic(int count, ...)
{
	va_list list;
	uint64_t sum = 0;

	va_start(list, count);
	for (int i = 0; i < count; i++)
		sum += with_alloca(va_arg(list, uint64_t));
	va_end(list);
	return sum + 1;
}

static int compare(const void *left, const void *right)
{
	return leaf(2000) == 42 ? 0 : memcmp(left, right, 1);
}

KEEP uint64_t by_callback(void)
{
	char text[] = "qwertyuiopasdfghjklzxcvbnm";

	qsort(text, sizeof(text) - 1, 1, compare);
	return (uint64_t)text[3];
}

/* Deeper than the kernel's own walks go. */
KEEP uint64_t deep(int left, uint64_t iterations)
{
	return left ? deep(left - 1, iterations) + 1 : leaf(iterations) + 1;
}

int main(int argc, char **argv)
{
	double end = cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) + (argc > 1 ? atof(argv[1]) : 1);
	uint64_t sum = 0;

	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < end) {
		sum += variadic(1, (uint64_t)100000);
		sum += by_callback();
		sum += deep(180, 100000);
	}
	if (argc > 2)
		execvp(argv[2], argv + 2);
	return sum == 42;
}
