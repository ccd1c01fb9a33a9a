/* SPDX-License-Identifier: Apache-2.0 */
/* The record loop, and PERF_RECORD_SAMPLE. */
#include "perf_records.h"

#include <linux/perf_event.h>

#include "perf_cursor.h"
#include "perf_resync.h"
#include "perf_split.h"

/* Newer than the headers this may be built with. */
#define BRANCH_COUNTERS       (1ULL << 19)              /* PERF_SAMPLE_BRANCH_COUNTERS, Linux 6.8 */
#define FORMAT_LOST           (1ULL << 4)               /* PERF_FORMAT_LOST, Linux 6.0 */
#define SAMPLE_WEIGHTS        (1ULL << 14 | 1ULL << 24) /* PERF_SAMPLE_WEIGHT, _WEIGHT_STRUCT */
#define SAMPLE_DATA_PAGE_SIZE (1ULL << 22)
#define SAMPLE_CODE_PAGE_SIZE (1ULL << 23)
#define CREDIBLE_TYPES        1024 /* a type beyond this is damage, not something new */
#define PAGE_SIZES            (SAMPLE_DATA_PAGE_SIZE | SAMPLE_CODE_PAGE_SIZE)
#define TAIL_FIELDS                                                                                                    \
	(PERF_SAMPLE_REGS_USER | PERF_SAMPLE_STACK_USER | SAMPLE_WEIGHTS | PERF_SAMPLE_DATA_SRC |                      \
	 PERF_SAMPLE_TRANSACTION | PERF_SAMPLE_REGS_INTR | PERF_SAMPLE_PHYS_ADDR | PERF_SAMPLE_CGROUP | PAGE_SIZES |   \
	 PERF_SAMPLE_AUX)

static uint32_t event_of_id(const struct perf_decoder *d, uint64_t id)
{
	uint64_t slot = perf_id_slot(d->ids, id) & d->id_mask;
	for (; d->ids[slot].event != NO_EVENT; slot = (slot + 1) & d->id_mask)
		if (d->ids[slot].id == id)
			return d->ids[slot].event;
	return NO_EVENT;
}

/* The event of a record by the id at a fixed word: from the start if >= 0, from the end if negative, NO_WORD = none. */
uint32_t perf_event_of(const struct perf_decoder *d, const struct cursor *c, int32_t word)
{
	if (d->layout_count == 1)
		return 0;
	if (word == NO_WORD)
		return NO_EVENT;
	const uint64_t room = left(c), distance = 8 * (uint64_t)(word < 0 ? -(int64_t)word : word + 1);
	if (distance > room)
		return NO_EVENT;
	return event_of_id(d, load64(word < 0 ? c->end - distance : c->at + distance - 8, c->swap));
}

/* struct read_format; `row` holds what all values share. */
enum perf_outcome perf_take_reads(struct perf_decoder *d, const struct perf_layout *layout, struct cursor *c,
                                  struct perf_read_row row, uint64_t *rows)
{
	const uint64_t format = layout->read_format, id_of_record = row.id;
	const bool group = format & PERF_FORMAT_GROUP, has_id = format & PERF_FORMAT_ID,
		   has_lost = format & FORMAT_LOST;
	const uint64_t first = take64(c), count = group ? first : 1;
	row.value = first;
	if (format & PERF_FORMAT_TOTAL_TIME_ENABLED)
		row.enabled_ns = take64(c);
	if (format & PERF_FORMAT_TOTAL_TIME_RUNNING)
		row.running_ns = take64(c);
	if (c->failed || (group && count > left(c) / 8))
		return PERF_MALFORMED;
	for (uint64_t i = 0; i < count; i++) {
		if (group)
			row.value = take64(c);
		row.id = has_id ? take64(c) : id_of_record;
		row.lost = has_lost ? take64(c) : 0;
		if (c->failed)
			return PERF_MALFORMED;
		row.event = d->layout_count == 1 ? 0 : event_of_id(d, row.id);
		if (*rows >= d->read_capacity)
			return PERF_NO_ROOM;
		d->reads[(*rows)++] = row;
	}
	return PERF_TAKEN;
}

