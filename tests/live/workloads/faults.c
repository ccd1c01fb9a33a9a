/* SPDX-License-Identifier: Apache-2.0 */
/* faults COUNT PATHS: for each line of standard input touches an unmapped page COUNT times, from PATHS different call
 * stacks (a power of two), and prints "done". */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static char *page;

static void fault(unsigned long path, unsigned long rest);

/* Two functions that do the same: the bits of `path` choose between them, one call each. */
__attribute__((noinline, noclone)) static void left(unsigned long path, unsigned long rest)
{
	fault(path >> 1, rest >> 1);
	__asm__ volatile("");
}

__attribute__((noinline, noclone)) static void right(unsigned long path, unsigned long rest)
{
	fault(path >> 1, rest >> 1);
	__asm__ volatile("" ::"r"(path));
}

__attribute__((noinline, noclone)) static void fault(unsigned long path, unsigned long rest)
{
	if (rest > 1) {
		if (path & 1)
			left(path, rest);
		else
			right(path, rest);
		__asm__ volatile("");
		return;
	}
	*(volatile char *)page = 1;
	madvise(page, 4096, MADV_DONTNEED);
}

int main(int argc, char **argv)
{
	unsigned long count = argc > 1 ? strtoul(argv[1], NULL, 0) : 1000;
	unsigned long paths = argc > 2 ? strtoul(argv[2], NULL, 0) : 1;
	char byte;

	page = mmap(NULL, (size_t)sysconf(_SC_PAGESIZE), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	while (read(0, &byte, 1) > 0) {
		if (byte != '\n')
			continue;
		for (unsigned long i = 0; i < count; i++)
			fault(i % paths, paths);
		printf("done\n");
		fflush(stdout);
	}
	return 0;
}
