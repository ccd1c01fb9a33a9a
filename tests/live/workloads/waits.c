/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits sleep TIMES   sleeps so often, three times as long in long_wait() as in short_wait()
 * waits queue MS      four threads on one CPU, each until it has had that much of it; says of each: its id, and what
 *                     the kernel added up of it on the CPU and waiting for it, in nanoseconds
 * waits pool THREADS  so many wait in wait_for_end(), which it says, until SIGUSR1 has the first end the process
 * waits wakers TIMES  a thread waits in wait_for_signal() so often, each time as long; of four times signal_often() of
 *                     the first thread ends three, signal_rarely() one. Says how long it had waited when each did, in
 *                     nanoseconds
 */
#include "work.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static void nap(long ns)
{
	struct timespec time = { .tv_nsec = ns };

	nanosleep(&time, NULL);
}

KEEP void long_wait(void)
{
	nap(30000000);
	__asm__ volatile("");
}

KEEP void short_wait(void)
{
	nap(10000000);
	__asm__ volatile("");
}

static double seconds;

static void *work(void *unused)
{
	char text[128] = "";

	(void)unused;
	while (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) < seconds)
		SPIN(1000);
	FILE *file = fopen("/proc/thread-self/schedstat", "r");

	if (file && fgets(text, sizeof(text), file))
		printf("%ld %s", syscall(SYS_gettid), text);
	if (file)
		fclose(file);
	return NULL;
}

static void queue(void)
{
	pthread_t threads[4];
	cpu_set_t cpus, one;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	CPU_ZERO(&one);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus) && !CPU_COUNT(&one))
			CPU_SET(cpu, &one);
	sched_setaffinity(0, sizeof(one), &one);
	for (int i = 0; i < 4; i++)
		pthread_create(&threads[i], NULL, work, NULL);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, never = PTHREAD_COND_INITIALIZER;
static int signals, times;
static double waits_since, often_waited, rarely_waited;

KEEP void wait_for_signal(void)
{
	pthread_mutex_lock(&lock);
	waits_since = cpu_seconds(CLOCK_MONOTONIC);
	while (!signals)
		pthread_cond_wait(&changed, &lock);
	signals--;
	pthread_mutex_unlock(&lock);
	__asm__ volatile("");
}

KEEP void signal_often(void)
{
	pthread_mutex_lock(&lock);
	signals++;
	pthread_cond_signal(&changed);
	if (waits_since)
		often_waited += cpu_seconds(CLOCK_MONOTONIC) - waits_since;
	waits_since = 0;
	pthread_mutex_unlock(&lock);
	__asm__ volatile("");
}

KEEP void signal_rarely(void)
{
	pthread_mutex_lock(&lock);
	signals++;
	pthread_cond_signal(&changed);
	if (waits_since)
		rarely_waited += cpu_seconds(CLOCK_MONOTONIC) - waits_since;
	waits_since = 0;
	pthread_mutex_unlock(&lock);
	__asm__ volatile("");
}

static void *wait_often(void *unused)
{
	(void)unused;
	for (int i = 0; i < times; i++)
		wait_for_signal();
	return NULL;
}

static void wake_often(void)
{
	pthread_t waiter;

	pthread_create(&waiter, NULL, wait_often, NULL);
	for (int i = 0; i < times; i++) {
		nap(8000000);
		if (i % 4)
			signal_often();
		else
			signal_rarely();
	}
	pthread_join(waiter, NULL);
	printf("%.0f %.0f\n", often_waited * 1e9, rarely_waited * 1e9);
}

KEEP void wait_for_end(void)
{
	pthread_mutex_lock(&lock);
	signals++;
	pthread_cond_signal(&changed);
	for (;;)
		pthread_cond_wait(&never, &lock);
}

static void *outlive(void *unused)
{
	(void)unused;
	wait_for_end();
	return NULL;
}

static void end_all(int threads)
{
	pthread_t thread;
	sigset_t chosen;
	int number;

	sigemptyset(&chosen);
	sigaddset(&chosen, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &chosen, NULL);
	for (int i = 0; i < threads; i++)
		if (pthread_create(&thread, NULL, outlive, NULL))
			exit(1);
	pthread_mutex_lock(&lock);
	while (signals < threads)
		pthread_cond_wait(&changed, &lock);
	pthread_mutex_unlock(&lock);
	puts("ready");
	fflush(stdout);
	sigwait(&chosen, &number);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 2;
	if (!strcmp(argv[1], "pool")) {
		end_all(atoi(argv[2]));
		return 0;
	}
	if (!strcmp(argv[1], "wakers")) {
		times = atoi(argv[2]);
		wake_often();
		return 0;
	}
	if (!strcmp(argv[1], "queue")) {
		seconds = atof(argv[2]) / 1000;
		queue();
		return 0;
	}
	for (int i = atoi(argv[2]); i > 0; i--) {
		long_wait();
		short_wait();
	}
	return 0;
}
