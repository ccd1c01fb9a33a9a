// SPDX-License-Identifier: GPL-2.0
/*
 * The core PMU of a Neoverse: its event numbers, six counters and the cycle counter, overflow with skid. While an event
 * counts, a timer with random distances looks where the program is and advances every counter by the time passed, at
 * the rates that the program declared for that code. One cycle is one nanosecond.
 */
#include <linux/hrtimer.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/sched/task_stack.h>
#include <asm/irq_regs.h>

#include "sim.h"

static unsigned int counters = 6;
module_param(counters, uint, 0644);
MODULE_PARM_DESC(counters, "programmable counters to be had (a hypervisor may give fewer than six)");
static bool cycle_counter = true;
module_param(cycle_counter, bool, 0644);
MODULE_PARM_DESC(cycle_counter, "whether the cycle counter is free (the hard-lockup watchdog takes it)");
static bool instruction_counter;
module_param(instruction_counter, bool, 0644);
MODULE_PARM_DESC(instruction_counter, "whether instructions have a counter of their own, too (FEAT_PMUv3_ICNTR)");
static unsigned int tick_ns = 20000;
module_param(tick_ns, uint, 0644);
MODULE_PARM_DESC(tick_ns, "mean distance of the looks at where the program is");
static ushort absent[16];
static unsigned int nr_absent;
module_param_array(absent, ushort, &nr_absent, 0444);
MODULE_PARM_DESC(absent, "events that the core has not: their bits in PMCEID are clear, and they count nothing");
static unsigned int skid_ns;
module_param(skid_ns, uint, 0644);
MODULE_PARM_DESC(skid_ns, "time from an overflow to its interrupt");

#define CPU_CYCLES       0x11
#define INST_RETIRED     0x08
#define SAMPLE_POP       0x4000
#define SAMPLE_COLLISION 0x4003
#define CYCLE_INDEX      31
#define INSTR_INDEX      32
#define INDICES          (INSTR_INDEX + 1)
#define MAX_COUNTERS     31
#define MILLION          1000000ULL
#define SHORTEST_NS      2000

/* What hw_perf_event has no place for. */
struct counter {
	u64 millionths;  /* of an event, not yet counted */
	u64 sample_base; /* SAMPLE_*: the CPU's count when last looked at */
	u64 skid_due_ns; /* an overflow waits for its interrupt; 0: none */
};

struct pmu_cpu {
	struct hrtimer timer;
	struct perf_event *events[INDICES];
	unsigned long used; /* a bit for each counter */
	u64 accounted_ns;   /* until when */
};
static DEFINE_PER_CPU(struct pmu_cpu, pmu_cpus);

struct core {
	const char *name, *pmu_name;
	u64 pmceid[2]; /* implemented events 0x0000-0x003f and 0x4000-0x403f, as PMCEID0/1_EL0 would say */
	unsigned int slots;
};
/* From Arm's telemetry data of each core. */
static const struct core cores[] = {
	{ "n3", "armv8_neoverse_n3", { 0xfefeafff7bff7f3f, 0x770f0ffe7f }, 5 },
	{ "v1", "armv8_neoverse_v1", { 0xfef2ae7f7fff0f3f, 0xa7f }, 8 },
};
static const struct core *this_core;

/* Core PMU drivers are built in, so the kernel does not export what they end an overflow with. */
static int (*overflow)(struct perf_event *event, struct perf_sample_data *data, struct pt_regs *regs);

static int find_overflow(void)
{
	struct kprobe probe = { .symbol_name = "perf_event_overflow" };
	int error = register_kprobe(&probe);

	if (error)
		return error;
	overflow = (void *)probe.addr;
	unregister_kprobe(&probe);
	return 0;
}

static u64 event_code(const struct perf_event *event)
{
	return event->hw.config;
}

static bool is_absent(u64 code)
{
	unsigned int i;

	for (i = 0; i < nr_absent; i++)
		if (absent[i] == code)
			return true;
	return false;
}

/* Events in a million cycles. Code that declares nothing runs one instruction a cycle and does nothing else. */
static u32 rate_of(u64 code, const struct nsim_region *region)
{
	unsigned int i;

	if (code == CPU_CYCLES)
		return MILLION;
	if (is_absent(code))
		return 0;
	for (i = 0; region && i < region->nr_rates; i++)
		if (region->rates[i].event == code)
			return region->rates[i].per_million;
	return code == INST_RETIRED && !region ? MILLION : 0;
}

