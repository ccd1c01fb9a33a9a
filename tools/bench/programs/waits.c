/* SPDX-License-Identifier: Apache-2.0 */
/*
 * waits PROGRAM SECONDS   One of ten programs whose threads wait in known ways; each thread has the name of its
 * function. mutex, sleep, fsync, pipe, epoll, pool, runnable, condvar, short, disk
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#define THREAD(name) static __attribute__((noinline)) void *name(void *argument)
#define BLOCK        4096
#define LEAVE                                                                                                          \
	__asm__ volatile("" ::"r"(argument) : "memory");                                                               \
	return NULL
#define MOST 4

static double end;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int there[2], back[2], file, queued, turn;

static int is_over(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec * 1e-9 >= end;
}

static void nap_us(long us)
{
	struct timespec time = { .tv_nsec = us * 1000 };

	nanosleep(&time, NULL);
}

static void spin(int turns)
{
	for (volatile int i = 0; i < turns; i++)
		;
}

/* Each holds what the others wait for, one three times as long. */
static void hold(long us)
{
	while (!is_over()) {
		pthread_mutex_lock(&lock);
		nap_us(us);
		pthread_mutex_unlock(&lock);
		nap_us(100);
	}
}

THREAD(holds_long)
{
	hold(3000);
	LEAVE;
}

THREAD(holds_short)
{
	hold(1000);
	LEAVE;
}

static void sleep_by(long us)
{
	while (!is_over())
		nap_us(us);
}

THREAD(naps_30ms)
{
	sleep_by(30000);
	LEAVE;
}

THREAD(naps_10ms)
{
	sleep_by(10000);
	LEAVE;
}

THREAD(naps_100ms)
{
	sleep_by(100000);
	LEAVE;
}

THREAD(naps_50us)
{
	sleep_by(50);
	LEAVE;
}

THREAD(syncs)
{
	char block[BLOCK] = "";

	while (!is_over())
		if (pwrite(file, block, BLOCK, 0) != BLOCK || fsync(file))
			break;
	LEAVE;
}

THREAD(reads)
{
	static char blocks[16 * BLOCK] __attribute__((aligned(BLOCK)));

	for (unsigned n = 0; !is_over(); n = n * 1103515245 + 12345)
		if (pread(file, blocks, sizeof(blocks), (off_t)(n >> 8) % 256 * (off_t)sizeof(blocks)) <= 0)
			break;
	LEAVE;
}

THREAD(produces)
{
	char byte = 0;

	while (!is_over()) {
		nap_us(500);
		if (write(there[1], &byte, 1) != 1)
			break;
	}
	close(there[1]);
	LEAVE;
}

THREAD(passes_on)
{
	char byte;

	while (read(there[0], &byte, 1) == 1) {
		spin(20000);
		if (write(back[1], &byte, 1) != 1)
			break;
	}
	close(back[1]);
	LEAVE;
}

THREAD(consumes)
{
	char byte;

	while (read(back[0], &byte, 1) == 1)
		spin(10000);
	LEAVE;
}

THREAD(serves)
{
	struct epoll_event event = { .events = EPOLLIN };
	int set = epoll_create1(0);
	uint64_t count;

	epoll_ctl(set, EPOLL_CTL_ADD, there[0], &event);
	while (!is_over())
		if (epoll_wait(set, &event, 1, 50) == 1 && read(there[0], &count, sizeof(count)) > 0) {
			spin(50000);
			if (write(back[0], &count, sizeof(count)) < 0)
				break;
		}
	LEAVE;
}

THREAD(asks)
{
	uint64_t one = 1;

	while (!is_over()) {
		if (write(there[0], &one, sizeof(one)) < 0)
			break;
		nap_us(300);
		while (read(back[0], &one, sizeof(one)) < 0 && !is_over())
			nap_us(200);
	}
	LEAVE;
}

