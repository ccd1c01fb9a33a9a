// SPDX-License-Identifier: GPL-2.0
/* A simulated Neoverse: SPE and core PMU whose truth a test program declares through /dev/neoverse_sim. */
#include <linux/file.h>
#include <linux/fs.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/prandom.h>
#include <linux/sched/mm.h>
#include <linux/uaccess.h>

#include "sim.h"

static char *core = "n3";
module_param(core, charp, 0444);
MODULE_PARM_DESC(core, "which Neoverse the core PMU is: n3 or v1");
static bool spe = true;
module_param(spe, bool, 0444);
MODULE_PARM_DESC(spe, "register arm_spe_0");
static bool pmu = true;
module_param(pmu, bool, 0444);
MODULE_PARM_DESC(pmu, "register the core PMU; while it is there it serves PERF_TYPE_HARDWARE and PERF_TYPE_RAW");
static unsigned int seed = 1;
module_param(seed, uint, 0444);
MODULE_PARM_DESC(seed, "start of the pseudo-random draws");

DEFINE_PER_CPU(struct sim_sample_counts, sim_sample_counts);
static DEFINE_PER_CPU(struct rnd_state, draws);

/* Regions are only ever added until the table is cleared, which nobody does while counters run. */
static struct sim_region *regions;
static unsigned int nr_regions;
static DEFINE_MUTEX(regions_lock);

u32 sim_random_below(u32 bound)
{
	return bound ? ((u64)prandom_u32_state(this_cpu_ptr(&draws)) * bound) >> 32 : 0;
}

bool sim_happens(u32 per_million)
{
	return per_million && sim_random_below(1000000) < per_million;
}

static struct inode *executable_of_current(void)
{
	struct file *file = current->mm ? rcu_dereference(current->mm->exe_file) : NULL;

	return file ? file_inode(file) : NULL;
}

/* The one that was declared last: a program may behave otherwise from some moment on. */
struct sim_region *sim_region_at(u64 address)
{
	struct inode *executable = executable_of_current();
	unsigned int count = smp_load_acquire(&nr_regions);

	if (!executable)
		return NULL;
	address -= current->mm->start_code;
	while (count--)
		if (regions[count].executable == executable && address >= regions[count].start &&
		    address < regions[count].end)
			return &regions[count];
	return NULL;
}

/* Whose code a declared region is, held, and where; an error if the descriptor is none. */
static int place_region(struct sim_region *region)
{
	u64 code = 0;

	if (region->is.executable < 0) {
		rcu_read_lock();
		region->executable = igrab(executable_of_current());
		rcu_read_unlock();
		code = current->mm->start_code;
	} else {
		struct file *file = fget(region->is.executable);

		if (!file)
			return -EBADF;
		region->executable = igrab(file_inode(file));
		fput(file);
	}
	region->start = region->is.start - code;
	region->end = region->is.end - code;
	return region->executable ? 0 : -ENOENT;
}

static int set_region(const void __user *argument)
{
	struct sim_region *region;
	int error = 0;

	mutex_lock(&regions_lock);
	region = &regions[nr_regions];
	if (nr_regions == NSIM_MAX_REGIONS) {
		error = -ENOSPC;
	} else if (copy_from_user(&region->is, argument, sizeof(region->is))) {
		error = -EFAULT;
	} else if (region->is.nr_rates > NSIM_MAX_RATES || region->is.start >= region->is.end) {
		error = -EINVAL;
	} else {
		atomic64_set(&region->cycles, 0);
		atomic64_set(&region->samples, 0);
		atomic64_set(&region->records, 0);
		error = place_region(region);
		if (!error)
			smp_store_release(&nr_regions, nr_regions + 1);
	}
	mutex_unlock(&regions_lock);
	return error;
}

static void clear_regions(void)
{
	unsigned int i, count;

	mutex_lock(&regions_lock);
	count = nr_regions;
	smp_store_release(&nr_regions, 0);
	synchronize_rcu(); /* interrupt handlers look regions up under RCU */
	for (i = 0; i < count; i++)
		iput(regions[i].executable);
	mutex_unlock(&regions_lock);
}

/*
 * Regions are named by their start, and what was declared again counts together; a test reads the truth after the
 * program is gone, so any program may ask.
 */
static int get_truth(void __user *argument)
{
	struct nsim_truth truth;
	int error = -ENOENT;
	unsigned int i;

	if (copy_from_user(&truth, argument, sizeof(truth)))
		return -EFAULT;
	truth.cycles = truth.samples = truth.records = 0;
	mutex_lock(&regions_lock);
	for (i = 0; i < nr_regions; i++) {
		if (regions[i].is.start != truth.start)
			continue;
		truth.cycles += atomic64_read(&regions[i].cycles);
		truth.samples += atomic64_read(&regions[i].samples);
		truth.records += atomic64_read(&regions[i].records);
		error = 0;
	}
	mutex_unlock(&regions_lock);
	if (!error && copy_to_user(argument, &truth, sizeof(truth)))
		error = -EFAULT;
	return error;
}

static long sim_ioctl(struct file *file, unsigned int command, unsigned long argument)
{
	void __user *pointer = (void __user *)argument;
	struct nsim_fault fault;

	switch (command) {
	case NSIM_SET_REGION: return set_region(pointer);
	case NSIM_CLEAR_REGIONS: clear_regions(); return 0;
	case NSIM_GET_TRUTH: return get_truth(pointer);
	case NSIM_INJECT:
		if (copy_from_user(&fault, pointer, sizeof(fault)))
			return -EFAULT;
		return spe ? sim_spe_inject(&fault) : -ENODEV;
	}
	return -ENOTTY;
}

static const struct file_operations sim_fops = {
	.owner = THIS_MODULE,
	.unlocked_ioctl = sim_ioctl,
};

static struct miscdevice sim_device = {
	.minor = MISC_DYNAMIC_MINOR,
	.name = "neoverse_sim",
	.fops = &sim_fops,
	.mode = 0666, /* a test's ordinary user declares regions too */
};

static int __init sim_init(void)
{
	int cpu, error;

	regions = kvcalloc(NSIM_MAX_REGIONS, sizeof(*regions), GFP_KERNEL);
	if (!regions)
		return -ENOMEM;
	for_each_possible_cpu(cpu) prandom_seed_state(per_cpu_ptr(&draws, cpu), seed + ((u64)cpu << 32));
	error = misc_register(&sim_device);
	if (error)
		goto free_regions;
	error = spe ? sim_spe_register() : 0;
	if (error)
		goto remove_device;
	error = pmu ? sim_pmu_register(core) : 0;
	if (!error)
		return 0;
	if (spe)
		sim_spe_unregister();
remove_device:
	misc_deregister(&sim_device);
free_regions:
	kvfree(regions);
	return error;
}

static void __exit sim_exit(void)
{
	if (pmu)
		sim_pmu_unregister();
	if (spe)
		sim_spe_unregister();
	misc_deregister(&sim_device);
	clear_regions();
	kvfree(regions);
}

module_init(sim_init);
module_exit(sim_exit);
MODULE_DESCRIPTION("Simulated Neoverse SPE and core PMU with declared truth");
MODULE_LICENSE("GPL");
