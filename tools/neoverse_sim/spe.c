// SPDX-License-Identifier: GPL-2.0
/*
 * arm_spe_0: a timer stands for the interval counter, the interrupted instruction for the sampled operation; what the
 * buffer does from there on (watermark, full buffer, padding, truncation, parking) follows drivers/perf/arm_spe_pmu.c.
 */
#include <linux/capability.h>
#include <linux/circ_buf.h>
#include <linux/cpumask.h>
#include <linux/hrtimer.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <asm/irq_regs.h>
#include <asm/sysreg.h>

#include "sim.h"

#define RECORD_BYTES 64
#define COUNTER_MAX  0xfff /* 12-bit counters */
#define MIN_INTERVAL 1024
#define MAX_INTERVAL 0xffffff00
#define RETRY_NS     5000 /* when the sample fell where profiling is off */
#define SHORTEST_NS  1000

/* perf_event_attr.config */
#define TS_ENABLE     BIT_ULL(0)
#define PA_ENABLE     BIT_ULL(1)
#define PCT_ENABLE    BIT_ULL(2)
#define JITTER        BIT_ULL(16)
#define BRANCH_FILTER BIT_ULL(32)
#define LOAD_FILTER   BIT_ULL(33)
#define STORE_FILTER  BIT_ULL(34)
#define DISCARD       BIT_ULL(35)

/* Events packet */
#define EV_RETIRED    BIT_ULL(1)
#define EV_L1D_ACCESS BIT_ULL(2)
#define EV_L1D_REFILL BIT_ULL(3)
#define EV_TLB_ACCESS BIT_ULL(4)
#define EV_TLB_REFILL BIT_ULL(5)
#define EV_NOT_TAKEN  BIT_ULL(6)
#define EV_MISPRED    BIT_ULL(7)
#define EV_LLC_ACCESS BIT_ULL(8)
#define EV_LLC_REFILL BIT_ULL(9)
#define EV_REMOTE     BIT_ULL(10)
/* What an SPEv1p2 core can filter by: bits 1, 3, 5, 7; 11, 17, 18 since v1p1; 6 since v1p2. */
#define FILTERABLE                                                                                                     \
	(EV_RETIRED | EV_L1D_REFILL | EV_TLB_REFILL | EV_NOT_TAKEN | EV_MISPRED | BIT_ULL(11) | BIT_ULL(17) |          \
	 BIT_ULL(18))

static bool context_packets = IS_ENABLED(CONFIG_PID_IN_CONTEXTIDR);
module_param(context_packets, bool, 0444);
MODULE_PARM_DESC(context_packets,
                 "whether records name their thread, as the driver has it where the kernel is built so");

static const u8 source_code[NSIM_SOURCES] = { 0x0, 0x8, 0x9, 0xa, 0xb, 0xc, 0xd, 0xe };

struct spe_buffer {
	void *base;
	unsigned int nr_pages;
	bool snapshot;
};

/* One CPU's SPE: the registers that matter, and what the driver keeps beside them. */
struct spe_cpu {
	struct hrtimer timer;
	struct perf_event *event;
	struct perf_output_handle handle;
	u64 pointer, limit;       /* offsets in the buffer; limit 0: writing is off */
	u64 in_flight_until;      /* operations, on the population counter */
	bool collided, lost_data; /* PMBSR.COLL, PMBSR.DL */
	struct nsim_fault fault;
};
static DEFINE_PER_CPU(struct spe_cpu, spe_cpus);
static DEFINE_RAW_SPINLOCK(fault_lock);

/* --- the buffer, as the driver manages it --- */

static u64 buffer_bytes(const struct spe_buffer *buffer)
{
	return (u64)buffer->nr_pages << PAGE_SHIFT;
}

static void pad(struct spe_cpu *spe, const struct spe_buffer *buffer, u64 bytes)
{
	u64 at = spe->handle.head & (buffer_bytes(buffer) - 1);

	memset(buffer->base + at, 0, bytes);
	perf_aux_output_skip(&spe->handle, bytes);
}

