/* SPDX-License-Identifier: Apache-2.0 */
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
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#define MOST_CPUS    256
#define MOST_WINDOWS 4096
#define WINDOW_S     0.02

struct pair {
	int there[2];
	int back[2];
	int cpu;
	clockid_t clocks[2]; /* of its threads */
	unsigned long windows;
	double ns[MOST_WINDOWS];
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

static double cpu_seconds(const struct rusage *usage)
{
	return usage->ru_utime.tv_sec + usage->ru_stime.tv_sec +
	       (usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) * 1e-6;
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

static void *answer(void *argument)
{
	struct pair *pair = argument;
	char byte;

	stay_on(pair->cpu);
	while (read(pair->there[0], &byte, 1) == 1) {
		spin(work);
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
		if (++trips % 64 || pair->windows == MOST_WINDOWS)
			continue;
		double passed = pair_seconds(pair) - begin;

		if (passed < WINDOW_S)
			continue;
		pair->ns[pair->windows++] = passed / trips / 2 * 1e9;
		trips = 0;
		begin = pair_seconds(pair);
	}
	close(pair->there[1]);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t threads[2 * MOST_CPUS];
	struct rusage before, usage;
	cpu_set_t cpus;
	int count = 0;

	if (argc < 3)
		return 2;
	double seconds = atof(argv[1]), rate = atof(argv[2]);

	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (int cpu = 0; cpu < CPU_SETSIZE && count < MOST_CPUS; cpu++)
		if (CPU_ISSET(cpu, &cpus))
			pairs[count++].cpu = cpu;
	if (argc > 3) {
		work = strtoul(argv[3], NULL, 10);
	} else if (rate > 0) {
		/* A switch with its pipe takes about 2 microseconds; a turn what is measured here. */
		double begin = now(CLOCK_THREAD_CPUTIME_ID);

		spin(1000000);
		work = (count / rate - 2e-6) / ((now(CLOCK_THREAD_CPUTIME_ID) - begin) / 1e6);
		if (count / rate < 2e-6)
			work = 0;
	}
	end = now(CLOCK_MONOTONIC) + seconds;
	getrusage(RUSAGE_SELF, &before);
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
	getrusage(RUSAGE_SELF, &usage);
	double passed = (cpu_seconds(&usage) - cpu_seconds(&before)) / count;

	printf("%.1f %lu\n", (usage.ru_nvcsw + usage.ru_nivcsw) / passed, work);
	for (int i = 0; i < count; i++)
		for (unsigned long window = 0; window < pairs[i].windows; window++)
			printf("%.1f\n", pairs[i].ns[window]);
	return 0;
}
