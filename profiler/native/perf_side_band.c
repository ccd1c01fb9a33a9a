/* SPDX-License-Identifier: Apache-2.0 */
/* Every kernel record but PERF_RECORD_SAMPLE: what programs, the kernel and the event itself were doing. */
#include "perf_records.h"

#include <linux/perf_event.h>

#include "perf_cursor.h"

/* Newer than the headers this may be built with: the bits stand in linux/perf_event.h of Linux 5.12. */
#define MISC_MMAP_BUILD_ID      (1 << 14)
#define RECORD_CGROUP           19
#define RECORD_TEXT_POKE        20
#define RECORD_AUX_OUTPUT_HW_ID 21
#define BUILD_ID_MAX            20
#define BUILD_ID_UUID           16

/* struct sample_id stands at the end of a record, so it is read first and cut off. */
static void take_sample_id(const struct perf_layout *layout, struct cursor *c, struct perf_side_band_row *row)
{
	const uint64_t type = layout->sample_type;
	const uint64_t words = (uint64_t)__builtin_popcountll(type & (PERF_SAMPLE_TID | PERF_SAMPLE_TIME |
	                                                              PERF_SAMPLE_ID | PERF_SAMPLE_STREAM_ID |
	                                                              PERF_SAMPLE_CPU | PERF_SAMPLE_IDENTIFIER));
	if (!layout->sample_id_all || words * 8 > left(c))
		return;
	struct cursor trailer = { .at = c->end - words * 8, .end = c->end, .swap = c->swap }, *t = &trailer;
	c->end = trailer.at;
	if (type & PERF_SAMPLE_TID) {
		row->pid = take32(t);
		row->tid = take32(t);
	}
	if (type & PERF_SAMPLE_TIME)
		row->time_ns = take64(t);
	if (type & PERF_SAMPLE_ID)
		row->id = take64(t);
	if (type & PERF_SAMPLE_STREAM_ID)
		take64(t);
	if (type & PERF_SAMPLE_CPU) {
		row->cpu = take32(t);
		take32(t);
	}
	if (type & PERF_SAMPLE_IDENTIFIER)
		row->id = take64(t);
}

static bool keep_bytes(struct perf_decoder *d, struct perf_side_band_row *row, const uint8_t *bytes, uint64_t count)
{
	if (count > d->name_capacity - d->name_bytes)
		return false;
	row->name_offset = d->name_bytes;
	row->name_bytes = (uint32_t)count;
	if (count > 0)
		memcpy(d->names + d->name_bytes, bytes, count);
	d->name_bytes += count;
	return true;
}

/* The rest of the record up to the first NUL. */
static bool keep_name(struct perf_decoder *d, struct perf_side_band_row *row, struct cursor *c)
{
	const uint64_t room = left(c);
	const uint8_t *name = take(c, room);
	return keep_bytes(d, row, name, strnlen((const char *)name, room));
}

static void take_pid_tid(struct cursor *c, struct perf_side_band_row *row)
{
	row->pid = take32(c);
	row->tid = take32(c);
}

/*
 * The kernel's mark. Where no event asked for build-ids it may have stayed from another recording's record, before the
 * file's numbers: then only a length that ids have and hardly a disk's major number is believed (perf inject).
 */
static bool has_build_id(const struct perf_decoder *d, const struct perf_side_band_row *row, const struct cursor *c)
{
	if (!(row->misc & MISC_MMAP_BUILD_ID) || left(c) == 0)
		return false;
	return d->asks_build_ids || c->at[0] == BUILD_ID_MAX || c->at[0] == BUILD_ID_UUID;
}

static void take_mmap2_identity(const struct perf_decoder *d, struct cursor *c, struct perf_side_band_row *row)
{
	if (has_build_id(d, row, c)) {
		const uint8_t *build_id = take(c, 4 + BUILD_ID_MAX);
		if (build_id != NULL && build_id[0] <= BUILD_ID_MAX) {
			row->build_id_bytes = build_id[0];
			memcpy(row->build_id, build_id + 4, build_id[0]);
		}
	} else {
		row->maj = take32(c);
		row->min = take32(c);
		row->ino = take64(c);
		row->ino_generation = take64(c);
	}
	row->prot = take32(c);
	row->flags = take32(c);
}

static bool keep_namespaces(struct perf_decoder *d, struct perf_side_band_row *row, struct cursor *c)
{
	row->value = take64(c);
	if (row->value > left(c) / 16) {
		c->failed = true;
		return true;
	}
	if (row->value * 16 > d->name_capacity - d->name_bytes)
		return false;
	row->name_offset = d->name_bytes;
	row->name_bytes = (uint32_t)row->value * 16;
	for (uint64_t i = 0; i < row->value * 2; i++) {
		const uint64_t word = take64(c);
		memcpy(d->names + d->name_bytes, &word, sizeof(word));
		d->name_bytes += sizeof(word);
	}
	return true;
}