/* Where writing must stop; 0 if there is no room (then the span has been ended as truncated). */
static u64 next_limit_full_trace(struct spe_cpu *spe, const struct spe_buffer *buffer)
{
	struct perf_output_handle *handle = &spe->handle;
	u64 size = buffer_bytes(buffer), limit = size;
	u64 head = handle->head & (size - 1), tail, wakeup;
	u64 misaligned = head & (RECORD_BYTES - 1); /* after half a record */

	if (misaligned && handle->size) {
		pad(spe, buffer, min_t(u64, RECORD_BYTES - misaligned, handle->size));
		head = handle->head & (size - 1);
	}
	if (handle->size) {
		tail = (handle->head + handle->size) & (size - 1);
		wakeup = handle->wakeup & (size - 1);
		if (head < tail)
			limit = round_down(tail, PAGE_SIZE);
		if (handle->wakeup < handle->head + handle->size && head <= wakeup)
			limit = min(limit, round_up(wakeup, PAGE_SIZE));
		if (limit > head)
			return limit;
		pad(spe, buffer, handle->size);
	}
	perf_aux_output_flag(handle, PERF_AUX_FLAG_TRUNCATED);
	perf_aux_output_end(handle, 0);
	return 0;
}

static u64 next_limit(struct spe_cpu *spe, const struct spe_buffer *buffer)
{
	u64 size = buffer_bytes(buffer), head, limit;

	if (buffer->snapshot) {
		head = spe->handle.head & (size - 1);
		limit = head < size / 2 ? size / 2 : size;
		if (limit - head < RECORD_BYTES) {
			memset(buffer->base + head, 0, limit - head);
			spe->handle.head = limit == size ? 0 : limit;
			limit = spe->handle.head < size / 2 ? size / 2 : size;
		}
		return limit;
	}
	limit = next_limit_full_trace(spe, buffer);
	/* A record must fit whole: what is too short for one is filled and given away. */
	if (limit && limit - (spe->handle.head & (size - 1)) < RECORD_BYTES) {
		pad(spe, buffer, limit - (spe->handle.head & (size - 1)));
		limit = next_limit_full_trace(spe, buffer);
	}
	return limit;
}

static void begin_span(struct spe_cpu *spe, struct perf_event *event)
{
	struct spe_buffer *buffer = perf_aux_output_begin(&spe->handle, event);

	spe->limit = 0;
	if (!buffer) {
		event->hw.state |= PERF_HES_STOPPED;
		return;
	}
	spe->limit = next_limit(spe, buffer);
	spe->pointer = spe->handle.head & (buffer_bytes(buffer) - 1);
}

static void end_span(struct spe_cpu *spe)
{
	struct spe_buffer *buffer = perf_get_aux(&spe->handle);
	u64 written = spe->pointer - (spe->handle.head & (buffer_bytes(buffer) - 1));

	if (buffer->snapshot)
		spe->handle.head = spe->pointer;
	if (spe->collided)
		perf_aux_output_flag(&spe->handle, PERF_AUX_FLAG_COLLISION);
	if (spe->lost_data)
		perf_aux_output_flag(&spe->handle, PERF_AUX_FLAG_TRUNCATED | PERF_AUX_FLAG_PARTIAL);
	spe->collided = spe->lost_data = false;
	spe->limit = 0;
	perf_aux_output_end(&spe->handle, written);
}

/* The buffer management interrupt. A truncated span leaves the event parked: perf core disables it. */
static void buffer_interrupt(struct spe_cpu *spe)
{
	bool truncated = spe->lost_data || (spe->handle.aux_flags & PERF_AUX_FLAG_TRUNCATED);

	end_span(spe);
	if (!truncated)
		begin_span(spe, spe->event);
}

static void write_bytes(struct spe_cpu *spe, const void *bytes, u64 count)
{
	struct spe_buffer *buffer = perf_get_aux(&spe->handle);

	memcpy(buffer->base + spe->pointer, bytes, count);
	spe->pointer += count;
	if (spe->pointer + RECORD_BYTES > spe->limit)
		buffer_interrupt(spe);
}

/* --- one sample --- */

struct sample {
	struct sim_operation operation;
	u64 pc, events, physical;
	u32 total, issue, translation;
	enum nsim_source source;
	bool kernel, has_physical;
};

