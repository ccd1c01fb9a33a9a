/* SPDX-License-Identifier: Apache-2.0 */
/* remap SECONDS FILE: maps itself and another program over each other, hundreds of times a second. */
#include "work.h"

#include <fcntl.h>
#include <sys/mman.h>

#define LENGTH 4096

int main(int count, char **arguments)
{
	if (count < 3)
		return 1;
	int files[2] = { open(arguments[0], O_RDONLY), open(arguments[2], O_RDONLY) };
	void *place = mmap(NULL, LENGTH, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	double end = cpu_seconds(CLOCK_MONOTONIC) + atof(arguments[1]);
	for (int turn = 0; cpu_seconds(CLOCK_MONOTONIC) < end; turn++) {
		mmap(place, LENGTH, PROT_READ | PROT_EXEC, MAP_PRIVATE | MAP_FIXED, files[turn % 2], 0);
		nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
	}
	return 0;
}
