/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Starts copies of a program that works for 12, 6 and 3 ms of processor time, one after the other: ROUNDS times the
 * three, each under a name of its own. Given a number of milliseconds it is that program.
 */
#include "work.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

KEEP uint64_t work(double seconds)
{
	uint64_t sum = 0;

	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < seconds)
		sum += SPIN(5000);
	return sum;
}

int main(int count, char **arguments)
{
	static const char *const lengths[] = { "12", "6", "3" };

	if (count == 3 && strcmp(arguments[1], "work") == 0) {
		char name[16];

		snprintf(name, sizeof(name), "works-%s-ms", arguments[2]);
		prctl(PR_SET_NAME, name);
		return work(atof(arguments[2]) / 1e3) == 42;
	}
	for (int i = 0; i < atoi(arguments[1]) * 3; i++) {
		pid_t child = fork();

		if (child == 0) {
			execl(arguments[0], arguments[0], "work", lengths[i % 3], (char *)0);
			_exit(127);
		}
		waitpid(child, 0, 0);
	}
	return 0;
}