/* What the fields behind the branch stack say of the sample. */
struct tail {
	uint64_t cgroup;
	uint64_t user_pc;         /* 0 = not recorded */
	const uint8_t *registers; /* of a 64-bit thread's user mode; NULL = not recorded */
	const uint8_t *stack;     /* NULL = not copied */
	uint64_t stack_bytes;
};

/* PERF_SAMPLE_REGS_USER and _INTR: NULL where there are none. */
static const uint8_t *take_registers(struct cursor *c, uint32_t count, uint64_t *abi)
{
	*abi = take64(c);
	return *abi == PERF_SAMPLE_REGS_ABI_NONE ? NULL : take(c, (uint64_t)count * 8);
}

static void take_user_registers(const struct perf_layout *layout, struct cursor *c, struct tail *tail)
{
	uint64_t abi;
	const uint8_t *registers = take_registers(c, layout->regs_user_count, &abi);
	if (registers == NULL)
		return;
	if (layout->user_pc >= 0 && (uint32_t)layout->user_pc < layout->regs_user_count)
		tail->user_pc = load64(registers + (uint64_t)layout->user_pc * 8, c->swap);
	if (abi == PERF_SAMPLE_REGS_ABI_64)
		tail->registers = registers;
}

static void take_user_stack(struct cursor *c, struct tail *tail)
{
	const uint64_t bytes = take64(c);
	if (bytes == 0)
		return;
	tail->stack = take(c, bytes);
	const uint64_t filled = take64(c); /* how much of it the kernel could read */
	tail->stack_bytes = filled < bytes ? filled : bytes;
}

static enum perf_outcome take_branches(struct perf_decoder *d, const struct perf_layout *layout, struct cursor *c,
                                       uint64_t *rows)
{
	const uint64_t count = take64(c);
	if (layout->branch_sample_type & PERF_SAMPLE_BRANCH_HW_INDEX)
		take64(c);
	if (c->failed || count > left(c) / 24)
		return PERF_MALFORMED;
	if (d->keep_branches) {
		if (count > d->branch_capacity - *rows)
			return PERF_NO_ROOM;
		for (uint64_t i = 0; i < count; i++) {
			struct perf_branch_row *row = &d->branches[(*rows)++];
			row->from = take64(c);
			row->to = take64(c);
			row->flags = take64(c);
			row->sample = d->samples.rows;
		}
	} else
		take(c, count * 24);
	if (layout->branch_sample_type & BRANCH_COUNTERS)
		take(c, count * 8);
	return PERF_TAKEN;
}

/* The fields behind the branch stack; of most only their sizes matter. */
static void take_tail(const struct perf_layout *layout, struct cursor *c, struct tail *tail)
{
	const uint64_t type = layout->sample_type;
	uint64_t abi;
	if (type & PERF_SAMPLE_REGS_USER)
		take_user_registers(layout, c, tail);
	if (type & PERF_SAMPLE_STACK_USER)
		take_user_stack(c, tail);
	if (type & SAMPLE_WEIGHTS) /* one word in either form */
		take64(c);
	if (type & PERF_SAMPLE_DATA_SRC)
		take64(c);
	if (type & PERF_SAMPLE_TRANSACTION)
		take64(c);
	if (type & PERF_SAMPLE_REGS_INTR)
		take_registers(c, layout->regs_intr_count, &abi);
	if (type & PERF_SAMPLE_PHYS_ADDR)
		take64(c);
	if (type & PERF_SAMPLE_CGROUP)
		tail->cgroup = take64(c);
	take(c, 8 * (uint64_t)__builtin_popcountll(type & PAGE_SIZES));
	/* Last, whatever the order in perf_event.h says: perf_output_sample() in kernel/events/core.c. */
	if (type & PERF_SAMPLE_AUX)
		take(c, take64(c));
}

