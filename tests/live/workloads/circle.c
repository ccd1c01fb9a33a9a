/* SPDX-License-Identifier: Apache-2.0 */
/* circle SECONDS: works in code without unwind information whose frame pointer leads to a frame that is its own caller.
 */
#include "work.h"

#include <stdint.h>

uint64_t circle(uint64_t count);

__attribute__((visibility("hidden"))) uintptr_t circular_frame[2]; /* the caller's frame, and where it goes on */

#if defined(__x86_64__)
__asm__(".text\n.type circle, @function\ncircle:\n"
        "push %rbp\nlea circular_frame(%rip), %rbp\nmov %rdi, %rax\n"
        "1: dec %rax\njnz 1b\n"
        "pop %rbp\nret\n.size circle, . - circle\n");
#elif defined(__aarch64__)
__asm__(".text\n.type circle, %function\ncircle:\n"
        "stp x29, x30, [sp, #-16]!\nadrp x29, circular_frame\nadd x29, x29, :lo12:circular_frame\n"
        "1: subs x0, x0, #1\nb.ne 1b\n"
        "ldp x29, x30, [sp], #16\nret\n.size circle, . - circle\n");
#endif

KEEP uint64_t calls(double seconds)
{
	circular_frame[0] = (uintptr_t)circular_frame;
	circular_frame[1] = (uintptr_t)__builtin_return_address(0);
	return work_in(circle, seconds) + 1;
}

int main(int count, char **arguments)
{
	return count > 1 && calls(atof(arguments[1])) == 42;
}
