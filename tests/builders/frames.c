// SPDX-License-Identifier: Apache-2.0
/* Functions with every kind of frame: of a leaf, with saved registers, with alloca, larger than 32 KiB, realigned, with
 * a variable argument list, called through the PLT, in a signal handler, before a call that does not return. */
#include <alloca.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NOINLINE __attribute__((noinline))

NOINLINE int leaf(int x)
{
	return x * 3 + 1;
}

NOINLINE int saved(const int *a, int n)
{
	int sum = 0;

	for (int i = 0; i < n; i++)
		sum += leaf(a[i]) ^ leaf(sum);
	return sum;
}

NOINLINE int varied(int n)
{
	int *p = alloca(n * sizeof(int));

	for (int i = 0; i < n; i++)
		p[i] = leaf(i);
	return saved(p, n);
}

NOINLINE int large(int n)
{
	volatile int b[17500] = { 0 };

	b[n] = 1;
	return saved((const int *)b, 4) + b[n + 1];
}

NOINLINE int aligned(int n)
{
	int b[64] __attribute__((aligned(64)));

	memset(b, n, sizeof(b));
	return varied(n) + saved(b, 64);
}

NOINLINE int listed(int n, ...)
{
	va_list list;
	int sum = 0;

	va_start(list, n);
	while (n--)
		sum += leaf(va_arg(list, int));
	va_end(list);
	return sum;
}

NOINLINE __attribute__((noreturn)) void last(int n)
{
	printf("%d\n", listed(2, n, saved(&n, 1)));
	exit(0);
}

static int compare(const void *a, const void *b)
{
	return leaf(*(const int *)a) - leaf(*(const int *)b);
}

static void handle(int number)
{
	if (number == SIGUSR1)
		last(number);
	leaf(number);
}

int main(int argc, char **argv)
{
	int a[8] = { 5, 2, 7, argc };

	qsort(a, 8, sizeof(*a), compare);
	signal(SIGUSR1, handle);
	signal(SIGUSR2, handle);
	raise(SIGUSR2);
	printf("%d\n", aligned(a[3]) + large(a[2] & 3) + listed(3, 1, 2, 3));
	raise(SIGUSR1);
	return argv[0][0];
}