/* PERF_SAMPLE_RAW; what it embeds takes the place of the sample's own. */
static bool take_raw(const struct perf_layout *layout, struct cursor *c, struct perf_samples *s, uint64_t row,
                     struct split_chain *chain)
{
	const uint32_t bytes = take32(c);
	const uint8_t *raw = take(c, bytes);
	if (!layout->embeds_sample || raw == NULL)
		return true;
	struct cursor embedded = { .at = raw, .end = raw + bytes, .swap = c->swap };
	s->pid[row] = take32(&embedded);
	s->tid[row] = take32(&embedded);
	s->period[row] = take64(&embedded);
	const uint64_t count = take64(&embedded);
	if (embedded.failed || count > left(&embedded) / 8)
		return false;
	chain->users = chain->kernels = chain->guests = chain->unknown = chain->deferred = 0;
	take_chain(&embedded, count, PERF_RECORD_MISC_USER, chain);
	s->ip[row] = chain->users > 0 ? chain->user[0] : 0;
	s->cgroup[row] = take64(&embedded);
	return !embedded.failed;
}

/* The sample's stack as it was copied, if it can be walked; STOP_END if it is taken or there is none. */
static enum perf_stop take_copy(struct perf_copies *copies, const struct perf_layout *layout, const struct tail *tail,
                                uint64_t row, bool swap)
{
	if (copies->words == 0 || !layout->has_copies || tail->registers == NULL || tail->stack == NULL)
		return STOP_END;
	if (copies->rows >= copies->capacity)
		return STOP_COPIES;
	if (tail->stack_bytes > copies->stack_capacity - copies->stack_used)
		return STOP_STACK_BYTES;
	for (uint32_t i = 0; i < copies->words && i < PERF_MOST_WALK_REGISTERS; i++) {
		const int32_t place = layout->walk_registers[i];
		const bool is_there = place >= 0 && (uint32_t)place < layout->regs_user_count;
		copies->registers[copies->rows * copies->words + i] =
			is_there ? load64(tail->registers + (uint64_t)place * 8, swap) : 0;
	}
	copies->sample[copies->rows] = row;
	copies->stack_start[copies->rows] = copies->stack_used;
	copies->stack_bytes[copies->rows] = (uint32_t)tail->stack_bytes; /* of a record, whose size has 16 bits */
	memcpy(copies->stack + copies->stack_used, tail->stack, tail->stack_bytes);
	copies->stack_used += tail->stack_bytes;
	copies->rows++;
	return STOP_END;
}

/* A sample keeps its own address, whatever part of the call chain was not asked for. */
INLINE enum perf_stop intern_chain(struct perf_decoder *d, struct perf_lookups *lookups, struct split_chain *chain,
                                   uint16_t cpu_mode, uint64_t ip, uint64_t user_pc, uint64_t row)
{
	const uint64_t user_place = cpu_mode == PERF_RECORD_MISC_USER && ip != 0 ? ip : user_pc;
	if (chain->users == 0 && user_place != 0) {
		chain->user = &user_place;
		chain->users = 1;
	}
	if (chain->kernels == 0 && is_kernel_mode(cpu_mode) && ip != 0) {
		chain->kernel = &ip;
		chain->kernels = 1;
	}
	int32_t *user = &d->samples.user_chain[row], *kernel = &d->samples.kernel_chain[row];
	*user = *kernel = NO_CHAIN;
	enum perf_stop stop = STOP_END;
	if (chain->users > 0)
		stop = perf_look_up(&d->chains, lookups, chain->user, chain->users, chain->user != chain->copied_user,
		                    user);
	if (stop == STOP_END && chain->kernels > 0)
		stop = perf_look_up(&d->chains, lookups, chain->kernel, chain->kernels,
		                    chain->kernel != chain->copied_kernel, kernel);
	return stop;
}

