/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The time that each thread spends on a CPU, waiting for one, and asleep; and which of its time off a CPU is sampled.
 *
 * A thread's time off a CPU is cut into periods, whatever it waits for in between. In each of them one point is chosen
 * at random, and the wait that passes it has a sample: so each stands for a period, short waits have their share, and
 * no program can keep in step.
 */
#ifndef TDPROF_OFF_CPU_H
#define TDPROF_OFF_CPU_H

#include "sample.h"
#include "settings.h"

/* Of a kernel call chain, in which the scheduler's own functions stand. */
#define MOST_SCHEDULER_DEPTH 16

/* Of include/linux/sched.h, the same in all versions. */
#define TASK_UNINTERRUPTIBLE 0x2
#define TASK_DEAD            0x80
#define TASK_NOLOAD          0x400 /* a kernel thread that waits for work, which no signal ends */
/* As fs/proc/array.c tells them: for a lock that a real-time kernel makes of a spinlock (Linux 5.15), and frozen (6.1).
 */
#define TASK_RTLOCK_WAIT 0x1000
#define TASK_FROZEN      0x8000
#define BEYOND_SIGNALS   (TASK_UNINTERRUPTIBLE | TASK_RTLOCK_WAIT | TASK_FROZEN)

/* When time began to be recorded, and when user space knew of all threads of the chosen groups what they did. */
enum since { SINCE_RECORDED, SINCE_ALL_STAND, SINCES };

/* In the numbers of what came into another control group: a process, with all its threads. */
#define MOVED_PROCESS (1ULL << 32)

/* Of a process or a thread in the chosen groups; each time is 0 where that was not while time was recorded. */
struct stay {
	__u64 came_ns; /* CLOCK_MONOTONIC */
	__u64 left_ns;
	__u64 state; /* enum thread_state in which it came, of a process its first thread; THREAD_RUNNING: not known */
};

#define MOST_STAYS 8

/* What is known of the stays of a process or a thread; of the last one also whether it came back: when it left before.
 */
struct visit {
	struct stay last;
	__u64 forgotten_ns;              /* when the last stay ended that there is no room for; 0: none */
	struct stay earlier[MOST_STAYS]; /* the newest first; of none all is 0 */
};

/* The last switch of a CPU, for the program that runs after it. */
struct last_switch {
	__u64 task;       /* who has the CPU since */
	__u64 at_ns;      /* CLOCK_MONOTONIC */
	__u64 queued_ns;  /* of struct thread_times, of that thread before it */
	__u64 is_settled; /* 1: nothing is to be done for it */
};

/*
 * How many addresses of a call chain, innermost first, lead out of the scheduler. Not as far as where it stands again:
 * an interrupt may wake one thread while another is being woken.
 */
static __always_inline __u32 scheduler_addresses(const __u64 *address, long bytes)
{
	__u32 depth = 0;

	for (__u32 i = 0; i < MOST_SCHEDULER_DEPTH; i++) {
		if ((long)(i * sizeof(__u64)) >= bytes)
			break;
		if (address[i] - SETTING(SETTING_SCHEDULE) < SETTING(SETTING_SCHEDULE_BYTES) ||
		    address[i] - SETTING(SETTING_FIRST_TURN) < SETTING(SETTING_FIRST_TURN_BYTES))
			depth = i + 1;
		else if (depth)
			break;
	}
	return depth;
}

/* As of a thread's `__state` when it leaves a CPU. */
static __always_inline __u32 waiting_state(__u32 kernel_state, __u64 is_preempted)
{
	if (is_preempted || !kernel_state)
		return THREAD_RUNNABLE;
	if (kernel_state & BEYOND_SIGNALS && !(kernel_state & TASK_NOLOAD))
		return THREAD_UNINTERRUPTIBLE;
	return THREAD_INTERRUPTIBLE;
}

static __always_inline __u32 random_point(void)
{
	return (__u64)bpf_get_prandom_u32() * SETTING(SETTING_OFF_CPU_PERIOD) >> 32;
}

/* Let time off a CPU pass; returns how many points that passes. */
static __always_inline __u32 pass_points(struct thread_times *thread, __u64 elapsed_ns)
{
	__u64 period = SETTING(SETTING_OFF_CPU_PERIOD), at = thread->position_ns + elapsed_ns;
	__u32 is_ahead = thread->position_ns <= thread->point_ns, points;

	if (at < period) {
		points = is_ahead && thread->point_ns < at;
	} else {
		points = is_ahead + at / period - 1;
		at %= period;
		thread->point_ns = random_point();
		points += thread->point_ns < at;
	}
	thread->position_ns = at;
	return points;
}

/* Add up what has passed since the thread came into its state. */
static __always_inline void pass_time(struct thread_times *thread, __u64 now_ns)
{
	__u32 state = thread->state & 3;
	/* Clocks of two CPUs may differ by some nanoseconds. */
	__u64 elapsed_ns = now_ns > thread->since_ns ? now_ns - thread->since_ns : 0;

	thread->spent_ns[state] += elapsed_ns;
	thread->since_ns += elapsed_ns;
	if (state != THREAD_RUNNING)
		thread->due[state] += pass_points(thread, elapsed_ns);
}

/*
 * Add up the sleep of a thread that nobody was seen to wake, and that came to a CPU then: until the kernel put it into
 * a queue for one, where it has been for as long as that counts now.
 */
static __always_inline void pass_unseen_sleep(struct thread_times *thread, __u64 queued_ns, __u64 now_ns)
{
	if (thread->state < THREAD_INTERRUPTIBLE)
		return;
	if (queued_ns > thread->queued_ns)
		now_ns -= queued_ns - thread->queued_ns;
	pass_time(thread, now_ns);
	thread->state = THREAD_RUNNABLE;
}

#endif
