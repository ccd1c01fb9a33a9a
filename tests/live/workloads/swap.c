/* SPDX-License-Identifier: Apache-2.0 */
/*
 * swap PLUGIN OTHER SECONDS [stop]: loads PLUGIN, works so long in its plugin_work(), closes it, loads OTHER, which
 * takes its place, works so long in its other_work(), and then twice as long in host_work(). With `stop` its parent
 * stands still from before OTHER is loaded until that has done its work.
 */
#include "work.h"

#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

KEEP uint64_t host_work(uint64_t iterations)
{
	return SPIN(iterations);
}

static void *load(const char *path, const char *name, uint64_t (**function)(uint64_t))
{
	void *library = dlopen(path, RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		exit(1);
	}
	*function = (uint64_t(*)(uint64_t))dlsym(library, name);
	return library;
}

int main(int argc, char **argv)
{
	uint64_t (*function)(uint64_t), first, sum;
	double seconds = argc > 3 ? atof(argv[3]) : 0.25;
	int stops = argc > 4;
	void *library = load(argv[1], "plugin_work", &function);

	first = (uint64_t)function;
	sum = work_in(function, seconds);
	dlclose(library);
	if (stops)
		kill(getppid(), SIGSTOP);
	load(argv[2], "other_work", &function);
	if (first != (uint64_t)function) {
		fprintf(stderr, "the second library is not where the first was\n");
		return 1;
	}
	sum += work_in(function, seconds);
	if (stops)
		kill(getppid(), SIGCONT);
	return sum + work_in(host_work, 2 * seconds) == 42;
}
