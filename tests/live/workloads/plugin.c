/* SPDX-License-Identifier: Apache-2.0 */
/* A library that host.c loads while it runs. */
#include "work.h"

KEEP uint64_t plugin_work(uint64_t iterations)
{
	return SPIN(iterations);
}