static bool counts_here(const struct perf_event *event, bool user)
{
	return user ? !event->attr.exclude_user : !event->attr.exclude_kernel;
}

static void advance(struct perf_event *event, u64 whole)
{
	local64_add(whole, &event->count);
	if (is_sampling_event(event))
		local64_sub(whole, &event->hw.period_left);
}

/* Put the time since the last call where the program is now. */
static void account(struct pmu_cpu *cpu, const struct pt_regs *regs)
{
	u64 now = ktime_get_ns(), cycles = now - cpu->accounted_ns;
	bool user = user_mode(regs);
	struct sim_region *region;
	int i;

	cpu->accounted_ns = now;
	if (is_idle_task(current)) /* the clock of a core in WFI stands */
		return;
	rcu_read_lock();
	region = user ? sim_region_at(regs->pc) : NULL;
	if (region)
		atomic64_add(cycles, &region->cycles);
	for_each_set_bit(i, &cpu->used, INDICES)
	{
		struct perf_event *event = cpu->events[i];
		struct counter *counter = event->pmu_private;
		u64 code = event_code(event);

		if (event->hw.state & PERF_HES_STOPPED)
			continue;
		if (code >= SAMPLE_POP && code <= SAMPLE_COLLISION) {
			u64 count = this_cpu_ptr(&sim_sample_counts)->count[code - SAMPLE_POP];

			advance(event, count - counter->sample_base);
			counter->sample_base = count;
		} else if (counts_here(event, user)) {
			counter->millionths += cycles * rate_of(code, region ? &region->is : NULL);
			advance(event, div64_u64(counter->millionths, MILLION));
			counter->millionths %= MILLION;
		}
	}
	rcu_read_unlock();
}

/* The interrupted code, also where the caller is no interrupt: then the program is where it entered the kernel. */
static const struct pt_regs *present_regs(void)
{
	return get_irq_regs() ?: task_pt_regs(current);
}

static void deliver_overflow(struct perf_event *event, struct pt_regs *regs)
{
	struct perf_sample_data data;
	u64 period = event->hw.last_period;

	local64_add(event->hw.sample_period, &event->hw.period_left);
	event->hw.last_period = event->hw.sample_period;
	perf_sample_data_init(&data, 0, period);
	if (overflow(event, &data, regs))
		event->pmu->stop(event, 0);
}

static void deliver_overflows(struct pmu_cpu *cpu, struct pt_regs *regs, u64 now)
{
	int i;

	for_each_set_bit(i, &cpu->used, INDICES)
	{
		struct perf_event *event = cpu->events[i];
		struct counter *counter = event->pmu_private;

		while (is_sampling_event(event) && !(event->hw.state & PERF_HES_STOPPED) &&
		       local64_read(&event->hw.period_left) <= 0) {
			if (skid_ns && !counter->skid_due_ns)
				counter->skid_due_ns = now + skid_ns;
			if (counter->skid_due_ns > now)
				break;
			counter->skid_due_ns = 0;
			deliver_overflow(event, regs);
		}
	}
}

/*
 * The next look: at random, whatever the counters say. A look at the moment of an overflow would find busy code too
 * often: the time since the last look would go to it whole, and code that follows it with fewer events would lose its
 * samples.
 */
static u64 next_look_ns(const struct pmu_cpu *cpu, u64 now)
{
	u64 next = tick_ns / 2 + sim_random_below(tick_ns);
	int i;

	for_each_set_bit(i, &cpu->used, INDICES)
	{
		const struct counter *counter = cpu->events[i]->pmu_private;

		if (counter->skid_due_ns > now)
			next = min(next, counter->skid_due_ns - now);
	}
	return max_t(u64, next, SHORTEST_NS);
}

static enum hrtimer_restart look(struct hrtimer *timer)
{
	struct pmu_cpu *cpu = container_of(timer, struct pmu_cpu, timer);
	struct pt_regs *regs = get_irq_regs();
	u64 now;

	if (!cpu->used)
		return HRTIMER_NORESTART;
	account(cpu, regs);
	now = ktime_get_ns();
	deliver_overflows(cpu, regs, now);
	/* The time of this handler is no program's. */
	cpu->accounted_ns = ktime_get_ns();
	hrtimer_set_expires(timer, ns_to_ktime(cpu->accounted_ns + next_look_ns(cpu, cpu->accounted_ns)));
	return HRTIMER_RESTART;
}

