/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What the loader fills into the compiled programs (tdprof/recorder/bpf/settings.py), so that one object serves every
 * event and every machine of its architecture. The verifier sees constants: what they switch off need not even be known
 * to the kernel.
 */
#ifndef TDPROF_SETTINGS_H
#define TDPROF_SETTINGS_H

/* Which control group a sample says that it was taken in. */
enum cgroups {
	CGROUPS_NONE,
	CGROUPS_V2,
	CGROUPS_V1,
	CGROUPS_V2_ELSE_V1 /* of version 1 where it is version 2's root */
};

enum setting {
	SETTING_EVENT,              /* what `overflow` hands over; each event has a copy of that program */
	SETTING_PIDNS_DEVICE,       /* the pid namespace as which processes are numbered */
	SETTING_PIDNS_INODE,        /* 0: the kernel's first */
	SETTING_LEAF_ONLY,          /* 1: no call chains, only where the sample was taken */
	SETTING_HAS_TASK_REGISTERS, /* 1: the kernel tells a thread's user registers while it runs kernel code
	                               (Linux 5.15) */
	SETTING_WITH_CPU,           /* 1: a row is of one CPU */
	SETTING_CGROUPS,            /* enum cgroups */
	/* Where the kernel's structures have what leads to a thread's control group, of a hierarchy. */
	SETTING_TASK_CSS_SET,
	SETTING_CSS_SET_STATE, /* the state of version 1's controller, or the group of version 2, which begins with its
	                          own */
	SETTING_CSS_CGROUP,
	SETTING_CSS_PARENT,
	SETTING_CGROUP_KERNFS,
	SETTING_KERNFS_ID,
	/* Of time off a CPU. */
	SETTING_SAMPLED_AT,     /* enum sampled_at */
	SETTING_OFF_CPU_PERIOD, /* nanoseconds, below 2^32 */
	SETTING_OFF_CPU_EVENT,
	SETTING_TASK_STATE, /* where the kernel's structure of a thread has what follows */
	SETTING_TASK_PID,   /* and after it the thread group's */
	SETTING_SCHEDULE,   /* address and size of the scheduler's functions that every such call chain begins in;
	                       0: not known */
	SETTING_SCHEDULE_BYTES,
	SETTING_FIRST_TURN, /* the same of the function that a new thread's first turn begins in */
	SETTING_FIRST_TURN_BYTES,
	SETTING_TASK_START,    /* where the structure of a thread has when it began, CLOCK_MONOTONIC */
	SETTING_TASK_QUEUED,   /* where it has how long it has ever waited for a CPU; 0: nowhere */
	SETTING_TASK_SIGNAL,   /* where it has what is of its process */
	SETTING_SIGNAL_LIVE,   /* and where that has how many threads live; 0: not known */
	SETTING_WAKERS,        /* 1: samples of sleep say who ended it */
	SETTING_TYPED_SWITCH,  /* 1: the kernel knows what the addresses at the tracepoint sched_switch are of, so that
	                          the program there may read behind them itself */
	SETTING_TELLS_SWITCH,  /* 1: where programs run after a switch they run after none, too, and are told which */
	SETTING_COPIES_WAKEUP, /* bytes of one CPU's copies of stacks after which user space is woken */
	SETTINGS
};

/* When a program takes a call chain. */
enum sampled_at {
	AT_OVERFLOW, /* of an event */
	AT_SWITCH,   /* in kernel code, when the thread has come back to a CPU */
	AT_WAKING    /* in kernel code, when the thread wakes another that has slept until a sample was due */
};

/* Until it is filled in, a setting is a 64-bit constant with this above and its number below. */
#define SETTING_MARK 0x7d5e7713ULL

#define SETTING(which)                                                                                                 \
	({                                                                                                             \
		__u64 value_;                                                                                          \
                                                                                                                       \
		asm("%0 = %1 ll" : "=r"(value_) : "i"(SETTING_MARK << 32 | (which)));                                  \
		value_;                                                                                                \
	})

#endif
