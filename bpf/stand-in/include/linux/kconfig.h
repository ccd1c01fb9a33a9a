/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* bcc includes this first, before anything else: the types that its own headers take for granted. */
#ifndef TDPROF_KCONFIG_H
#define TDPROF_KCONFIG_H

#define CONFIG_BPF_SYSCALL 1

#include <linux/types.h>

typedef __u8 u8;
typedef __u16 u16;
typedef __u32 u32;
typedef __u64 u64;
typedef __s8 s8;
typedef __s16 s16;
typedef __s32 s32;
typedef __s64 s64;
typedef __u8 uint8_t;
typedef __u16 uint16_t;
typedef __u32 uint32_t;
typedef __u64 uint64_t;
typedef __s8 int8_t;
typedef __s16 int16_t;
typedef __s32 int32_t;
typedef __s64 int64_t;
typedef unsigned long size_t;
typedef unsigned long uintptr_t;
typedef _Bool bool;
#define true  1
#define false 0
#define NULL  ((void *)0)

/* bcc's headers name registers as the kernel does, not as the user API does. */
#if defined(__x86_64__)
struct pt_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di;
	unsigned long orig_ax, ip, cs, flags, sp, ss;
};
#elif defined(__aarch64__)
struct user_pt_regs {
	__u64 regs[31], sp, pc, pstate;
};
struct pt_regs {
	__u64 regs[31], sp, pc, pstate;
};
#endif

#endif
