/* SPDX-License-Identifier: GPL-2.0 */
/* Where a user stack begins: the thread's user registers, wherever the sample was taken. Part of walk.h. */
#ifndef TDPROF_WALK_REGISTERS_H
#define TDPROF_WALK_REGISTERS_H

enum walk_start {
	WALK_BEGUN,
	WALK_NO_USER_STACK, /* a kernel thread; amid execve() or exit() */
	WALK_BY_KERNEL,     /* 32-bit code, or registers that cannot be had: the kernel walks along frame pointers */
};

#ifdef __aarch64__

#define REGISTERS_BYTES    sizeof(struct user_pt_regs) /* of a pt_regs that grew and shrank: all that is read */
#define IS_USER_MODE(regs) (((regs)->pstate & 0xf) == 0)
#define IS_64_BIT(regs)    (((regs)->pstate & 0x10) == 0)
#define REGISTERS_PC(regs) ((regs)->pc)
#define BEGIN_WITH(state, registers)                                                                                   \
	do {                                                                                                           \
		(state)->leaf[13] = (registers)->regs[22]; /* where HotSpot's interpreter is */                        \
		(state)->leaf[14] = (registers)->regs[28]; /* Go's goroutine */                                        \
		unwind_begin(state, (registers)->pc, (registers)->sp, (registers)->regs[29], (registers)->regs[30],    \
		             UNWIND_REGISTERS);                                                                        \
	} while (0)

#else

#define REGISTERS_BYTES    sizeof(struct pt_regs)
#define IS_USER_MODE(regs) (((regs)->cs & 3) == 3)
#define IS_64_BIT(regs)    ((regs)->cs == 0x33) /* __USER_CS of arch/x86/include/asm/segment.h; 0x23 is 32-bit */
#define REGISTERS_PC(regs) ((regs)->ip)
#define BEGIN_WITH(state, registers)                                                                                   \
	do {                                                                                                           \
		__u64 *leaf = (state)->leaf;                                                                           \
                                                                                                                       \
		leaf[0] = (registers)->ax;                                                                             \
		leaf[1] = (registers)->dx;                                                                             \
		leaf[2] = (registers)->cx;                                                                             \
		leaf[3] = (registers)->bx;                                                                             \
		leaf[4] = (registers)->si;                                                                             \
		leaf[5] = (registers)->di;                                                                             \
		leaf[6] = (registers)->bp;                                                                             \
		leaf[7] = (registers)->sp;                                                                             \
		leaf[8] = (registers)->r8;                                                                             \
		leaf[9] = (registers)->r9;                                                                             \
		leaf[10] = (registers)->r10;                                                                           \
		leaf[11] = (registers)->r11;                                                                           \
		leaf[12] = (registers)->r12;                                                                           \
		leaf[13] = (registers)->r13;                                                                           \
		leaf[14] = (registers)->r14;                                                                           \
		leaf[15] = (registers)->r15;                                                                           \
		unwind_begin(state, (registers)->ip, (registers)->sp, (registers)->bp, 0, UNWIND_REGISTERS);           \
	} while (0)

#endif

/*
 * Whether the current thread has no user stack any more: it ends and has given its memory back, or is amid execve() and
 * has the new program's. Its registers are as they were when it had one.
 */
static __always_inline int has_left_its_stack(void);

/* Set the state to the thread's user registers. */
static __always_inline enum walk_start begin_walk(struct bpf_perf_event_data *ctx, struct walk *walk)
{
	if (SETTING(SETTING_SAMPLED_AT) == AT_OVERFLOW && IS_USER_MODE(&ctx->regs)) {
		if (!IS_64_BIT(&ctx->regs))
			return WALK_BY_KERNEL;
		BEGIN_WITH(&walk->state, &ctx->regs);
		/*
		 * Keeps this apart from the same below: merged, the registers would be read through a pointer that is
		 * the context or not, which the verifier refuses.
		 */
		asm volatile("" ::: "memory");
		return WALK_BEGUN;
	}
	if (!SETTING(SETTING_HAS_TASK_REGISTERS))
		return WALK_BY_KERNEL;
	/* The window holds nothing yet, and is large enough. */
	const bpf_user_pt_regs_t *registers = (void *)walk->memory.word;
	void *task = (void *)walk_current_task();

	if (walk_read_kernel(walk->memory.word, REGISTERS_BYTES, (void *)walk_task_registers(task)))
		return WALK_BY_KERNEL;
	/* A thread of the kernel has none; the kernel's helper threads of a process (io_uring) have zeros. */
	if (!IS_USER_MODE(registers) || !REGISTERS_PC(registers))
		return WALK_NO_USER_STACK;
	if (!IS_64_BIT(registers))
		return WALK_BY_KERNEL;
	if (has_left_its_stack())
		return WALK_NO_USER_STACK;
	BEGIN_WITH(&walk->state, registers);
	return WALK_BEGUN;
}

#endif