static enum nsim_source draw_source(const struct nsim_region *region)
{
	u32 sum = 0, draw;
	int i;

	for (i = 0; i < NSIM_SOURCES; i++)
		sum += region->source_weight[i];
	draw = sim_random_below(sum);
	for (i = 0; sum && i < NSIM_SOURCES; i++) {
		if (draw < region->source_weight[i])
			return i;
		draw -= region->source_weight[i];
	}
	return NSIM_L1;
}

/* Translate as the core would for this access; false if it faults. */
static bool translate(u64 address, bool kernel, u64 *physical)
{
	u64 result;

	if (kernel)
		asm volatile("at s1e1r, %0" : : "r"(address));
	else
		asm volatile("at s1e0r, %0" : : "r"(address));
	isb();
	result = read_sysreg(par_el1);
	if (result & 1)
		return false;
	*physical = (result & GENMASK_ULL(47, 12)) | (address & (PAGE_SIZE - 1));
	return true;
}

static void draw_memory(struct sample *sample, const struct nsim_region *region)
{
	bool walks = sim_happens(region->walk_per_million);

	sample->source = draw_source(region);
	sample->translation = walks ? region->walk_cycles : region->translation_cycles;
	sample->total = region->source_cycles[sample->source] + (walks ? region->walk_cycles : 0);
	sample->events |= EV_L1D_ACCESS | EV_TLB_ACCESS | (walks ? EV_TLB_REFILL : 0);
	if (sample->source != NSIM_L1)
		sample->events |= EV_L1D_REFILL;
	if (sample->source >= NSIM_SYSTEM_CACHE)
		sample->events |= EV_LLC_ACCESS;
	if (sample->source >= NSIM_REMOTE)
		sample->events |= EV_LLC_REFILL;
	if (sample->source == NSIM_REMOTE)
		sample->events |= EV_REMOTE;
}

static void take_sample(struct sample *sample, const struct pt_regs *regs, const struct nsim_region *region)
{
	static const struct nsim_region nothing_declared = { .source_cycles = { 4 },
		                                             .issue_cycles = 1,
		                                             .other_cycles = 2 };
	u32 instruction = 0;

	memset(sample, 0, sizeof(*sample));
	if (!region)
		region = &nothing_declared;
	sample->pc = regs->pc;
	sample->kernel = !user_mode(regs);
	if (sample->kernel)
		copy_from_kernel_nofault(&instruction, (void *)sample->pc, sizeof(instruction));
	else
		copy_from_user_nofault(&instruction, (void __user *)sample->pc, sizeof(instruction));
	sample->operation = sim_decode(le32_to_cpu((__force __le32)instruction), regs);
	sample->issue = region->issue_cycles;
	sample->total = region->other_cycles;
	if (sample->operation.class == SIM_LOAD_STORE)
		draw_memory(sample, region);
	if (sample->operation.not_taken)
		sample->events |= EV_NOT_TAKEN;
	if (sample->operation.class == SIM_BRANCH && sim_happens(region->mispredict_per_million))
		sample->events |= EV_MISPRED;
	if (!sim_happens(region->unretired_per_million))
		sample->events |= EV_RETIRED;
	sample->total = min_t(u32, sample->total + sample->issue, COUNTER_MAX);
}

/* Events that a record must not have; perf_event_attr has a field for them since Linux 6.3. */
static u64 unwanted_events(const struct perf_event_attr *attr)
{
#ifdef PERF_ATTR_SIZE_VER8
	return attr->config3;
#else
	return 0;
#endif
}

static bool passes_filters(const struct perf_event_attr *attr, const struct sample *sample)
{
	const struct sim_operation *op = &sample->operation;
	u64 types = attr->config & (BRANCH_FILTER | LOAD_FILTER | STORE_FILTER);
	u64 is = (op->class == SIM_BRANCH ? BRANCH_FILTER : 0) | (op->load ? LOAD_FILTER : 0) |
	         (op->store ? STORE_FILTER : 0);

	if (types && !(types & is))
		return false;
	if ((sample->events & attr->config1) != attr->config1 || (sample->events & unwanted_events(attr)))
		return false;
	return sample->total >= (attr->config2 & COUNTER_MAX);
}

