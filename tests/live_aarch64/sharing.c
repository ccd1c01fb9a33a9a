// SPDX-License-Identifier: Apache-2.0
/*
 * Two processes, and three pages: a file's that each maps at an address of its own, one of which both have a copy at
 * the same address since the fork, and one that both have had since then and nobody stores to any more. Each process
 * prints its number and the physical addresses of the three.
 *
 *   sharing TURNS
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define PARENTS ((char *)0x10000000)
#define CHILDS  ((char *)0x20000000)
#define COPIED  ((char *)0x30000000)
#define READ    ((char *)0x40000000)

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void map(char *at, int flags, int file)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);

	if (mmap(at, page, PROT_READ | PROT_WRITE, MAP_FIXED_NOREPLACE | flags, file, 0) != at)
		die("mmap");
}

/* What the kernel says (Documentation/admin-guide/mm/pagemap.rst): bits 54:0 of an entry are the frame's number. */
static unsigned long long physical(const char *at)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	int pagemap = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry;

	if (pread(pagemap, &entry, sizeof(entry), (off_t)((uintptr_t)at / page * sizeof(entry))) != sizeof(entry))
		die("/proc/self/pagemap");
	close(pagemap);
	return (entry & ((1ull << 55) - 1)) * page;
}

__attribute__((noinline)) void parent_works(long turns)
{
	for (; turns; turns--)
		__asm__ volatile("str x9, [%0, #64]\n\tstr x9, [%1, #64]\n\tldr x10, [%2, #64]"
		                 :
		                 : "r"(PARENTS), "r"(COPIED), "r"(READ)
		                 : "x10", "memory");
}

__attribute__((noinline)) void child_works(long turns)
{
	for (; turns; turns--)
		__asm__ volatile("ldr x10, [%0, #72]\n\tstr x9, [%1, #72]\n\tldr x10, [%2, #72]"
		                 :
		                 : "r"(CHILDS), "r"(COPIED), "r"(READ)
		                 : "x10", "memory");
}

int main(int count, char **arguments)
{
	long turns = count > 1 ? atol(arguments[1]) : 1;
	int file = memfd_create("shared", 0);
	pid_t child;

	if (file < 0 || ftruncate(file, sysconf(_SC_PAGESIZE)))
		die("memfd_create");
	map(COPIED, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	map(READ, MAP_PRIVATE | MAP_ANONYMOUS, -1);
	READ[0] = 1;
	COPIED[0] = 1;
	child = fork();
	if (child < 0)
		die("fork");
	map(child ? PARENTS : CHILDS, MAP_SHARED, file);
	(child ? parent_works : child_works)(turns);
	printf("%d %llx %llx %llx\n", getpid(), physical(child ? PARENTS : CHILDS), physical(COPIED), physical(READ));
	fflush(stdout);
	return child && (wait(NULL) < 0) ? 2 : 0;
}
