/* SPDX-License-Identifier: Apache-2.0 */
/*
 * successor           its second thread waits for a line of standard input, works for 50 ms in before(), and executes
 *                     this program again, which works for 300 ms in after() and has a thread that does in beside()
 */
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

static double thread_end(double seconds)
{
	return cpu_seconds(CLOCK_THREAD_CPUTIME_ID) + seconds;
}

#define WORK(name, seconds)                                                                                            \
	KEEP void name(void)                                                                                           \
	{                                                                                                              \
		double end = thread_end(seconds);                                                                      \
                                                                                                                       \
		while (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) < end)                                                     \
			SPIN(10000);                                                                                   \
		__asm__ volatile("");                                                                                  \
	}

WORK(before, 0.05)
WORK(after, 0.3)
WORK(beside, 0.3)

static void *become(void *name)
{
	prctl(PR_SET_NAME, "becomes");
	if (getchar() != EOF) {
		before();
		execl("/proc/self/exe", name, "after", NULL);
	}
	_exit(1);
}

static void *work_beside(void *unused)
{
	(void)unused;
	prctl(PR_SET_NAME, "beside");
	beside();
	return NULL;
}

int main(int count, char **arguments)
{
	pthread_t thread;

	(void)arguments;
	if (count > 1) {
		prctl(PR_SET_NAME, "after");
		pthread_create(&thread, NULL, work_beside, NULL);
		after();
		return pthread_join(thread, NULL);
	}
	pthread_create(&thread, NULL, become, "successor");
	printf("ready\n");
	fflush(stdout);
	for (;;)
		pause();
}
