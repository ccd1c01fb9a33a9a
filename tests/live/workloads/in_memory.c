// SPDX-License-Identifier: Apache-2.0
// Executes a copy of a program that has no path: in_memory PROGRAM [ARGUMENT…]
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <unistd.h>

extern char **environ;

int main(int count, char **words)
{
	if (count < 2)
		return 2;
	int memory = memfd_create("program", MFD_CLOEXEC), file = open(words[1], O_RDONLY | O_CLOEXEC);
	while (sendfile(memory, file, NULL, 1 << 20) > 0)
		continue;
	fexecve(memory, words + 1, environ);
	perror("in_memory");
	return 1;
}
