/* SPDX-License-Identifier: Apache-2.0 */
/* Starts processes, one after the other, that fill a gigabyte in all and end: the kernel takes their memory apart. */
#include "work.h"

#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PROCESSES = 8, BYTES = 128 << 20 };

int main(void)
{
	for (int i = 0; i < PROCESSES; i++) {
		if (fork() == 0) {
			volatile char *filled = malloc(BYTES);

			for (size_t at = 0; filled && at < BYTES; at += 4096)
				filled[at] = 1;
			_exit(0);
		}
		wait(0);
	}
	return 0;
}