/* --- the PMU --- */

static int map_generic(u64 config)
{
	/* As armv8_pmuv3_perf_map. */
	static const u16 codes[PERF_COUNT_HW_MAX] = {
		[PERF_COUNT_HW_CPU_CYCLES] = CPU_CYCLES,
		[PERF_COUNT_HW_INSTRUCTIONS] = INST_RETIRED,
		[PERF_COUNT_HW_CACHE_REFERENCES] = 0x04,
		[PERF_COUNT_HW_CACHE_MISSES] = 0x03,
		[PERF_COUNT_HW_BRANCH_INSTRUCTIONS] = 0x21,
		[PERF_COUNT_HW_BRANCH_MISSES] = 0x10,
		[PERF_COUNT_HW_BUS_CYCLES] = 0x1d,
		[PERF_COUNT_HW_STALLED_CYCLES_FRONTEND] = 0x23,
		[PERF_COUNT_HW_STALLED_CYCLES_BACKEND] = 0x24,
	};

	return config < PERF_COUNT_HW_MAX && codes[config] ? codes[config] : -ENOENT;
}

static int map_cache(u64 config)
{
	/* cache | operation << 8 | result << 16, those of armv8_pmuv3_perf_cache_map that both cores have */
	switch (config) {
	case PERF_COUNT_HW_CACHE_L1D: return 0x04;
	case PERF_COUNT_HW_CACHE_L1D | PERF_COUNT_HW_CACHE_RESULT_MISS << 16: return 0x03;
	case PERF_COUNT_HW_CACHE_L1I: return 0x14;
	case PERF_COUNT_HW_CACHE_L1I | PERF_COUNT_HW_CACHE_RESULT_MISS << 16: return 0x01;
	case PERF_COUNT_HW_CACHE_LL: return 0x36;
	case PERF_COUNT_HW_CACHE_LL | PERF_COUNT_HW_CACHE_RESULT_MISS << 16: return 0x37;
	case PERF_COUNT_HW_CACHE_DTLB: return 0x25;
	case PERF_COUNT_HW_CACHE_DTLB | PERF_COUNT_HW_CACHE_RESULT_MISS << 16: return 0x05;
	case PERF_COUNT_HW_CACHE_ITLB: return 0x26;
	case PERF_COUNT_HW_CACHE_ITLB | PERF_COUNT_HW_CACHE_RESULT_MISS << 16: return 0x02;
	case PERF_COUNT_HW_CACHE_BPU: return 0x21;
	case PERF_COUNT_HW_CACHE_BPU | PERF_COUNT_HW_CACHE_RESULT_MISS << 16: return 0x10;
	}
	return -ENOENT;
}

static int event_number(const struct perf_event *event)
{
	u64 config = event->attr.config;

	if (event->attr.type == PERF_TYPE_HARDWARE)
		return map_generic(config & U32_MAX);
	if (event->attr.type == PERF_TYPE_HW_CACHE)
		return map_cache(config & U32_MAX);
	if (event->attr.type == PERF_TYPE_RAW || event->attr.type == event->pmu->type)
		return config & 0xffff;
	return -ENOENT;
}

/* A free counter for this event, or -EAGAIN: cycles and instructions prefer their own, all else a programmable one. */
static int free_index(unsigned long used, u64 code)
{
	unsigned int i, available = min_t(unsigned int, counters, MAX_COUNTERS);

	if (code == CPU_CYCLES && cycle_counter && !(used & BIT(CYCLE_INDEX)))
		return CYCLE_INDEX;
	if (code == INST_RETIRED && instruction_counter && !(used & BIT(INSTR_INDEX)))
		return INSTR_INDEX;
	i = find_first_zero_bit(&used, available);
	return i < available ? i : -EAGAIN;
}

static bool fits(struct perf_event *member, struct pmu *pmu, unsigned long *used)
{
	int index;

	if (is_software_event(member))
		return true;
	/* Two hardware PMUs cannot be scheduled as one group. */
	if (member->pmu != pmu)
		return false;
	if (member->state < PERF_EVENT_STATE_OFF ||
	    (member->state == PERF_EVENT_STATE_OFF && !member->attr.enable_on_exec))
		return true;
	index = free_index(*used, event_code(member));
	if (index < 0)
		return false;
	*used |= BIT(index);
	return true;
}