INLINE enum perf_outcome decode_sample(struct perf_decoder *d, struct perf_lookups *lookups, uint16_t misc,
                                       struct cursor *c, enum perf_stop *stop)
{
	struct perf_samples *s = &d->samples;
	const uint16_t cpu_mode = misc & PERF_RECORD_MISC_CPUMODE_MASK;
	const uint32_t event = perf_event_of(d, c, d->sample_id_word);
	if (event == NO_EVENT && d->mixed_layouts)
		return PERF_NO_LAYOUT;
	if (s->rows >= s->capacity) {
		*stop = STOP_SAMPLES;
		return PERF_NO_ROOM;
	}
	const struct perf_layout *layout = &d->layouts[event == NO_EVENT ? 0 : event];
	const uint64_t type = layout->sample_type, row = s->rows;
	uint64_t ip = 0, time_ns = 0, id = 0;
	uint32_t pid = UINT32_MAX, tid = UINT32_MAX, cpu = UINT32_MAX;
	if (type & PERF_SAMPLE_IDENTIFIER)
		id = take64(c);
	if (type & PERF_SAMPLE_IP)
		ip = take64(c);
	if (type & PERF_SAMPLE_TID) {
		pid = take32(c);
		tid = take32(c);
	}
	if (type & PERF_SAMPLE_TIME)
		time_ns = take64(c);
	if (type & PERF_SAMPLE_ADDR)
		take64(c);
	if (type & PERF_SAMPLE_ID)
		id = take64(c);
	if (type & PERF_SAMPLE_STREAM_ID)
		take64(c);
	if (type & PERF_SAMPLE_CPU) {
		cpu = take32(c);
		take32(c);
	}
	/* Written before the record is known to be whole; `rows` grows only then. */
	s->time_ns[row] = time_ns;
	s->ip[row] = ip;
	s->period[row] = type & PERF_SAMPLE_PERIOD ? take64(c) : layout->fixed_period;
	s->pid[row] = pid;
	s->tid[row] = tid;
	s->cpu[row] = cpu;
	s->event[row] = event;
	s->misc[row] = misc;
	if (c->failed)
		return PERF_MALFORMED;

	uint64_t read_rows = d->read_rows, branch_rows = d->branch_rows;
	if (type & PERF_SAMPLE_READ) {
		const struct perf_read_row read = {
			.time_ns = time_ns, .id = id, .sample = (int64_t)row, .pid = pid, .tid = tid
		};
		const enum perf_outcome outcome = perf_take_reads(d, layout, c, read, &read_rows);
		*stop = STOP_READS;
		if (outcome != PERF_TAKEN)
			return outcome;
	}
	struct split_chain chain;
	chain.users = chain.kernels = chain.guests = chain.unknown = chain.deferred = 0;
	if (type & PERF_SAMPLE_CALLCHAIN) {
		const uint64_t count = take64(c);
		if (c->failed || count > left(c) / 8)
			return PERF_MALFORMED;
		take_chain(c, count, cpu_mode, &chain);
	}
	if (type & PERF_SAMPLE_RAW && !take_raw(layout, c, s, row, &chain))
		return PERF_MALFORMED;
	if (type & PERF_SAMPLE_BRANCH_STACK) {
		const enum perf_outcome outcome = take_branches(d, layout, c, &branch_rows);
		*stop = STOP_BRANCHES;
		if (outcome != PERF_TAKEN)
			return outcome;
	}
	struct tail tail = { 0 };
	if (type & TAIL_FIELDS)
		take_tail(layout, c, &tail);
	if (c->failed)
		return PERF_MALFORMED;
	/* Around an embedded sample stands the place of who ran next. */
	if (layout->embeds_sample && type & PERF_SAMPLE_RAW)
		ip = tail.user_pc = 0;
	else
		s->cgroup[row] = tail.cgroup;
	*stop = intern_chain(d, lookups, &chain, cpu_mode, ip, tail.user_pc, row);
	if (*stop == STOP_END)
		*stop = take_copy(&d->copies, layout, &tail, row, c->swap);
	if (*stop != STOP_END)
		return PERF_NO_ROOM;
	s->rows++;
	d->read_rows = read_rows;
	d->branch_rows = branch_rows;
	d->losses.unknown_ids += event == NO_EVENT;
	d->losses.guest_frames += chain.guests;
	d->losses.unknown_contexts += chain.unknown;
	d->losses.deferred_chains += chain.deferred;
	return PERF_TAKEN;
}

