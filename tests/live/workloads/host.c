/* SPDX-License-Identifier: Apache-2.0 */
/* host LIBRARY SECONDS: works in host_work(), then loads LIBRARY and works as long in its plugin_work(). */
#include "work.h"

#include <dlfcn.h>
#include <stdio.h>

KEEP uint64_t host_work(uint64_t iterations)
{
	return SPIN(iterations);
}

int main(int argc, char **argv)
{
	double seconds = argc > 2 ? atof(argv[2]) : 0.5;
	uint64_t sum = work_in(host_work, seconds);
	void *library = dlopen(argv[1], RTLD_NOW);

	if (!library) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	uint64_t (*function)(uint64_t) = (uint64_t(*)(uint64_t))dlsym(library, "plugin_work");

	return sum + work_in(function, seconds) == 42;
}