static void put(u8 *record, unsigned int at, u8 header, u64 value, unsigned int bytes)
{
	__le64 little = cpu_to_le64(value);

	record[at] = header;
	memcpy(record + at + 1, &little, bytes);
}

/* The fixed 64-byte layout of Neoverse V1: every kind of packet has its place, an absent one is padding. */
static void write_record(u8 *record, const struct sample *sample, const struct perf_event *event)
{
	const struct sim_operation *op = &sample->operation;
	const u64 in_56_bits = GENMASK_ULL(55, 0), non_secure = BIT_ULL(63);
	u64 level = sample->kernel ? BIT_ULL(61) : 0;

	memset(record, 0, RECORD_BYTES);
	put(record, 0, 0xb0, (sample->pc & in_56_bits) | non_secure | level, 8);
	if (event->hw.flags) /* the opener may see kernel data */
		put(record, 9, 0x64, task_pid_nr(current), 4);
	put(record, 19, 0x48 | op->class, op->subclass, 1);
	put(record, 21, 0x62, sample->events, 4);
	put(record, 26, 0x99, sample->issue, 2);
	put(record, 29, 0x98, sample->total, 2);
	if (op->class == SIM_LOAD_STORE) {
		put(record, 32, 0xb2, op->address, 8);
		put(record, 41, 0x9a, sample->translation, 2);
		if (sample->has_physical)
			put(record, 44, 0xb3, sample->physical | non_secure, 8);
		if (op->load)
			put(record, 53, 0x43, source_code[sample->source], 1);
	} else if (op->class == SIM_BRANCH) {
		put(record, 32, 0xb1, (op->address & in_56_bits) | non_secure | level, 8);
	}
	if (event->attr.config & TS_ENABLE)
		put(record, 55, 0x71,
		    (event->attr.config & PCT_ENABLE) ? read_sysreg(cntpct_el0) : read_sysreg(cntvct_el0), 8);
	else
		record[63] = 0x01;
}

/* A fault that a test asked for; true if it takes the record's place. */
static bool make_fault(struct spe_cpu *spe, const u8 *record)
{
	u8 garbage[RECORD_BYTES];
	struct nsim_fault fault;
	unsigned int i;

	raw_spin_lock(&fault_lock);
	fault = spe->fault;
	if (fault.kind && fault.after_records)
		spe->fault.after_records--;
	else if (fault.kind != NSIM_COLLIDE)
		spe->fault.kind = 0;
	raw_spin_unlock(&fault_lock);
	if (!fault.kind || fault.after_records)
		return false;
	switch (fault.kind) {
	case NSIM_TRUNCATE:
		perf_aux_output_flag(&spe->handle, PERF_AUX_FLAG_TRUNCATED);
		buffer_interrupt(spe);
		return true;
	case NSIM_LOSE:
		memcpy(((struct spe_buffer *)perf_get_aux(&spe->handle))->base + spe->pointer, record,
		       RECORD_BYTES / 2);
		spe->pointer += RECORD_BYTES / 2;
		spe->lost_data = true;
		buffer_interrupt(spe);
		return true;
	case NSIM_GARBAGE:
		for (i = 0; i < sizeof(garbage); i++)
			garbage[i] = sim_random_below(256);
		/* Whole slots only: the buffer pointer stays aligned. */
		memset(garbage + min_t(u32, fault.amount, sizeof(garbage)), 0,
		       sizeof(garbage) - min_t(u32, fault.amount, sizeof(garbage)));
		write_bytes(spe, garbage, sizeof(garbage));
		return true;
	}
	return false;
}

static bool collides(struct spe_cpu *spe, u64 population)
{
	bool injected = false;

	raw_spin_lock(&fault_lock);
	if (spe->fault.kind == NSIM_COLLIDE && !spe->fault.after_records) {
		injected = spe->fault.amount > 0;
		if (spe->fault.amount <= 1)
			spe->fault.kind = 0;
		else
			spe->fault.amount--;
	}
	raw_spin_unlock(&fault_lock);
	return injected || population < spe->in_flight_until;
}

static u64 draw_interval(const struct perf_event *event)
{
	u64 interval = event->hw.sample_period;

	return interval + ((event->attr.config & JITTER) ? sim_random_below(256) : 1);
}

