/* SPDX-License-Identifier: Apache-2.0 */
/* A library that calls a function on a stack of its own, where nothing says who began it: there is no such code. */
#include <stdint.h>

#define ELSEWHERE 0x10

void call_on(void *stack, void (*function)(void));
#ifdef __x86_64__
__asm__(".globl call_on\n.type call_on, @function\n"
        "call_on:\n.cfi_startproc\n"
        "push %rbx\n"
        "mov %rsp, %rbx\n"
        "mov %rdi, %rsp\n" /* the return address stands there, says the unwind table */
        "call *%rsi\n"
        "mov %rbx, %rsp\n"
        "pop %rbx\n"
        "ret\n.cfi_endproc\n.size call_on, .-call_on\n");
#else
__asm__(".globl call_on\n.type call_on, @function\n"
        "call_on:\n.cfi_startproc\n.cfi_def_cfa sp, 16\n.cfi_offset x30, -16\n"
        "stp x29, x30, [sp, #-32]!\n"
        "str x19, [sp, #16]\n"
        "mov x19, sp\n"
        "mov sp, x0\n"
        "blr x1\n"
        "mov sp, x19\n"
        "ldr x19, [sp, #16]\n"
        "ldp x29, x30, [sp], #32\n"
        "ret\n.cfi_endproc\n.size call_on, .-call_on\n");
#endif

void elsewhere(void (*function)(void))
{
	static uint64_t stack[1 << 17] __attribute__((aligned(16)));
	uint64_t *top = &stack[(1 << 17) - 16];

	*top = ELSEWHERE;
	call_on(top, function);
}
