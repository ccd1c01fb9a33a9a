/* SPDX-License-Identifier: Apache-2.0 */
/* A library that swap.c loads in the place of plugin.c. */
#include "work.h"

KEEP uint64_t other_work(uint64_t iterations)
{
	return SPIN(iterations);
}
