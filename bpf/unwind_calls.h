/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What code that execution returns to looks like, beside unwind_step.h and for the builder of tables. */
#ifndef TDPROF_UNWIND_CALLS_H
#define TDPROF_UNWIND_CALLS_H

#include "unwind.h"

#define UNWIND_X86_64  0
#define UNWIND_AARCH64 1

/* x86-64: whether bytes of code end with a call: 5 bytes long, or by a register or memory, with 0, 1 or 4 bytes of
 * offset. */
UNWIND_INLINE int unwind_ends_with_call(__u64 code)
{
	if ((code >> 24 & 0xff) == 0xe8)
		return 1;
	/* ff /2: mod and rm of the byte behind ff say how long it is; rm = 4 has one byte more, mod = 0 and rm = 5
	 * four. */
	if ((code >> 48 & 0xf8ff) == 0xd0ff || ((code >> 48 & 0xf8ff) == 0x10ff && (code >> 56 & 6) != 4))
		return 1;
	if (((code >> 40 & 0xf8ff) == 0x50ff && (code >> 48 & 7) != 4) || (code >> 40 & 0xffff) == 0x14ff)
		return 1;
	return (code >> 32 & 0xffff) == 0x54ff || (code >> 16 & 0xf8ff) == 0x90ff || (code >> 16 & 0xffff) == 0x15ff ||
	       (code >> 8 & 0xffff) == 0x94ff || (code >> 8 & 0xffff) == 0x14ff;
}

/* aarch64: whether the last of two instructions is bl, blr, or blr with an authenticated address. */
UNWIND_INLINE int unwind_ends_with_branch_and_link(__u64 code)
{
	__u32 last = code >> 32;

	return last >> 26 == 0x25 || (last & 0xfffffc1f) == 0xd63f0000 || (last & 0xfefff800) == 0xd63f0800;
}

/* Whether code ends signal handlers, to which nobody calls: it loads the number of rt_sigreturn, on x86-64 into eax or
 * rax, and asks the kernel. */
UNWIND_INLINE int unwind_begins_with_sigreturn(__u64 code)
{
	return code == 0x0f0000000fc0c748ULL || (code & 0xffffffffffffffULL) == 0x050f0000000fb8ULL;
}

/* The same of aarch64, into x8. */
UNWIND_INLINE int unwind_begins_with_arm_sigreturn(__u64 code)
{
	return code == 0xd4000001d2801168ULL;
}

#endif
