// SPDX-License-Identifier: Apache-2.0
/* What one input may cost (docs/security.md): 2 s and 10 s for each MB of processor time, 300 MB and 50 times its size
 * of memory. Linked to a fuzz target that is compiled under another name, and with its allocator wrapped. */
#include <malloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#undef LLVMFuzzerTestOneInput
#ifndef READS
#define READS 1 /* how often the target reads its input */
#endif

int fuzz_one(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void *__real_malloc(size_t bytes);
void *__real_calloc(size_t count, size_t bytes);
void *__real_realloc(void *old, size_t bytes);
void __real_free(void *old);
void *__wrap_malloc(size_t bytes);
void *__wrap_calloc(size_t count, size_t bytes);
void *__wrap_realloc(void *old, size_t bytes);
void __wrap_free(void *old);

static int64_t live, peak; /* bytes; by several threads at once */

static void count(int64_t bytes)
{
	int64_t now = __atomic_add_fetch(&live, bytes, __ATOMIC_RELAXED),
		most = __atomic_load_n(&peak, __ATOMIC_RELAXED);

	while (now > most && !__atomic_compare_exchange_n(&peak, &most, now, 1, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
}

static int64_t size_of(void *memory)
{
	return (int64_t)malloc_usable_size(memory);
}

void *__wrap_malloc(size_t bytes)
{
	void *memory = __real_malloc(bytes);

	count(size_of(memory));
	return memory;
}

void *__wrap_calloc(size_t number, size_t bytes)
{
	void *memory = __real_calloc(number, bytes);

	count(size_of(memory));
	return memory;
}

void *__wrap_realloc(void *old, size_t bytes)
{
	int64_t before = size_of(old);
	void *memory = __real_realloc(old, bytes);

	/* Both are there while the one is copied to the other. */
	if (memory) {
		count(size_of(memory));
		count(-before);
	}
	return memory;
}

void __wrap_free(void *old)
{
	count(-size_of(old));
	__real_free(old);
}

static double cpu_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	double began = cpu_seconds(), took;
	int result;

	live = peak = 0;
	result = fuzz_one(data, size);
	took = cpu_seconds() - began;
	if (took > READS * (2 + 10 * (double)size / 1e6) || peak > 300000000 + 50 * (int64_t)size) {
		fprintf(stderr, "cost: %zu bytes took %.2f s and %lld bytes\n", size, took, (long long)peak);
		abort();
	}
	return result;
}