static enum perf_outcome take_read_record(struct perf_decoder *d, const struct perf_layout *layout, struct cursor *c,
                                          const struct perf_side_band_row *side_band, enum perf_stop *stop)
{
	struct perf_read_row row = { .time_ns = side_band->time_ns, .id = side_band->id, .sample = -1 };
	row.pid = take32(c);
	row.tid = take32(c);
	uint64_t rows = d->read_rows;
	const enum perf_outcome outcome = perf_take_reads(d, layout, c, row, &rows);
	if (outcome == PERF_TAKEN)
		d->read_rows = rows;
	else if (outcome == PERF_NO_ROOM)
		*stop = STOP_READS;
	return outcome;
}

enum perf_outcome perf_decode_side_band(struct perf_decoder *d, uint32_t type, uint16_t misc, struct cursor *c,
                                        enum perf_stop *stop)
{
	const uint32_t event = perf_event_of(d, c, d->trailer_id_word);
	/* What the perf tool makes up itself (the programs that ran before) has id 0, in the first event's layout. */
	const struct perf_layout *layout = &d->layouts[event == NO_EVENT ? 0 : event];
	struct perf_side_band_row row = {
		.type = type, .misc = misc, .event = event, .pid = UINT32_MAX, .tid = UINT32_MAX, .cpu = UINT32_MAX
	};
	row.ppid = row.ptid = UINT32_MAX;
	const uint64_t names_before = d->name_bytes;
	take_sample_id(layout, c, &row);
	bool kept = true;
	switch (type) {
	case PERF_RECORD_MMAP:
	case PERF_RECORD_MMAP2:
		take_pid_tid(c, &row);
		row.addr = take64(c);
		row.len = take64(c);
		row.pgoff = take64(c);
		if (type == PERF_RECORD_MMAP2)
			take_mmap2_identity(d, c, &row);
		kept = keep_name(d, &row, c);
		break;
	case PERF_RECORD_COMM:
		take_pid_tid(c, &row);
		kept = keep_name(d, &row, c);
		break;
	case PERF_RECORD_FORK:
	case PERF_RECORD_EXIT: {
		row.pid = take32(c);
		row.ppid = take32(c);
		row.tid = take32(c);
		row.ptid = take32(c);
		const uint64_t time_ns = take64(c);
		row.time_ns = row.time_ns != 0 ? row.time_ns : time_ns;
		break;
	}
	case PERF_RECORD_LOST:
		row.id = take64(c);
		row.value = take64(c);
		break;
	case PERF_RECORD_LOST_SAMPLES: row.value = take64(c); break;
	case PERF_RECORD_THROTTLE:
	case PERF_RECORD_UNTHROTTLE: {
		const uint64_t time_ns = take64(c);
		row.time_ns = row.time_ns != 0 ? row.time_ns : time_ns;
		row.id = take64(c);
		take64(c); /* stream id */
		break;
	}
	case PERF_RECORD_READ: return take_read_record(d, layout, c, &row, stop);
	case PERF_RECORD_SWITCH: break;
	case PERF_RECORD_SWITCH_CPU_WIDE:
		row.ppid = take32(c);
		row.ptid = take32(c);
		break;
	case PERF_RECORD_AUX:
		row.addr = take64(c);
		row.len = take64(c);
		row.flags = take64(c);
		break;
	case PERF_RECORD_ITRACE_START: take_pid_tid(c, &row); break;
	case PERF_RECORD_NAMESPACES:
		take_pid_tid(c, &row);
		kept = keep_namespaces(d, &row, c);
		break;
	case PERF_RECORD_KSYMBOL:
		row.addr = take64(c);
		row.len = take32(c);
		row.value = take16(c);
		row.flags = take16(c);
		kept = keep_name(d, &row, c);
		break;
	case PERF_RECORD_BPF_EVENT: {
		row.flags = take16(c); /* perf_bpf_event_type */
		row.prot = take16(c);  /* its flags */
		row.value = take32(c); /* program id */
		const uint8_t *tag = take(c, 8);
		kept = tag == NULL || keep_bytes(d, &row, tag, 8);
		break;
	}
	case RECORD_CGROUP:
		row.value = take64(c);
		kept = keep_name(d, &row, c);
		break;
	case RECORD_TEXT_POKE: {
		row.addr = take64(c);
		row.value = take16(c); /* bytes before */
		row.len = take16(c);   /* bytes after */
		const uint8_t *code = take(c, row.value + row.len);
		kept = code == NULL || keep_bytes(d, &row, code, row.value + row.len);
		break;
	}
	case RECORD_AUX_OUTPUT_HW_ID: row.value = take64(c); break;
	default: return PERF_UNKNOWN_TYPE;
	}
	if (c->failed || !kept || d->side_band_rows >= d->side_band_capacity) {
		d->name_bytes = names_before;
		*stop = kept ? STOP_SIDE_BAND : STOP_NAMES;
		return c->failed ? PERF_MALFORMED : PERF_NO_ROOM;
	}
	d->side_band[d->side_band_rows++] = row;
	return PERF_TAKEN;
}
