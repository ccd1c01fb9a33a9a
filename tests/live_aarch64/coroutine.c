/* SPDX-License-Identifier: Apache-2.0 */
/* A coroutine that is switched to by a return into its beginning, which x30 then has; before it stands another function
 * that ends within its frame. */
#include <stdint.h>
#include <stdlib.h>

static uint64_t stack[8192];

void coroutine(void);

__asm__(".text\n"
        ".balign 16\n"
        ".type not_its_caller, %function\n"
        "not_its_caller:\n"
        ".cfi_startproc\n"
        "stp x29, x30, [sp, -32]!\n"
        ".cfi_def_cfa_offset 32\n"
        ".cfi_offset 29, -32\n"
        ".cfi_offset 30, -24\n"
        "1: bl work\n"
        "b 1b\n"
        ".cfi_endproc\n"
        ".size not_its_caller, . - not_its_caller\n"
        ".globl coroutine\n"
        ".type coroutine, %function\n"
        "coroutine:\n"
        ".cfi_startproc\n"
        "stp x29, x30, [sp, -16]!\n"
        ".cfi_def_cfa_offset 16\n"
        ".cfi_offset 29, -16\n"
        ".cfi_offset 30, -8\n"
        "1: bl work\n"
        "b 1b\n"
        ".cfi_endproc\n"
        ".size coroutine, . - coroutine\n");

__attribute__((noinline)) void work(void)
{
	static int calls;

	for (volatile int i = 0; i < 1000000; i++)
		;
	if (++calls == 1000)
		exit(0);
}

int main(void)
{
	uint64_t *top = stack + 8192 - 64;

	__asm__ volatile("mov sp, %0\n\tmov x29, xzr\n\tmov x30, %1\n\tret" : : "r"(top), "r"(coroutine) : "memory");
	return 0;
}
