// SPDX-License-Identifier: Apache-2.0
/*
 * Micro-benchmarks whose behaviour on a core is known before it is measured. Each is one function, so that a profile by
 * function has a row for each.
 *
 *   programs [-w NAME,…] [-s MILLISECONDS] [-m MEMORY-MIB] [-l]
 *
 * Each benchmark runs for that long, a turn after the other. Then a line for each says what it executed, counted by its
 * source: name, turns, instructions, loads, branches, of the branches those that nobody can foretell, nanoseconds,
 * bytes that it touches, and the address of its data. -l only names them.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifndef __aarch64__
#error "the benchmarks are for aarch64: CC=aarch64-linux-gnu-gcc"
#endif

#define LINE_BYTES 64
#define MIB        (1ul << 20)

struct chain {
	void **next; /* where the chase goes on */
	size_t bytes;
};
static struct chain in_l1, in_l2, in_llc, in_dram, over_pages;
static size_t memory_mib = 512;

static void die(const char *what)
{
	perror(what);
	exit(2);
}

/* Turns of `body` and two instructions more; one before them. */
#define LOOP(body)                                                                                                     \
	"mov x9, %[count]\n"                                                                                           \
	"1:\n" body "subs x9, x9, #1\n"                                                                                \
	"b.ne 1b\n"

/* Each load's address is what the load before gave. */
#define CHASE_TURNS 1024
#define FOUR_LOADS  "ldr %[next], [%[next]]\nldr %[next], [%[next]]\nldr %[next], [%[next]]\nldr %[next], [%[next]]\n"
#define CHASE(name, chain)                                                                                             \
	__attribute__((noinline)) static void name(void)                                                               \
	{                                                                                                              \
		void **next = (chain).next;                                                                            \
		__asm__ volatile(LOOP(FOUR_LOADS FOUR_LOADS FOUR_LOADS FOUR_LOADS)                                     \
		                 : [next] "+r"(next)                                                                   \
		                 : [count] "r"((uint64_t)CHASE_TURNS)                                                  \
		                 : "x9", "cc", "memory");                                                              \
		(chain).next = next;                                                                                   \
	}
CHASE(loads_of_l1, in_l1)
CHASE(loads_of_l2, in_l2)
CHASE(loads_of_llc, in_llc)
CHASE(loads_of_dram, in_dram)
CHASE(walks, over_pages)

/* Many independent, cheap instructions: two additions in eight, for which every core has units enough. */
#define SIMPLE_TURNS   8192
#define FOUR_SIMPLE(a) "add " a ", " a ", #1\nnop\nnop\nnop\n"
__attribute__((noinline)) static void retires(void)
{
	__asm__ volatile(LOOP(FOUR_SIMPLE("x10") FOUR_SIMPLE("x11") FOUR_SIMPLE("x12") FOUR_SIMPLE("x13"))
	                 :
	                 : [count] "r"((uint64_t)SIMPLE_TURNS)
	                 : "x9", "x10", "x11", "x12", "x13", "cc");
}

/* Divisions that need each other's unit and no memory. */
#define DIVIDE_TURNS 1024
__attribute__((noinline)) static void divides(void)
{
	__asm__ volatile("fmov d16, #1.5\nfmov d17, #3.0\n" LOOP("fdiv d0, d17, d16\nfdiv d1, d17, d16\n"
	                                                         "fdiv d2, d17, d16\nfdiv d3, d17, d16\n"
	                                                         "fdiv d4, d17, d16\nfdiv d5, d17, d16\n"
	                                                         "fdiv d6, d17, d16\nfdiv d7, d17, d16\n")
	                 :
	                 : [count] "r"((uint64_t)DIVIDE_TURNS)
	                 : "x9", "v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v16", "v17", "cc");
}

