/* SPDX-License-Identifier: Apache-2.0 */
/* contexts SECONDS: works on the stack of a context that it has made (makecontext), which nothing has called. */
#include "work.h"

#include <ucontext.h>

static ucontext_t caller, made;
static double seconds;

KEEP uint64_t leaf(uint64_t iterations)
{
	return SPIN(iterations);
}

KEEP void body(void)
{
	volatile uint64_t done = work_in(leaf, seconds);

	(void)done;
}

int main(int count, char **arguments)
{
	static char stack[1 << 16];

	if (count < 2 || getcontext(&made))
		return 1;
	seconds = atof(arguments[1]);
	made.uc_stack.ss_sp = stack;
	made.uc_stack.ss_size = sizeof(stack);
	made.uc_link = &caller;
	makecontext(&made, body, 0);
	return swapcontext(&caller, &made);
}
