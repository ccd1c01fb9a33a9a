/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_time_code SECONDS [NAME]: writes a small loop into fresh memory, names it in /tmp/perf-PID.map and runs it; with
 * a second name it replaces the loop by itself under that name and runs it as long.
 */
#include "work.h"

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#if defined(__x86_64__)
/* 1: dec rdi; jnz 1b; ret */
static const unsigned char loop[] = { 0x48, 0xff, 0xcf, 0x75, 0xfb, 0xc3 };
#elif defined(__aarch64__)
/* 1: subs x0, x0, #1; b.ne 1b; ret */
static const unsigned char loop[] = { 0x00, 0x04, 0x00, 0xf1, 0xe1, 0xff, 0xff, 0x54, 0xc0, 0x03, 0x5f, 0xd6 };
#endif

static void run(void *code, double end)
{
	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < end)
		((void (*)(uint64_t))code)(100000);
}

int main(int argc, char **argv)
{
	double end = argc > 1 ? atof(argv[1]) : 0.5;
	char path[64];
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(code, loop, sizeof(loop));
	__builtin___clear_cache((char *)code, (char *)code + sizeof(loop));
	mprotect(code, 4096, PROT_READ | PROT_EXEC);
	snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
	FILE *map = fopen(path, "w");

	fprintf(map, "%lx %zx compiled_loop\n", (unsigned long)code, sizeof(loop));
	fclose(map);
	printf("%s\n", path);
	run(code, end);
	if (argc > 2) {
		map = fopen(path, "a");
		fprintf(map, "%lx %zx %s\n", (unsigned long)code, sizeof(loop), argv[2]);
		fclose(map);
		run(code, 2 * end);
	}
	return 0;
}
