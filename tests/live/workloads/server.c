/* SPDX-License-Identifier: Apache-2.0 */
/*
 * server: two threads, "busy-a" and "busy-b", work in serve_a() and serve_b() until standard input ends; with the first
 * byte that comes there a third does, "busy-c", in serve_a() as well.
 */
#include "work.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

static atomic_int is_over;

KEEP uint64_t serve_a(void)
{
	uint64_t sum = 0;

	while (!is_over)
		sum += SPIN(100000);
	return sum;
}

KEEP uint64_t serve_b(void)
{
	uint64_t sum = 1;

	while (!is_over)
		sum += SPIN(100000);
	return sum;
}

static void *run_a(void *unused)
{
	pthread_setname_np(pthread_self(), "busy-a");
	return (void *)((serve_a() == 42) + unused);
}

static void *run_b(void *unused)
{
	pthread_setname_np(pthread_self(), "busy-b");
	return (void *)((serve_b() == 42) + unused);
}

static void *run_c(void *unused)
{
	pthread_setname_np(pthread_self(), "busy-c");
	return (void *)((serve_a() == 42) + unused);
}

int main(void)
{
	pthread_t a, b, c;
	int has_c = 0;
	char byte;

	pthread_create(&a, NULL, run_a, NULL);
	pthread_create(&b, NULL, run_b, NULL);
	printf("ready\n");
	fflush(stdout);
	while (read(0, &byte, 1) > 0) {
		if (has_c)
			continue;
		has_c = pthread_create(&c, NULL, run_c, NULL) == 0;
		printf("more\n");
		fflush(stdout);
	}
	is_over = 1;
	if (has_c)
		pthread_join(c, NULL);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	return 0;
}
