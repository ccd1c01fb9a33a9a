// SPDX-License-Identifier: Apache-2.0
/*
 * A program that says it is CPython 3.11, and has written what it likes where frames should be: a frame that is its own
 * caller, names with escape sequences, a line table of any length, a list of threads without end.
 */
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

const unsigned int Py_Version = 0x030b02f0;

static struct {
	unsigned long header[2], length, hash, state, wstr;
	char text[64];
} name = { .length = 40, .state = 1 << 2 | 1 << 5 | 1 << 6, .text = "\033]0;owned\007\033[2Jevil" };
static unsigned long lines[64] = { [2] = 1UL << 62 };
static unsigned long code[32], frame[16], inner[4], thread[32], other[32], interpreter[8];
unsigned long _PyRuntime[16];

/* Where frames are walked. */
__attribute__((noinline)) int _PyEval_EvalFrameDefault(double seconds)
{
	struct timespec now;
	volatile int work = 0;

	do {
		for (int i = 0; i < 10000; i++)
			work += i;
		clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	} while (now.tv_sec + now.tv_nsec / 1e9 < seconds);
	return work;
}

int main(void)
{
	code[14] = code[15] = code[16] = (unsigned long)&name;
	code[17] = (unsigned long)lines;
	frame[4] = (unsigned long)code;
	frame[6] = (unsigned long)frame;
	frame[8] = ~0UL;
	inner[1] = (unsigned long)frame;
	thread[1] = other[1] = (unsigned long)other;
	thread[7] = (unsigned long)inner;
	thread[20] = syscall(SYS_gettid);
	interpreter[0] = (unsigned long)interpreter;
	interpreter[2] = (unsigned long)thread;
	_PyRuntime[5] = (unsigned long)interpreter;
	return _PyEval_EvalFrameDefault(0.5) == 42;
}
