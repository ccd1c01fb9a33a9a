/* SPDX-License-Identifier: Apache-2.0 */
/* late: works, then maps its own file once more, and calls from there what has no unwind information, once and long. */
#include "work.h"

#include <fcntl.h>
#include <sys/mman.h>

extern const char __ehdr_start[], etext[]; /* where the linker has put its file's first and its code's last byte */

uint64_t untold(uint64_t count);

__asm__(".text\n.type untold, @function\nuntold:\n"
        "push %rbx\nmov %rdi, %rbx\n"
        "1: dec %rbx\njnz 1b\n"
        "pop %rbx\nret\n.size untold, . - untold\n");

typedef uint64_t function_t(uint64_t);

KEEP uint64_t spin(uint64_t count)
{
	return SPIN(count);
}

KEEP uint64_t from_there(function_t *function, uint64_t count)
{
	return function(count) + 1;
}

int main(int count, char **arguments)
{
	uint64_t sum = work_in(spin, 0.3) + (uint64_t)count;
	int file = open(arguments[0], O_RDONLY);
	const char *again = mmap(NULL, (size_t)(etext - __ehdr_start), PROT_READ | PROT_EXEC, MAP_PRIVATE, file, 0);
	uint64_t (*there)(function_t *, uint64_t);

	if (again == MAP_FAILED)
		return 2;
	there = (uint64_t(*)(function_t *, uint64_t))(again + ((const char *)from_there - __ehdr_start));
	return there(untold, 2000000000) == sum;
}