THREAD(works)
{
	pthread_mutex_lock(&lock);
	while (!is_over()) {
		struct timespec until;

		clock_gettime(CLOCK_REALTIME, &until);
		until.tv_sec += 1;
		if (!queued)
			pthread_cond_timedwait(&changed, &lock, &until);
		if (queued) {
			queued--;
			pthread_mutex_unlock(&lock);
			spin(200000);
			pthread_mutex_lock(&lock);
		}
	}
	pthread_mutex_unlock(&lock);
	LEAVE;
}

THREAD(feeds)
{
	while (!is_over()) {
		nap_us(5000);
		pthread_mutex_lock(&lock);
		queued++;
		pthread_cond_signal(&changed);
		pthread_mutex_unlock(&lock);
	}
	pthread_cond_broadcast(&changed);
	LEAVE;
}

THREAD(spins)
{
	while (!is_over())
		spin(100000);
	LEAVE;
}

static void take_turns(int mine, long us)
{
	pthread_mutex_lock(&lock);
	while (!is_over()) {
		while (turn != mine && !is_over())
			pthread_cond_wait(&changed, &lock);
		nap_us(us);
		turn = !mine;
		pthread_cond_broadcast(&changed);
	}
	pthread_cond_broadcast(&changed);
	pthread_mutex_unlock(&lock);
}

THREAD(takes_2ms)
{
	take_turns(0, 2000);
	LEAVE;
}

THREAD(takes_500us)
{
	take_turns(1, 500);
	LEAVE;
}

static const struct program {
	const char *name;
	struct {
		const char *name;
		void *(*run)(void *);
		int times;
	} threads[MOST];
} programs[] = {
#define RUNS(function, times) { #function, function, times }
	{ "mutex", { RUNS(holds_long, 1), RUNS(holds_short, 1) } },
	{ "sleep", { RUNS(naps_30ms, 1), RUNS(naps_10ms, 1) } },
	{ "fsync", { RUNS(syncs, 1), RUNS(naps_10ms, 1) } },
	{ "pipe", { RUNS(produces, 1), RUNS(passes_on, 1), RUNS(consumes, 1) } },
	{ "epoll", { RUNS(serves, 1), RUNS(asks, 1) } },
	{ "pool", { RUNS(works, 4), RUNS(feeds, 1) } },
	{ "runnable", { RUNS(spins, 4) } },
	{ "condvar", { RUNS(takes_2ms, 1), RUNS(takes_500us, 1) } },
	{ "short", { RUNS(naps_50us, 1), RUNS(naps_100ms, 1) } },
	{ "disk", { RUNS(reads, 2) } },
};

static void prepare(const char *name)
{
	static char block[16 * BLOCK] __attribute__((aligned(BLOCK)));
	int is_disk = !strcmp(name, "disk");

	if (!strcmp(name, "epoll")) {
		there[0] = eventfd(0, EFD_NONBLOCK);
		back[0] = eventfd(0, EFD_NONBLOCK);
	} else if (pipe(there) || pipe(back)) {
		exit(1);
	}
	if (!is_disk && strcmp(name, "fsync"))
		return;
	file = open("waits.data", O_RDWR | O_CREAT, 0600);
	for (int i = 0; is_disk && i < 256; i++)
		if (write(file, block, sizeof(block)) < 0)
			exit(1);
	if (is_disk) {
		fsync(file);
		close(file);
		file = open("waits.data", O_RDONLY | O_DIRECT);
	}
}

int main(int argc, char **argv)
{
	pthread_t threads[2 * MOST];
	struct timespec time;
	int count = 0;

	if (argc != 3)
		return 2;
	prepare(argv[1]);
	clock_gettime(CLOCK_MONOTONIC, &time);
	end = time.tv_sec + time.tv_nsec * 1e-9 + atof(argv[2]);
	for (unsigned i = 0; i < sizeof(programs) / sizeof(*programs); i++) {
		if (strcmp(programs[i].name, argv[1]))
			continue;
		for (int thread = 0; thread < MOST; thread++)
			for (int times = programs[i].threads[thread].times; times; times--) {
				pthread_create(&threads[count], NULL, programs[i].threads[thread].run, NULL);
				pthread_setname_np(threads[count++], programs[i].threads[thread].name);
			}
	}
	while (count)
		pthread_join(threads[--count], NULL);
	return 0;
}
