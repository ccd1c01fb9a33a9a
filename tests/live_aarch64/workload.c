// SPDX-License-Identifier: Apache-2.0
/*
 * The program that the live tests measure: `hot` executes three times as many instructions as `cold`, in loops that
 * differ only in their trip count; so does `warm`, twice as many as `cold`. `loads` and `stores` touch memory,
 * `branches` jumps at random.
 *
 *   workload [-r REGIONS] [-n ROUNDS] [-t THREADS] [-f FORKS] [-w WHICH] [-j]
 *
 * WHICH names functions by their first letters ("hc"); all but `warm` take part if it is not given. With -j each runs
 * once to three times in a row, drawn anew each round: no sampling period keeps step with that. REGIONS is a file of
 * struct nsim_region, one for each function in the order below, without their addresses: the program declares them to
 * the simulated Neoverse before it starts to work.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../tools/neoverse_sim/neoverse_sim.h"

/* Each function has a section, whose bounds the linker names. */
#define FUNCTION(name)                                                                                                 \
	extern const char __start_text_##name[], __stop_text_##name[];                                                 \
	__attribute__((noinline, section("text_" #name), aligned(64))) void name(void)
#define REGION(name) { name, #name[0], __start_text_##name, __stop_text_##name }

static long rounds = 200;
static int random_turns;
static const char *which = "hclsb";
static uint64_t memory[1 << 16];

/* Two instructions a turn, so the share of instructions is the share of turns. */
#define SPIN(turns)                                                                                                    \
	do {                                                                                                           \
		uint64_t left = (turns);                                                                               \
		__asm__ volatile("1: subs %0, %0, #1\n\tb.ne 1b" : "+r"(left) : : "cc");                               \
	} while (0)

FUNCTION(hot)
{
	SPIN(75000);
}
FUNCTION(cold)
{
	SPIN(25000);
}
FUNCTION(warm)
{
	SPIN(50000);
}

/* Eight bytes each, at addresses that a test can foretell: the first 32 KiB of `memory` and the 32 KiB after. */
FUNCTION(loads)
{
	for (int i = 0; i < 2000; i++)
		__asm__ volatile("ldr x9, [%0, #8]\n\tldr x10, [%0, #16]\n\tldr x11, [%0, #24]\n\tldr x12, [%0, #32]"
		                 :
		                 : "r"(&memory[(i & 63) * 8])
		                 : "x9", "x10", "x11", "x12", "memory");
}

FUNCTION(stores)
{
	for (int i = 0; i < 2000; i++)
		__asm__ volatile("str x9, [%0, #8]\n\tstr x10, [%0, #16]\n\tstr x11, [%0, #24]\n\tstr x12, [%0, #32]"
		                 :
		                 : "r"(&memory[4096 + (i & 63) * 8])
		                 : "memory");
}

FUNCTION(branches)
{
	uint32_t state = 1;

	for (int i = 0; i < 2000; i++) {
		state = state * 1664525 + 1013904223;
		if (state & 0x10000)
			__asm__ volatile("nop\n\tnop");
	}
}

static const struct {
	void (*run)(void);
	char letter;
	const char *start, *end;
} functions[] = { REGION(hot), REGION(cold), REGION(loads), REGION(stores), REGION(branches), REGION(warm) };
#define FUNCTIONS (sizeof(functions) / sizeof(functions[0]))

static void die(const char *what)
{
	perror(what);
	exit(2);
}

static void declare_regions(const char *path)
{
	struct nsim_region region;
	int device = open("/dev/neoverse_sim", O_RDWR), file = open(path, O_RDONLY);

	if (device < 0)
		die("/dev/neoverse_sim");
	if (file < 0)
		die(path);
	for (size_t i = 0; i < FUNCTIONS; i++) {
		if (read(file, &region, sizeof(region)) != sizeof(region))
			break;
		region.executable = -1;
		region.start = (uint64_t)functions[i].start;
		region.end = (uint64_t)functions[i].end;
		if (ioctl(device, NSIM_SET_REGION, &region))
			die("NSIM_SET_REGION");
	}
	close(device);
	close(file);
}

static void *work(void *unused)
{
	uint32_t state = (uint32_t)(uintptr_t)&state;

	(void)unused;
	for (long i = 0; i < rounds; i++)
		for (size_t f = 0; f < FUNCTIONS; f++) {
			state = state * 1664525 + 1013904223;
			for (int turns = random_turns ? 1 + (state >> 16) % 3 : 1; turns; turns--)
				if (strchr(which, functions[f].letter))
					functions[f].run();
		}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread[64];
	long threads = 0, forks = 0;
	const char *regions = NULL;
	int option;

	while ((option = getopt(argc, argv, "r:n:t:f:w:j")) != -1) {
		switch (option) {
		case 'r': regions = optarg; break;
		case 'n': rounds = atol(optarg); break;
		case 't': threads = atol(optarg) & 63; break;
		case 'f': forks = atol(optarg); break;
		case 'w': which = optarg; break;
		case 'j': random_turns = 1; break;
		default: return 2;
		}
	}
	memset(memory, 1, sizeof(memory));
	if (regions)
		declare_regions(regions);
	for (long i = 0; i < forks; i++)
		if (fork() == 0)
			forks = 0;
	for (long i = 0; i < threads; i++)
		pthread_create(&thread[i], NULL, work, NULL);
	work(NULL);
	for (long i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	while (wait(NULL) > 0)
		;
	return 0;
}