/* A branch over one instruction, by a bit of a pseudo-random number (xorshift), or by one that stays. */
#define BRANCH_TURNS 4096
static uint64_t state = 88172645463325252ull;
#define BRANCHES(name, bit)                                                                                            \
	__attribute__((noinline)) static void name(void)                                                               \
	{                                                                                                              \
		uint64_t x = state;                                                                                    \
		__asm__ volatile(LOOP("eor %[x], %[x], %[x], lsl #13\n"                                                \
		                      "eor %[x], %[x], %[x], lsr #7\n"                                                 \
		                      "eor %[x], %[x], %[x], lsl #17\n"                                                \
		                      "tbz " bit ", 2f\n"                                                              \
		                      "nop\n"                                                                          \
		                      "2:\n")                                                                          \
		                 : [x] "+r"(x)                                                                         \
		                 : [count] "r"((uint64_t)BRANCH_TURNS)                                                 \
		                 : "x9", "cc");                                                                        \
		state = x;                                                                                             \
	}
BRANCHES(branches_at_random, "%[x], #20")
BRANCHES(branches_foreseen, "xzr, #20")

/*
 * A walk through a mebibyte of code, a cache line at a time in an order that no prefetcher follows: line i goes to
 * line i * a + c, which visits all of a power of two (a = 1 mod 4, c odd).
 */
#define CODE_LINES 16384
#define STRING(x)  STRING_(x)
#define STRING_(x) #x
__attribute__((noinline)) static void fetches(void)
{
	__asm__ volatile("mov x10, #0\n"
	                 "b 1f\n"
	                 "2: b 3f\n"
	                 ".balign 64\n"
	                 "1:\n"
	                 ".set line, 0\n"
	                 ".rept " STRING(CODE_LINES) "\n"
	                                             ".if line == 0\n"
	                                             "cbnz x10, 2b\n"
	                                             ".else\n"
	                                             "nop\n"
	                                             ".endif\n"
	                                             "nop\n"
	                                             "add x10, x10, #1\n"
	                                             "b 1b + ((line * 1664525 + 1013904223) %% " STRING(
							     CODE_LINES) ") * 64\n"
	                                                                 ".balign 64\n"
	                                                                 ".set line, line + 1\n"
	                                                                 ".endr\n"
	                                                                 "3:\n" ::
	                                                                         : "x10", "cc");
}

/* Two threads: each stores to a word of its own and reads another that nobody writes, in one cache line or in two. */
#define SHARE_TURNS 1024
static struct {
	uint64_t word[64];
} one_line __attribute__((aligned(512))), two_lines __attribute__((aligned(512)));
static __thread int second; /* whether this is the second thread */
#define SHARE(name, data, distance)                                                                                    \
	__attribute__((noinline)) static void name(void)                                                               \
	{                                                                                                              \
		uint64_t *own = &(data).word[second ? (distance) : 0];                                                 \
		__asm__ volatile(LOOP("str x9, [%[own]]\nldr x10, [%[own], #8]\n"                                      \
		                      "str x9, [%[own]]\nldr x10, [%[own], #8]\n")                                     \
		                 :                                                                                     \
		                 : [own] "r"(own), [count] "r"((uint64_t)SHARE_TURNS)                                  \
		                 : "x9", "x10", "cc", "memory");                                                       \
	}
SHARE(shares_a_line, one_line, 2)
SHARE(shares_nothing, two_lines, 32)