INLINE enum perf_stop decode_records(struct perf_decoder *d, const uint8_t *const data, uint64_t bytes, uint64_t offset,
                                     bool final, uint64_t *consumed, bool swap)
{
	const uint8_t *at = data, *const end = data + bytes;
	enum perf_stop stop = STOP_END;
	struct perf_lookups lookups;
	lookups.first = lookups.count = lookups.words = 0;
	while (end - at >= 8) {
		const uint64_t here = offset + (uint64_t)(at - data);
		if (d->searching) {
			const uint8_t *found = find_record(d, at, end, swap, final);
			if (found > at)
				count_damage(&d->losses, here, (uint64_t)(found - at));
			at = found;
			if (d->searching)
				break;
			continue;
		}
		if (d->spare_bytes) {
			const enum verdict verdict =
				d->spare_bytes > (uint64_t)(end - at)
					? UNDECIDED
					: is_likely_chain(at + d->spare_bytes, end, 1, swap, final);

			if (verdict == UNDECIDED)
				break;
			d->searching = verdict == NO;
			at += verdict == NO ? 0 : d->spare_bytes;
			d->spare_bytes = 0;
			continue;
		}
		const uint32_t type = load32(at, swap);
		const uint16_t misc = load16(at + 4, swap), size = load16(at + 6, swap);
		/* Only the perf tool's own records can have an odd size. */
		if (size < 8 || type == 0 || type >= CREDIBLE_TYPES || (type < FIRST_TOOL_TYPE && size % 8 != 0)) {
			count_damage(&d->losses, here, 8);
			at += 8;
			d->searching = 1;
			continue;
		}
		if (type >= FIRST_TOOL_TYPE) {
			stop = STOP_TOOL_RECORD;
			break;
		}
		if (size > end - at)
			break;
		if (type == PERF_RECORD_SAMPLE && d->skip_samples) {
			at += size;
			continue;
		}
		struct cursor c = { .at = at + 8, .end = at + size, .swap = swap };
		const enum perf_outcome outcome = type == PERF_RECORD_SAMPLE
		                                          ? decode_sample(d, &lookups, misc, &c, &stop)
		                                          : perf_decode_side_band(d, type, misc, &c, &stop);
		if (outcome == PERF_NO_ROOM)
			break;
		stop = STOP_END;
		if (outcome == PERF_MALFORMED) {
			const enum verdict verdict = is_likely_chain(at + size, end, 1, swap, final);

			if (verdict == UNDECIDED)
				break;
			d->searching = verdict == NO;
			const uint64_t lost = d->searching ? 8 : size;
			count_damage(&d->losses, here, lost);
			at += lost;
			continue;
		}
		d->losses.by_type[type]++;
		d->losses.unknown_types += outcome == PERF_UNKNOWN_TYPE;
		d->losses.unknown_ids += outcome == PERF_NO_LAYOUT;
		const bool is_whole_sample = type == PERF_RECORD_SAMPLE && outcome == PERF_TAKEN;
		const uint64_t used = is_whole_sample ? ((uint64_t)(c.at - at) + 7) & ~7ULL : size;
		d->spare_bytes = size - used;
		at += used;
	}
	perf_finish_lookups(&d->chains, &lookups);
	*consumed = (uint64_t)(at - data);
	return stop;
}

/* Decode records from `data` (at `offset` in the stream) until its end or a stop; *consumed bytes are done with.
 * `final`: no more data follows. A last, partial record is never consumed. */
EXPORT int tdprof_perf_decode(struct perf_decoder *d, const uint8_t *data, uint64_t bytes, uint64_t offset, int final,
                              uint64_t *consumed)
{
	return d->swap ? decode_records(d, data, bytes, offset, final, consumed, true)
	               : decode_records(d, data, bytes, offset, final, consumed, false);
}