static void sample_here(struct spe_cpu *spe, const struct pt_regs *regs)
{
	struct sim_sample_counts *counts = this_cpu_ptr(&sim_sample_counts);
	const struct perf_event *event = spe->event;
	struct sim_region *region;
	struct sample sample;
	u8 record[RECORD_BYTES];

	counts->count[0] += local64_read(&spe->event->hw.prev_count);
	if (collides(spe, counts->count[0])) {
		counts->count[3]++;
		spe->collided = true;
		return;
	}
	counts->count[1]++;
	rcu_read_lock();
	region = user_mode(regs) ? sim_region_at(regs->pc) : NULL;
	if (region)
		atomic64_inc(&region->samples);
	take_sample(&sample, regs, region ? &region->is : NULL);
	spe->in_flight_until = counts->count[0] + sample.total;
	if (passes_filters(&event->attr, &sample)) {
		counts->count[2]++;
		if (!(event->attr.config & DISCARD) && spe->limit) {
			if ((event->attr.config & PA_ENABLE) && sample.operation.class == SIM_LOAD_STORE)
				sample.has_physical =
					translate(sample.operation.address, sample.kernel, &sample.physical);
			write_record(record, &sample, event);
			if (!make_fault(spe, record)) {
				write_bytes(spe, record, sizeof(record));
				if (region)
					atomic64_inc(&region->records);
			}
		}
	}
	rcu_read_unlock();
}

/*
 * The timer can only fire where the generic timer ticks, every 16 ns in the guest. With counted instructions that is
 * every 16 instructions, and a loop of two would always be met at the same one. Take a random number of instructions,
 * modulo 16.
 */
static void lose_step(void)
{
	u64 turns = 1 + sim_random_below(16);

	asm volatile("1:	nop\n\tsubs	%0, %0, #1\n\tb.ne	1b" : "+r"(turns) : : "cc");
}

static enum hrtimer_restart interval_ends(struct hrtimer *timer)
{
	struct spe_cpu *spe = container_of(timer, struct spe_cpu, timer);
	struct perf_event *event = spe->event;
	struct pt_regs *regs = get_irq_regs();
	u64 next;

	if (!event || (event->hw.state & PERF_HES_STOPPED))
		return HRTIMER_NORESTART;
	if (!regs || is_idle_task(current) ||
	    (user_mode(regs) ? event->attr.exclude_user : event->attr.exclude_kernel)) {
		next = RETRY_NS;
	} else {
		sample_here(spe, regs);
		if (event->hw.state & PERF_HES_STOPPED)
			return HRTIMER_NORESTART;
		next = draw_interval(event);
		local64_set(&event->hw.prev_count, next);
	}
	lose_step();
	/* Counted from here, not from the last expiry: this handler is no part of the sampled population. */
	hrtimer_set_expires(timer, ktime_add_ns(ktime_get(), max_t(u64, next, SHORTEST_NS)));
	return HRTIMER_RESTART;
}

int sim_spe_inject(const struct nsim_fault *fault)
{
	unsigned long flags;
	int cpu;

	if (fault->kind < NSIM_TRUNCATE || fault->kind > NSIM_COLLIDE)
		return -EINVAL;
	raw_spin_lock_irqsave(&fault_lock, flags);
	for_each_online_cpu(cpu) if (fault->cpu == -1 || fault->cpu == cpu) per_cpu(spe_cpus, cpu).fault = *fault;
	raw_spin_unlock_irqrestore(&fault_lock, flags);
	return 0;
}

/* --- the PMU --- */

static int spe_event_init(struct perf_event *event)
{
	const struct perf_event_attr *attr = &event->attr;
	u64 period = event->hw.sample_period;

	if (attr->type != event->pmu->type)
		return -ENOENT;
	if ((attr->config1 | unwanted_events(attr)) & ~FILTERABLE)
		return -EOPNOTSUPP;
	if (attr->exclude_idle)
		return -EOPNOTSUPP;
	/* The interval cannot follow a frequency: the driver has no overflow to adjust it at. */
	if (attr->freq)
		return -EINVAL;
	if (!perfmon_capable() && (attr->config & (PA_ENABLE | PCT_ENABLE)))
		return -EACCES;
	event->hw.flags = context_packets && perfmon_capable();
	event->hw.sample_period = clamp_t(u64, period & ~0xffull, MIN_INTERVAL, MAX_INTERVAL);
	return 0;
}

