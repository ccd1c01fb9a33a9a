/* SPDX-License-Identifier: Apache-2.0 */
/* forks: for each byte of standard input a child that works in serve() until its parent is gone, and then "forked". */
#include "work.h"

#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

KEEP uint64_t serve(void)
{
	uint64_t sum = 0;

	for (;;)
		sum += SPIN(100000);
	return sum;
}

int main(void)
{
	char byte;

	printf("ready\n");
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) == 1) {
		if (fork() == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			return serve() == 42;
		}
		printf("forked\n");
		fflush(stdout);
	}
	return 0;
}