/* As the Arm driver: a group is tried on an empty PMU, so one that others' events crowd out opens and never runs. */
static bool group_fits(struct perf_event *event)
{
	struct perf_event *leader = event->group_leader, *sibling;
	unsigned long used = 0;

	if (!fits(leader, event->pmu, &used))
		return false;
	if (event == leader)
		return true;
	for_each_sibling_event(sibling, leader) if (!fits(sibling, event->pmu, &used)) return false;
	return free_index(used, event_code(event)) >= 0;
}

static void destroy(struct perf_event *event)
{
	kfree(event->pmu_private);
}

static int core_event_init(struct perf_event *event)
{
	int number = event_number(event);

	if (number < 0)
		return number;
	if (has_branch_stack(event))
		return -EOPNOTSUPP;
	event->hw.config = number;
	if (!group_fits(event))
		return -EINVAL;
	event->pmu_private = kzalloc(sizeof(struct counter), GFP_KERNEL);
	if (!event->pmu_private)
		return -ENOMEM;
	event->destroy = destroy;
	if (!is_sampling_event(event)) {
		event->hw.sample_period = U64_MAX >> 1;
		event->hw.last_period = event->hw.sample_period;
	}
	local64_set(&event->hw.period_left, event->hw.sample_period);
	return 0;
}

static void core_start(struct perf_event *event, int flags)
{
	struct pmu_cpu *cpu = this_cpu_ptr(&pmu_cpus);
	struct counter *counter = event->pmu_private;
	s64 left;

	if (event->hw.state & PERF_HES_STOPPED) {
		account(cpu, present_regs()); /* the others' time so far is not this event's */
		counter->sample_base = this_cpu_ptr(&sim_sample_counts)->count[event_code(event) & 3];
		event->hw.state = 0;
	}
	/* Zero, or more than a period: a new one has just been set, by frequency mode or PERF_EVENT_IOC_PERIOD. */
	left = local64_read(&event->hw.period_left);
	if (!left || left > (s64)event->hw.sample_period) {
		local64_set(&event->hw.period_left, event->hw.sample_period);
		event->hw.last_period = event->hw.sample_period;
	}
}

static void core_stop(struct perf_event *event, int flags)
{
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	account(this_cpu_ptr(&pmu_cpus), present_regs());
	event->hw.state |= PERF_HES_STOPPED | PERF_HES_UPTODATE;
}

static int core_add(struct perf_event *event, int flags)
{
	struct pmu_cpu *cpu = this_cpu_ptr(&pmu_cpus);
	int index = free_index(cpu->used, event_code(event));

	if (index < 0)
		return index;
	if (!cpu->used) {
		cpu->accounted_ns = ktime_get_ns();
		hrtimer_start(&cpu->timer, ns_to_ktime(SHORTEST_NS + sim_random_below(tick_ns)),
		              HRTIMER_MODE_REL_PINNED_HARD);
	}
	event->hw.idx = index;
	event->hw.state = PERF_HES_STOPPED | PERF_HES_UPTODATE;
	if (flags & PERF_EF_START)
		core_start(event, PERF_EF_RELOAD);
	cpu->events[index] = event;
	cpu->used |= BIT(index);
	perf_event_update_userpage(event);
	return 0;
}

static void core_del(struct perf_event *event, int flags)
{
	struct pmu_cpu *cpu = this_cpu_ptr(&pmu_cpus);

	core_stop(event, PERF_EF_UPDATE);
	cpu->used &= ~BIT(event->hw.idx);
	cpu->events[event->hw.idx] = NULL;
	if (!cpu->used)
		hrtimer_try_to_cancel(&cpu->timer);
	perf_event_update_userpage(event);
}

static void core_read(struct perf_event *event)
{
	if (!(event->hw.state & PERF_HES_STOPPED))
		account(this_cpu_ptr(&pmu_cpus), present_regs());
}

PMU_FORMAT_ATTR(event, "config:0-15");
static struct attribute *format_attributes[] = { &format_attr_event.attr, NULL };
static const struct attribute_group format_group = { .name = "format", .attrs = format_attributes };