static void spe_start(struct perf_event *event, int flags)
{
	struct spe_cpu *spe = this_cpu_ptr(&spe_cpus);
	u64 left;

	event->hw.state = 0;
	spe->event = event;
	spe->collided = spe->lost_data = false;
	begin_span(spe, event);
	if (event->hw.state & PERF_HES_STOPPED)
		return;
	left = local64_read(&event->hw.period_left);
	if (!left) {
		left = draw_interval(event);
		local64_set(&event->hw.prev_count, left);
	}
	hrtimer_start(&spe->timer, ns_to_ktime(max_t(u64, left, SHORTEST_NS)), HRTIMER_MODE_REL_PINNED_HARD);
}

static void spe_stop(struct perf_event *event, int flags)
{
	struct spe_cpu *spe = this_cpu_ptr(&spe_cpus);
	s64 left;

	if (event->hw.state & PERF_HES_STOPPED)
		return;
	/* Stopped before the timer is cancelled: its handler may be what is calling here. */
	event->hw.state |= PERF_HES_STOPPED;
	left = ktime_to_ns(hrtimer_get_remaining(&spe->timer));
	hrtimer_try_to_cancel(&spe->timer);
	if (flags & PERF_EF_UPDATE) {
		if (spe->limit && perf_get_aux(&spe->handle))
			end_span(spe);
		local64_set(&event->hw.period_left, max_t(s64, left, 1));
		event->hw.state |= PERF_HES_UPTODATE;
	}
}

static int spe_add(struct perf_event *event, int flags)
{
	event->hw.state = PERF_HES_UPTODATE | PERF_HES_STOPPED;
	if (flags & PERF_EF_START) {
		spe_start(event, PERF_EF_RELOAD);
		if (event->hw.state & PERF_HES_STOPPED)
			return -EINVAL;
	}
	return 0;
}

static void spe_del(struct perf_event *event, int flags)
{
	struct spe_cpu *spe = this_cpu_ptr(&spe_cpus);

	spe_stop(event, PERF_EF_UPDATE);
	if (spe->event == event)
		spe->event = NULL;
}

static void spe_read(struct perf_event *event)
{
}

static void *spe_setup_aux(struct perf_event *event, void **addresses, int nr_pages, bool snapshot)
{
	struct spe_buffer *buffer;
	struct page **pages;
	int i;

	/* The driver needs room for padding, and in snapshot mode two halves. */
	if (nr_pages < 2 || (snapshot && (nr_pages & 1)))
		return NULL;
	buffer = kzalloc(sizeof(*buffer), GFP_KERNEL);
	pages = kcalloc(nr_pages, sizeof(*pages), GFP_KERNEL);
	if (!buffer || !pages)
		goto fail;
	for (i = 0; i < nr_pages; i++)
		pages[i] = virt_to_page(addresses[i]);
	buffer->base = vmap(pages, nr_pages, VM_MAP, PAGE_KERNEL);
	if (!buffer->base)
		goto fail;
	kfree(pages);
	buffer->nr_pages = nr_pages;
	buffer->snapshot = snapshot;
	return buffer;
fail:
	kfree(pages);
	kfree(buffer);
	return NULL;
}

static void spe_free_aux(void *aux)
{
	struct spe_buffer *buffer = aux;

	vunmap(buffer->base);
	kfree(buffer);
}

PMU_FORMAT_ATTR(ts_enable, "config:0");
PMU_FORMAT_ATTR(pa_enable, "config:1");
PMU_FORMAT_ATTR(pct_enable, "config:2");
PMU_FORMAT_ATTR(jitter, "config:16");
PMU_FORMAT_ATTR(branch_filter, "config:32");
PMU_FORMAT_ATTR(load_filter, "config:33");
PMU_FORMAT_ATTR(store_filter, "config:34");
PMU_FORMAT_ATTR(discard, "config:35");
PMU_FORMAT_ATTR(event_filter, "config1:0-63");
PMU_FORMAT_ATTR(min_latency, "config2:0-11");
#ifdef PERF_ATTR_SIZE_VER8
PMU_FORMAT_ATTR(inv_event_filter, "config3:0-63");
#endif

