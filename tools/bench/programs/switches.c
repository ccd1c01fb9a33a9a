/* SPDX-License-Identifier: Apache-2.0 */
/*
 * switches SECONDS TURNS   On each CPU that it may use two threads that answer each other through pipes, with so many
 *                          turns of a loop before each. Says on how many CPUs; then, a line for each 20 ms that a pair
 *                          has had its CPU, nanoseconds: of CPU time for a switch and what is between it and the next,
 *                          and from before a thread writes until the other one has read, of which it is the lower
 *                          quartile. What else runs takes nothing of the first but for the caches, and of the second
 *                          hardly that: no interrupt and no loop is in it.
 */
/*
 * switches SECONDS RATE [TURNS]   On each CPU that it may use two threads that answer each other through pipes, with as
 *                                 much work between as makes about RATE context switches a second in all, or TURNS of
 *                                 a loop. Says how many switches there were a second of the time that it had the CPUs,
 *                                 and the turns; then, a line for each 20 ms that a pair has had its CPU, nanoseconds a
 *                                 switch: what else runs takes nothing of that, but for the caches.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MOST_CPUS    256
#define MOST_WINDOWS 4096
#define MOST_TRIPS   16384 /* of a window that are timed */
#define WINDOW_S     0.02

struct pair {
	int there[2];
	int back[2];
	int cpu;
	clockid_t clocks[2]; /* of its threads */
	double written;      /* when one of them was about to */
	float handing_ns[MOST_TRIPS];
	unsigned long windows;
	double ns[MOST_WINDOWS];
	double least_ns[MOST_WINDOWS];
};

static struct pair pairs[MOST_CPUS];
static unsigned long work;
static double end;

static double now(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec + time.tv_nsec * 1e-9;
}

static void spin(unsigned long turns)
{
	for (volatile unsigned long i = 0; i < turns; i++)
		;
}

static void stay_on(int cpu)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
}

static double pair_seconds(const struct pair *pair)
{
	return now(pair->clocks[0]) + now(pair->clocks[1]);
}

static int compare(const void *one, const void *other)
{
	float first = *(const float *)one, second = *(const float *)other;

	return (first > second) - (first < second);
}

static void end_window(struct pair *pair, double passed, unsigned long trips)
{
	unsigned long timed = trips < MOST_TRIPS ? trips : MOST_TRIPS;

	qsort(pair->handing_ns, timed, sizeof(float), compare);
	pair->least_ns[pair->windows] = pair->handing_ns[timed / 4];
	pair->ns[pair->windows++] = passed / trips / 2 * 1e9;
}

static void *answer(void *argument)
{
	struct pair *pair = argument;
	char byte;

	stay_on(pair->cpu);
	while (read(pair->there[0], &byte, 1) == 1) {
		spin(work);
		pair->written = now(CLOCK_MONOTONIC);
		if (write(pair->back[1], &byte, 1) != 1)
			break;
	}
	close(pair->back[1]);
	return NULL;
}

static void *ask(void *argument)
{
	struct pair *pair = argument;
	unsigned long trips = 0;
	char byte = 0;

	stay_on(pair->cpu);
	double begin = pair_seconds(pair);

	while (now(CLOCK_MONOTONIC) < end) {
		spin(work);
		if (write(pair->there[1], &byte, 1) != 1 || read(pair->back[0], &byte, 1) != 1)
			break;
		if (trips < MOST_TRIPS)
			pair->handing_ns[trips] = (now(CLOCK_MONOTONIC) - pair->written) * 1e9;
		if (++trips % 64 || pair->windows == MOST_WINDOWS)
			continue;
		double passed = pair_seconds(pair) - begin;

		if (passed < WINDOW_S)
			continue;
		end_window(pair, passed, trips);
		trips = 0;
		begin = pair_seconds(pair);
	}
	close(pair->there[1]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2 * MOST_CPUS];
	cpu_set_t cpus;
	int count = 0;

	if (argc < 3)
		return 2;
	work = strtoul(argv[2], NULL, 10);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (int cpu = 0; cpu < CPU_SETSIZE && count < MOST_CPUS; cpu++)
		if (CPU_ISSET(cpu, &cpus))
			pairs[count++].cpu = cpu;
	end = now(CLOCK_MONOTONIC) + atof(argv[1]);
	for (int i = 0; i < count; i++) {
		if (pipe(pairs[i].there) || pipe(pairs[i].back))
			return 1;
		pthread_create(&threads[2 * i], NULL, answer, &pairs[i]);
		pthread_getcpuclockid(threads[2 * i], &pairs[i].clocks[0]);
		pairs[i].clocks[1] = CLOCK_THREAD_CPUTIME_ID;
		pthread_create(&threads[2 * i + 1], NULL, ask, &pairs[i]);
	}
	for (int i = 0; i < 2 * count; i++)
		pthread_join(threads[i], NULL);
	printf("%d\n", count);
	for (int i = 0; i < count; i++)
		for (unsigned long window = 0; window < pairs[i].windows; window++)
			printf("%.1f %.1f\n", pairs[i].ns[window], pairs[i].least_ns[window]);
	return 0;
}