static ssize_t slots_show(struct device *device, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "0x%08x\n", this_core->slots);
}
static DEVICE_ATTR_RO(slots);
static struct attribute *capability_attributes[] = { &dev_attr_slots.attr, NULL };
static const struct attribute_group capability_group = { .name = "caps", .attrs = capability_attributes };

static ssize_t cpus_show(struct device *device, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%*pbl\n", cpumask_pr_args(cpu_online_mask));
}
static DEVICE_ATTR_RO(cpus);
static struct attribute *device_attributes[] = { &dev_attr_cpus.attr, NULL };
static const struct attribute_group device_group = { .attrs = device_attributes };

static ssize_t event_code_show(struct device *device, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "event=0x%04llx\n", container_of(attribute, struct perf_pmu_events_attr, attr)->id);
}

#define EVENT(event_name, number)                                                                                      \
	&((struct perf_pmu_events_attr){ .attr = __ATTR(event_name, 0444, event_code_show, NULL), .id = number })      \
		 .attr.attr

/* Linux's names; a core shows those that it implements. */
static struct attribute *event_attributes[] = { EVENT(sw_incr, 0x00),
	                                        EVENT(l1i_cache_refill, 0x01),
	                                        EVENT(l1i_tlb_refill, 0x02),
	                                        EVENT(l1d_cache_refill, 0x03),
	                                        EVENT(l1d_cache, 0x04),
	                                        EVENT(l1d_tlb_refill, 0x05),
	                                        EVENT(ld_retired, 0x06),
	                                        EVENT(st_retired, 0x07),
	                                        EVENT(inst_retired, 0x08),
	                                        EVENT(exc_taken, 0x09),
	                                        EVENT(exc_return, 0x0a),
	                                        EVENT(cid_write_retired, 0x0b),
	                                        EVENT(pc_write_retired, 0x0c),
	                                        EVENT(br_immed_retired, 0x0d),
	                                        EVENT(br_return_retired, 0x0e),
	                                        EVENT(unaligned_ldst_retired, 0x0f),
	                                        EVENT(br_mis_pred, 0x10),
	                                        EVENT(cpu_cycles, 0x11),
	                                        EVENT(br_pred, 0x12),
	                                        EVENT(mem_access, 0x13),
	                                        EVENT(l1i_cache, 0x14),
	                                        EVENT(l1d_cache_wb, 0x15),
	                                        EVENT(l2d_cache, 0x16),
	                                        EVENT(l2d_cache_refill, 0x17),
	                                        EVENT(l2d_cache_wb, 0x18),
	                                        EVENT(bus_access, 0x19),
	                                        EVENT(memory_error, 0x1a),
	                                        EVENT(inst_spec, 0x1b),
	                                        EVENT(ttbr_write_retired, 0x1c),
	                                        EVENT(bus_cycles, 0x1d),
	                                        EVENT(l1d_cache_allocate, 0x1f),
	                                        EVENT(l2d_cache_allocate, 0x20),
	                                        EVENT(br_retired, 0x21),
	                                        EVENT(br_mis_pred_retired, 0x22),
	                                        EVENT(stall_frontend, 0x23),
	                                        EVENT(stall_backend, 0x24),
	                                        EVENT(l1d_tlb, 0x25),
	                                        EVENT(l1i_tlb, 0x26),
	                                        EVENT(l2i_cache, 0x27),
	                                        EVENT(l2i_cache_refill, 0x28),
	                                        EVENT(l3d_cache_allocate, 0x29),
	                                        EVENT(l3d_cache_refill, 0x2a),
	                                        EVENT(l3d_cache, 0x2b),
	                                        EVENT(l3d_cache_wb, 0x2c),
	                                        EVENT(l2d_tlb_refill, 0x2d),
	                                        EVENT(l2i_tlb_refill, 0x2e),
	                                        EVENT(l2d_tlb, 0x2f),
	                                        EVENT(l2i_tlb, 0x30),
	                                        EVENT(remote_access, 0x31),
	                                        EVENT(ll_cache, 0x32),
	                                        EVENT(ll_cache_miss, 0x33),
	                                        EVENT(dtlb_walk, 0x34),
	                                        EVENT(itlb_walk, 0x35),
	                                        EVENT(ll_cache_rd, 0x36),
	                                        EVENT(ll_cache_miss_rd, 0x37),
	                                        EVENT(remote_access_rd, 0x38),
	                                        EVENT(l1d_cache_lmiss_rd, 0x39),
	                                        EVENT(op_retired, 0x3a),
	                                        EVENT(op_spec, 0x3b),
	                                        EVENT(stall, 0x3c),
	                                        EVENT(stall_slot_backend, 0x3d),
	                                        EVENT(stall_slot_frontend, 0x3e),
	                                        EVENT(stall_slot, 0x3f),
	                                        EVENT(sample_pop, 0x4000),
	                                        EVENT(sample_feed, 0x4001),
	                                        EVENT(sample_filtrate, 0x4002),
	                                        EVENT(sample_collision, 0x4003),
	                                        EVENT(cnt_cycles, 0x4004),
	                                        EVENT(stall_backend_mem, 0x4005),
	                                        EVENT(l1i_cache_lmiss, 0x4006),
	                                        EVENT(l2d_cache_lmiss_rd, 0x4009),
	                                        EVENT(l2i_cache_lmiss, 0x400a),
	                                        EVENT(l3d_cache_lmiss_rd, 0x400b),
	                                        EVENT(trb_wrap, 0x400c),
	                                        EVENT(pmu_ovfs, 0x400d),
	                                        EVENT(trb_trig, 0x400e),
	                                        EVENT(pmu_hovfs, 0x400f),
	                                        EVENT(trcextout0, 0x4010),
	                                        EVENT(trcextout1, 0x4011),
	                                        EVENT(trcextout2, 0x4012),
	                                        EVENT(trcextout3, 0x4013),
	                                        EVENT(cti_trigout4, 0x4018),
	                                        EVENT(cti_trigout5, 0x4019),
	                                        EVENT(cti_trigout6, 0x401a),
	                                        EVENT(cti_trigout7, 0x401b),
	                                        EVENT(ldst_align_lat, 0x4020),
	                                        EVENT(ld_align_lat, 0x4021),
	                                        EVENT(st_align_lat, 0x4022),
	                                        EVENT(mem_access_checked, 0x4024),
	                                        EVENT(mem_access_checked_rd, 0x4025),
	                                        EVENT(mem_access_checked_wr, 0x4026),
	                                        NULL };