static struct attribute *format_attributes[] = { &format_attr_ts_enable.attr,
	                                         &format_attr_pa_enable.attr,
	                                         &format_attr_pct_enable.attr,
	                                         &format_attr_jitter.attr,
	                                         &format_attr_branch_filter.attr,
	                                         &format_attr_load_filter.attr,
	                                         &format_attr_store_filter.attr,
	                                         &format_attr_discard.attr,
	                                         &format_attr_event_filter.attr,
	                                         &format_attr_min_latency.attr,
#ifdef PERF_ATTR_SIZE_VER8
	                                         &format_attr_inv_event_filter.attr,
#endif
	                                         NULL };

#define CAPABILITY(name, format, value)                                                                                \
	static ssize_t name##_show(struct device *device, struct device_attribute *attribute, char *text)              \
	{                                                                                                              \
		return sysfs_emit(text, format "\n", value);                                                           \
	}                                                                                                              \
	static DEVICE_ATTR_RO(name)

CAPABILITY(arch_inst, "%u", 1); /* instructions are sampled, not micro-operations */
CAPABILITY(ernd, "%u", 0);
CAPABILITY(count_size, "%u", 12);
CAPABILITY(min_interval, "%u", MIN_INTERVAL);
/* Clashes with the format attribute of the same name, hence not by the macro alone. */
static ssize_t caps_event_filter_show(struct device *device, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "0x%llx\n", FILTERABLE);
}
static struct device_attribute dev_attr_caps_event_filter = __ATTR(event_filter, 0444, caps_event_filter_show, NULL);

static struct attribute *capability_attributes[] = { &dev_attr_arch_inst.attr,         &dev_attr_ernd.attr,
	                                             &dev_attr_count_size.attr,        &dev_attr_min_interval.attr,
	                                             &dev_attr_caps_event_filter.attr, NULL };

static ssize_t cpumask_show(struct device *device, struct device_attribute *attribute, char *text)
{
	return sysfs_emit(text, "%*pbl\n", cpumask_pr_args(cpu_online_mask));
}
static DEVICE_ATTR_RO(cpumask);
static struct attribute *device_attributes[] = { &dev_attr_cpumask.attr, NULL };

static const struct attribute_group format_group = { .name = "format", .attrs = format_attributes };
static const struct attribute_group capability_group = { .name = "caps", .attrs = capability_attributes };
static const struct attribute_group device_group = { .attrs = device_attributes };
static const struct attribute_group *spe_groups[] = { &format_group, &capability_group, &device_group, NULL };

static struct pmu spe_pmu = {
	.module = THIS_MODULE,
	.capabilities = PERF_PMU_CAP_EXCLUSIVE | PERF_PMU_CAP_ITRACE,
	.attr_groups = spe_groups,
	/* As the driver: there is one SPE per CPU, so it need not compete for the core PMU's context. */
	.task_ctx_nr = perf_sw_context,
	.event_init = spe_event_init,
	.add = spe_add,
	.del = spe_del,
	.start = spe_start,
	.stop = spe_stop,
	.read = spe_read,
	.setup_aux = spe_setup_aux,
	.free_aux = spe_free_aux,
};

int sim_spe_register(void)
{
	int cpu, error;

	for_each_possible_cpu(cpu)
	{
		struct hrtimer *timer = &per_cpu(spe_cpus, cpu).timer;

		hrtimer_setup(timer, interval_ends, CLOCK_MONOTONIC, HRTIMER_MODE_REL_PINNED_HARD);
	}
	error = perf_pmu_register(&spe_pmu, "arm_spe_0", -1);
	if (!error)
		pr_info("probed SPEv1.2 for CPUs %*pbl [max_record_sz %u, align %u, features 0xcf, simulated]\n",
		        cpumask_pr_args(cpu_online_mask), RECORD_BYTES, RECORD_BYTES);
	return error;
}

void sim_spe_unregister(void)
{
	perf_pmu_unregister(&spe_pmu);
}
