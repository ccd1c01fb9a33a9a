/* SPDX-License-Identifier: Apache-2.0 */
/* absent: works in code without unwind information, while its process has no page of its callers' code in memory. */
#include "work.h"

#include <sys/mman.h>

#define PAGE 4096

uint64_t untold(uint64_t count);
void drop(void);

__asm__(".text\n.type untold, @function\nuntold:\n"
        "push %rbx\nmov %rdi, %rbx\ncall drop\n"
        "1: dec %rbx\njnz 1b\n"
        "pop %rbx\nret\n.size untold, . - untold\n");

/* A page each, and where pages are looked for around a fault none is needed any more. */
KEEP __attribute__((aligned(PAGE))) uint64_t inner(uint64_t count)
{
	return untold(count) + 1;
}

KEEP __attribute__((aligned(PAGE))) uint64_t outer(uint64_t count)
{
	return inner(count) + 1;
}

KEEP __attribute__((aligned(PAGE), used)) void drop(void)
{
	madvise((void *)inner, PAGE, MADV_DONTNEED);
	madvise((void *)outer, PAGE, MADV_DONTNEED);
}

int main(void)
{
	return outer(2000000000) == 1;
}
