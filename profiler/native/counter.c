/* SPDX-License-Identifier: Apache-2.0 */
/* The architecture's free-running counter, in which SPE stamps its records. */
#include <stdint.h>

/* CNTVCT_EL0 on arm64; 0 where no counter is known that a profiler's records would be stamped in. */
__attribute__((visibility("default"))) uint64_t tdprof_read_counter(void)
{
#ifdef __aarch64__
	uint64_t value;

	/* The barrier keeps the read between the two clock readings around it (Arm ARM, "Timers and counters"). */
	__asm__ volatile("isb\n\tmrs %0, cntvct_el0" : "=r"(value));
	return value;
#else
	return 0;
#endif
}
