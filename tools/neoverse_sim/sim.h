/* SPDX-License-Identifier: GPL-2.0 */
/* What the parts of the module share. */
#ifndef SIM_H
#define SIM_H

#include <linux/hrtimer.h>
#include <linux/perf_event.h>
#include <linux/percpu.h>
#include <linux/types.h>
#include <linux/version.h>

#include "neoverse_sim.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 13, 0)
static inline void hrtimer_setup(struct hrtimer *timer, enum hrtimer_restart (*function)(struct hrtimer *),
                                 clockid_t clock, enum hrtimer_mode mode)
{
	hrtimer_init(timer, clock, mode);
	timer->function = function;
}
#endif

struct sim_region {
	struct nsim_region is;
	struct inode *executable; /* held */
	u64 start, end;           /* from where the program's code starts: position-independent ones move */
	atomic64_t cycles, samples, records;
};

/* The region that an address of the current program is in, or NULL. Call under rcu_read_lock(). */
struct sim_region *sim_region_at(u64 address);

/* True once in `per_million` of a million calls. */
bool sim_happens(u32 per_million);
u32 sim_random_below(u32 bound);

/* The SAMPLE_POP, SAMPLE_FEED, SAMPLE_FILTRATE and SAMPLE_COLLISION events of this CPU. */
struct sim_sample_counts {
	u64 count[4];
};
DECLARE_PER_CPU(struct sim_sample_counts, sim_sample_counts);

/* Operation classes as the operation packet's header numbers them. */
enum sim_class { SIM_OTHER, SIM_LOAD_STORE, SIM_BRANCH };

struct sim_operation {
	enum sim_class class;
	u8 subclass;      /* payload of the operation packet */
	bool load, store; /* for the filters; an atomic that returns a value is both */
	bool conditional, not_taken;
	u64 address; /* data address or branch target */
	u32 size_bytes;
};

/* Decode the instruction that `regs` is about to execute. */
struct sim_operation sim_decode(u32 instruction, const struct pt_regs *regs);

int sim_spe_register(void);
void sim_spe_unregister(void);
int sim_spe_inject(const struct nsim_fault *fault);

int sim_pmu_register(const char *core);
void sim_pmu_unregister(void);

#endif
