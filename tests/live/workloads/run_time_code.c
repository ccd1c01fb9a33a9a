/* SPDX-License-Identifier: Apache-2.0 */
/*
 * run_time_code SECONDS [NAME [FOLDER]]: writes a small loop into fresh memory, names it in /tmp/perf-PID.map and runs
 * it; with a second name it replaces the loop by itself under that name and runs it three times as long. With a folder
 * names stand, with times, in FOLDER/jit-PID.dump instead (perf's jitdump-specification.txt).
 */
#include "work.h"

#include <fcntl.h>
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

static FILE *names;
static int is_dump;

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void open_names(const char *folder)
{
	char path[256];

	is_dump = folder != NULL;
	if (!is_dump) {
		snprintf(path, sizeof(path), "/tmp/perf-%d.map", getpid());
		names = fopen(path, "w");
	} else {
		uint32_t words[] = { 0x4A695444, 1, 40, 0, 0, (uint32_t)getpid() };
		uint64_t time_and_flags[] = { now_ns(), 0 };

		snprintf(path, sizeof(path), "%s/jit-%d.dump", folder, getpid());
		names = fdopen(open(path, O_CREAT | O_RDWR | O_TRUNC, 0600), "w");
		fwrite(words, sizeof(words), 1, names);
		fwrite(time_and_flags, sizeof(time_and_flags), 1, names);
		fflush(names);
		/* This is how profilers learn of it. */
		mmap(NULL, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fileno(names), 0);
	}
	printf("%s\n", path);
}

static void tell(void *code, const char *name)
{
	static uint64_t index;

	if (!is_dump) {
		fprintf(names, "%lx %zx %s\n", (unsigned long)code, sizeof(loop), name);
	} else {
		uint32_t kind_and_size[] = { 0, (uint32_t)(56 + strlen(name) + 1 + sizeof(loop)) };
		uint32_t ids[] = { (uint32_t)getpid(), (uint32_t)getpid() };
		uint64_t time = now_ns(), where[] = { (uint64_t)code, (uint64_t)code, sizeof(loop), index++ };

		fwrite(kind_and_size, sizeof(kind_and_size), 1, names);
		fwrite(&time, sizeof(time), 1, names);
		fwrite(ids, sizeof(ids), 1, names);
		fwrite(where, sizeof(where), 1, names);
		fwrite(name, strlen(name) + 1, 1, names);
		fwrite(loop, sizeof(loop), 1, names);
	}
	fflush(names);
}

static void run(void *code, double end)
{
	while (cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) < end)
		((void (*)(uint64_t))code)(100000);
}

int main(int argc, char **argv)
{
	double end = argc > 1 ? atof(argv[1]) : 0.5;
	void *code = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	memcpy(code, loop, sizeof(loop));
	__builtin___clear_cache((char *)code, (char *)code + sizeof(loop));
	mprotect(code, 4096, PROT_READ | PROT_EXEC);
	open_names(argc > 3 ? argv[3] : NULL);
	tell(code, "compiled_loop");
	run(code, end);
	if (argc > 2) {
		tell(code, argv[2]);
		run(code, 4 * end);
	}
	return 0;
}
