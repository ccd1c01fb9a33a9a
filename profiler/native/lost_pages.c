/* SPDX-License-Identifier: Apache-2.0 */
/* Mapped files whose pages can go away: their owner truncates them, or a disk fails, and to read on raises SIGBUS.
 *
 * Within the ranges that are watched zeros take the place of what is gone, and it is noted. A range is left to whoever
 * handled the signal before in all other cases, which by default ends the process. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#define EXPORT      __attribute__((visibility("default")))
#define MOST_RANGES 1024

/* A signal handler can be told of nothing but by globals. start 0: free. */
static struct {
	_Atomic uintptr_t start, end;
	atomic_int is_lost;
} ranges[MOST_RANGES];
static struct sigaction before;
static uintptr_t page_bytes;

static void put_zeros(int number, siginfo_t *info, void *context)
{
	uintptr_t address = (uintptr_t)info->si_addr;
	int kept_errno = errno;

	(void)number;
	(void)context;
	for (int i = 0; i < MOST_RANGES; i++) {
		uintptr_t start = atomic_load(&ranges[i].start), end = atomic_load(&ranges[i].end);

		if (!start || address < start || address >= end)
			continue;
		/* Up to the end at once: behind the end of a file that was cut there is nothing. */
		address &= -page_bytes;
		if (mmap((void *)address, end - address, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) ==
		    MAP_FAILED)
			break;
		atomic_store(&ranges[i].is_lost, 1);
		errno = kept_errno;
		return;
	}
	/* The access is made again, and now somebody else's. */
	sigaction(SIGBUS, &before, NULL);
	errno = kept_errno;
}

/* Watch a mapping of `bytes` at `start`; its number, or -1 if no more can be watched. Not for two threads at once. */
EXPORT int tdprof_watch_pages(const void *start, uint64_t bytes)
{
	if (!page_bytes) {
		struct sigaction action = { .sa_sigaction = put_zeros, .sa_flags = SA_SIGINFO | SA_RESTART };

		sigemptyset(&action.sa_mask);
		if (sigaction(SIGBUS, &action, &before))
			return -1;
		page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	}
	for (int i = 0; i < MOST_RANGES; i++) {
		if (atomic_load(&ranges[i].start))
			continue;
		atomic_store(&ranges[i].is_lost, 0);
		atomic_store(&ranges[i].end, ((uintptr_t)start + bytes + page_bytes - 1) & -page_bytes);
		atomic_store(&ranges[i].start, (uintptr_t)start);
		return i;
	}
	return -1;
}

/* Whether zeros stand for any of its pages. */
EXPORT int tdprof_pages_lost(int range)
{
	return atomic_load(&ranges[range].is_lost);
}

/* To be called before it is unmapped. */
EXPORT void tdprof_unwatch_pages(int range)
{
	atomic_store(&ranges[range].start, 0);
}