static umode_t event_visible(struct kobject *kobject, struct attribute *attribute, int unused)
{
	struct device_attribute *device = container_of(attribute, struct device_attribute, attr);
	u64 code = container_of(device, struct perf_pmu_events_attr, attr)->id;

	return !is_absent(code) && (this_core->pmceid[code >> 14 & 1] >> (code & 63)) & 1 ? attribute->mode : 0;
}
static const struct attribute_group event_group = { .name = "events",
	                                            .attrs = event_attributes,
	                                            .is_visible = event_visible };
static const struct attribute_group *core_groups[] = { &format_group, &event_group, &capability_group, &device_group,
	                                               NULL };

static struct pmu core_pmu = {
	.module = THIS_MODULE,
	.attr_groups = core_groups,
#ifdef PERF_PMU_CAP_HETEROGENEOUS_CPUS
	/* Before 6.2 threads have one hardware PMU beside those that say this, as the machine's own does. */
	.capabilities = PERF_PMU_CAP_HETEROGENEOUS_CPUS,
#endif
	.task_ctx_nr = perf_hw_context,
	.event_init = core_event_init,
	.add = core_add,
	.del = core_del,
	.start = core_start,
	.stop = core_stop,
	.read = core_read,
};

int sim_pmu_register(const char *name)
{
	int cpu, i, error = find_overflow();

	if (error)
		return error;
	for (i = 0; i < ARRAY_SIZE(cores); i++)
		if (!strcmp(cores[i].name, name))
			this_core = &cores[i];
	if (!this_core) {
		pr_err("neoverse_sim: core=%s is neither n3 nor v1\n", name);
		return -EINVAL;
	}
	for_each_possible_cpu(cpu)
	{
		struct hrtimer *timer = &per_cpu(pmu_cpus, cpu).timer;

		hrtimer_setup(timer, look, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	}
	/* With this type it is found before the PMU that the machine came with. */
	return perf_pmu_register(&core_pmu, this_core->pmu_name, PERF_TYPE_RAW);
}

void sim_pmu_unregister(void)
{
	perf_pmu_unregister(&core_pmu);
}
