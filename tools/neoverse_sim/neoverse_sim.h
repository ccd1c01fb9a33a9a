/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/* What a program tells /dev/neoverse_sim: how its code behaves, and which faults to make. */
#ifndef NEOVERSE_SIM_H
#define NEOVERSE_SIM_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define NSIM_MAX_REGIONS 16
#define NSIM_MAX_RATES   120

/* Places a load can be served from, in the order of Arm's common data-source encoding. */
enum nsim_source {
	NSIM_L1,
	NSIM_L2,
	NSIM_PEER_CORE,
	NSIM_LOCAL_CLUSTER,
	NSIM_SYSTEM_CACHE,
	NSIM_PEER_CLUSTER,
	NSIM_REMOTE,
	NSIM_DRAM,
	NSIM_SOURCES
};

struct nsim_rate {
	__u32 event;       /* PMU event number */
	__u32 per_million; /* how far it advances in a million cycles; more than a million is allowed */
};

/* Behaviour of the code between two addresses of an executable, wherever it is loaded. */
struct nsim_region {
	/*
	 * End excluded. Of the calling program: run-time addresses. Of another: as linked, less the address of its
	 * first executable segment.
	 */
	__u64 start, end;
	__u32 source_weight[NSIM_SOURCES]; /* relative frequencies; all zero means L1 */
	__u32 source_cycles[NSIM_SOURCES]; /* total latency of an access served from there */
	__u32 issue_cycles;                /* issue latency of every operation */
	__u32 other_cycles;                /* total latency of what is no load or store */
	__u32 translation_cycles;          /* of an access whose translation was at hand */
	__u32 walk_cycles;                 /* of one that walked the tables */
	__u32 walk_per_million;            /* accesses that walk */
	__u32 mispredict_per_million;      /* branches mispredicted */
	__u32 unretired_per_million;       /* operations speculated and thrown away */
	__s32 executable;                  /* descriptor of another program's file; -1: the calling program */
	__u32 unused;
	__u32 nr_rates;
	struct nsim_rate rates[NSIM_MAX_RATES];
};

/* What really happened in a region while counters or SPE ran: the truth that measurements are compared with. */
struct nsim_truth {
	__u64 start;   /* in: start of the region */
	__u64 cycles;  /* user cycles the core PMU put there, of all CPUs */
	__u64 samples; /* operations SPE sampled there, before its filters */
	__u64 records; /* records SPE wrote for it */
};

enum nsim_fault_kind {
	NSIM_TRUNCATE = 1, /* no room left: TRUNCATED, the event is parked */
	NSIM_LOSE = 2,     /* the hardware lost data: half a record, TRUNCATED | PARTIAL, the event is parked */
	NSIM_GARBAGE = 3,  /* `amount` random bytes instead of a record */
	NSIM_COLLIDE = 4,  /* the next `amount` samples find the one before still in flight */
};

struct nsim_fault {
	__s32 cpu; /* -1: every CPU */
	__u32 kind;
	__u32 after_records; /* records of that CPU to let pass first */
	__u32 amount;
};

#define NSIM_SET_REGION    _IOW('N', 1, struct nsim_region)
#define NSIM_CLEAR_REGIONS _IO('N', 2)
#define NSIM_GET_TRUTH     _IOWR('N', 3, struct nsim_truth)
#define NSIM_INJECT        _IOW('N', 4, struct nsim_fault)

#endif
