/* SPDX-License-Identifier: Apache-2.0 */
/* A library whose thread, which Python did not start, calls a function of it again and again. */
#include <pthread.h>

static void *call_until_done(void *function)
{
	while (((int (*)(void))function)())
		;
	return 0;
}

void call_in_thread(int (*function)(void))
{
	pthread_t thread;

	if (!pthread_create(&thread, 0, call_until_done, (void *)function))
		pthread_join(thread, 0);
}
