/* SPDX-License-Identifier: Apache-2.0 */
/* family SECONDS: threads named worker-1 to worker-3 spend 1, 2 and 3 units of CPU time in in_thread(), then two
 * children 1 and 2 units in in_child(). Prints the process ids of the children. */
#include "work.h"

#include <pthread.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static double unit;

static KEEP uint64_t in_thread(double seconds)
{
	uint64_t sum = 0;

	while (cpu_seconds(CLOCK_THREAD_CPUTIME_ID) < seconds)
		sum += SPIN(100000);
	return sum;
}

static KEEP uint64_t in_child(double seconds)
{
	uint64_t sum = 0;

	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < seconds)
		sum += SPIN(100000);
	return sum;
}

static void *run_thread(void *argument)
{
	long number = (long)argument;
	char name[16];

	snprintf(name, sizeof(name), "worker-%ld", number);
	pthread_setname_np(pthread_self(), name);
	return (void *)(long)(in_thread(unit * (double)number) == 42);
}

int main(int argc, char **argv)
{
	pthread_t threads[3];

	unit = argc > 1 ? atof(argv[1]) : 0.2;
	for (long i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, run_thread, (void *)(i + 1));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	for (int i = 1; i <= 2; i++) {
		pid_t pid = fork();

		if (pid == 0)
			_exit(in_child(unit * i) == 42);
		printf("%d\n", pid);
	}
	fflush(stdout);
	while (wait(NULL) > 0)
		;
	return 0;
}