/* What a lap executes, as it stands above. */
struct benchmark {
	const char *name;
	void (*lap)(void);
	uint64_t instructions, loads, branches, unforeseen;
	struct chain *chain;
	const void *data;
	int threads;
};
#define LOOP_INSTRUCTIONS(turns, each) ((turns) * ((each) + 2ull) + 1)
#define CHASED(name, chain)                                                                                            \
	{ #name, name, LOOP_INSTRUCTIONS(CHASE_TURNS, 16), CHASE_TURNS * 16, CHASE_TURNS, 0, &(chain), NULL, 1 }
static const struct benchmark benchmarks[] = {
	{ "retires", retires, LOOP_INSTRUCTIONS(SIMPLE_TURNS, 16), 0, SIMPLE_TURNS, 0, NULL, NULL, 1 },
	{ "divides", divides, LOOP_INSTRUCTIONS(DIVIDE_TURNS, 8), 0, DIVIDE_TURNS, 0, NULL, NULL, 1 },
	{ "branches_foreseen", branches_foreseen, LOOP_INSTRUCTIONS(BRANCH_TURNS, 4), 0, BRANCH_TURNS * 2, 0, NULL,
	  NULL, 1 },
	/* The instruction that is branched over is executed half the time. */
	{ "branches_at_random", branches_at_random, LOOP_INSTRUCTIONS(BRANCH_TURNS, 4) + BRANCH_TURNS / 2, 0,
	  BRANCH_TURNS * 2, BRANCH_TURNS, NULL, NULL, 1 },
	{ "fetches", fetches, CODE_LINES * 4, 0, CODE_LINES, 0, NULL, NULL, 1 },
	CHASED(loads_of_l1, in_l1),
	CHASED(loads_of_l2, in_l2),
	CHASED(loads_of_llc, in_llc),
	CHASED(loads_of_dram, in_dram),
	CHASED(walks, over_pages),
	{ "shares_nothing", shares_nothing, LOOP_INSTRUCTIONS(SHARE_TURNS, 4), SHARE_TURNS * 2, SHARE_TURNS, 0, NULL,
	  &two_lines, 2 },
	{ "shares_a_line", shares_a_line, LOOP_INSTRUCTIONS(SHARE_TURNS, 4), SHARE_TURNS * 2, SHARE_TURNS, 0, NULL,
	  &one_line, 2 },
};
#define BENCHMARKS (sizeof(benchmarks) / sizeof(benchmarks[0]))

/* One closed chain through all lines, at `line(i)` bytes each, in random order (Sattolo's algorithm). */
static void make_chain(struct chain *chain, size_t lines, size_t stride, int huge)
{
	/* A line of a page of its own lies at another place in each, else few sets of a cache have them all. */
	size_t wander = stride > LINE_BYTES ? stride / LINE_BYTES : 1, bytes = lines * stride;
	uint32_t *order = malloc(lines * sizeof(*order));
	char *memory = mmap(NULL, bytes + 2 * MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	uint64_t random = 1;

	if (!order || memory == MAP_FAILED)
		die("no memory: -m gives less");
	memory = (char *)(((uintptr_t)memory + 2 * MIB - 1) & ~(2 * MIB - 1));
	madvise(memory, bytes, huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
	for (size_t i = 0; i < lines; i++)
		order[i] = i;
	for (size_t i = lines - 1; i; i--) {
		random = random * 6364136223846793005ull + 1442695040888963407ull;
		size_t other = (random >> 33) % i;
		uint32_t kept = order[i];
		order[i] = order[other];
		order[other] = kept;
	}
#define PLACE(i) ((void **)(memory + order[i] * stride + order[i] % wander * LINE_BYTES))
	for (size_t i = 0; i < lines; i++)
		*PLACE(i) = PLACE(i + 1 == lines ? 0 : i + 1);
	chain->next = PLACE(0);
	free(order);
	chain->bytes = lines * LINE_BYTES;
}

/* A cache's size as the kernel tells it (sysconf knows none on Arm); 0: it does not. */
static size_t cache_bytes(int level)
{
	char path[80], type[16] = "";
	size_t bytes = 0;

	for (int index = 0; index < 8 && !bytes; index++) {
		int found = 0;
		long kib;
		FILE *file;

		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/level", index);
		if (!(file = fopen(path, "r")))
			break;
		if (fscanf(file, "%d", &found) != 1)
			found = 0;
		fclose(file);
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/type", index);
		if (found != level || !(file = fopen(path, "r")))
			continue;
		if (fscanf(file, "%15s", type) != 1)
			type[0] = 0;
		fclose(file);
		snprintf(path, sizeof(path), "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
		if (!strcmp(type, "Instruction") || !(file = fopen(path, "r")))
			continue;
		if (fscanf(file, "%ldK", &kib) == 1)
			bytes = (size_t)kib << 10;
		fclose(file);
	}
	return bytes;
}

static size_t at_most_memory(size_t bytes)
{
	size_t memory = memory_mib * MIB;

	return bytes < memory ? bytes : memory;
}

static void make_chain_of(const struct chain *chain)
{
	/* Neoverses have half a mebibyte to two of L2 for each core, and a system cache that the kernel often does not
	 * see. */
	size_t l2 = cache_bytes(2) ?: MIB / 2, llc = cache_bytes(3) ?: 32 * MIB, page = sysconf(_SC_PAGESIZE);

	if (chain == &in_l1)
		make_chain(&in_l1, 16384 / LINE_BYTES, LINE_BYTES, 0);
	else if (chain == &in_l2)
		make_chain(&in_l2, l2 / 2 / LINE_BYTES, LINE_BYTES, 1);
	else if (chain == &in_llc)
		make_chain(&in_llc, at_most_memory(llc / 4 > 2 * l2 ? llc / 4 : 2 * l2) / LINE_BYTES, LINE_BYTES, 1);
	else if (chain == &in_dram)
		make_chain(&in_dram, at_most_memory(16 * llc) / LINE_BYTES, LINE_BYTES, 1);
	else
		/* More pages than the second-level TLB has entries, of which a line each fits the second-level cache.
		 */
		make_chain(&over_pages, at_most_memory(4096 * page) / page, page, 0);
}

struct run {
	const struct benchmark *benchmark;
	uint64_t until_ns, laps, elapsed_ns;
	int second;
};

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ull + now.tv_nsec;
}

static void *run_laps(void *argument)
{
	struct run *run = argument;
	uint64_t start = now_ns(), now = start;

	second = run->second;
	for (; now < run->until_ns; now = now_ns(), run->laps++)
		run->benchmark->lap();
	run->elapsed_ns = now - start;
	return NULL;
}

static void measure(const struct benchmark *each, uint64_t milliseconds)
{
	struct run run[2] = { { .benchmark = each }, { .benchmark = each, .second = 1 } };
	pthread_t other;
	uint64_t laps;

	if (each->chain)
		make_chain_of(each->chain);
	run[0].until_ns = run[1].until_ns = now_ns() + milliseconds * 1000000;
	if (each->threads > 1 && pthread_create(&other, NULL, run_laps, &run[1]))
		die("no second thread");
	run_laps(&run[0]);
	if (each->threads > 1)
		pthread_join(other, NULL);
	laps = run[0].laps + run[1].laps;
	printf("%s %llu %llu %llu %llu %llu %llu %zu %p\n", each->name, (unsigned long long)laps,
	       (unsigned long long)(laps * each->instructions), (unsigned long long)(laps * each->loads),
	       (unsigned long long)(laps * each->branches), (unsigned long long)(laps * each->unforeseen),
	       (unsigned long long)(run[0].elapsed_ns + run[1].elapsed_ns), each->chain ? each->chain->bytes : 0,
	       each->data);
}

/* Whether a name is among others with commas between them. */
static int is_among(const char *names, const char *name)
{
	size_t length = strlen(name);

	for (const char *found = names; (found = strstr(found, name)); found += length)
		if ((found == names || found[-1] == ',') && (!found[length] || found[length] == ','))
			return 1;
	return 0;
}

int main(int argc, char **argv)
{
	const char *which = NULL;
	uint64_t milliseconds = 1000;
	int option, lists = 0;

	while ((option = getopt(argc, argv, "w:s:m:l")) != -1) {
		switch (option) {
		case 'w': which = optarg; break;
		case 's': milliseconds = strtoull(optarg, NULL, 10); break;
		case 'm': memory_mib = strtoull(optarg, NULL, 10); break;
		case 'l': lists = 1; break;
		default: return 2;
		}
	}
	for (size_t i = 0; i < BENCHMARKS; i++) {
		if (which && !is_among(which, benchmarks[i].name))
			continue;
		if (lists)
			puts(benchmarks[i].name);
		else
			measure(&benchmarks[i], milliseconds);
	}
	return 0;
}
