/* SPDX-License-Identifier: Apache-2.0 */
/* Records of the perf ring buffer (linux/perf_event.h) into columns that the caller owns. */
#ifndef TDPROF_PERF_RECORDS_H
#define TDPROF_PERF_RECORDS_H

#include <stdbool.h>
#include <stdint.h>

#include "hash.h"

#define EXPORT __attribute__((visibility("default")))

#define NO_EVENT UINT32_MAX /* a record whose id belongs to no known event */
#define NO_CHAIN (-1)
#define NO_WORD  INT32_MIN

/* Why perf_decode() returned. All but STOP_END and STOP_TOOL_RECORD ask the caller for room; calling again resumes. */
enum perf_stop {
	STOP_END = 0,         /* nothing left but, perhaps, the first part of a record */
	STOP_TOOL_RECORD = 1, /* in front of a record of the perf tool (type >= 64), which only perf.data holds */
	STOP_SAMPLES = 2,
	STOP_READS = 3,
	STOP_BRANCHES = 4,
	STOP_SIDE_BAND = 5,
	STOP_NAMES = 6,
	STOP_CHAINS = 7, /* the chain offsets, or the hash slots at three quarters */
	STOP_FRAMES = 8,
	STOP_COPIES = 9,       /* rows of copied stacks */
	STOP_STACK_BYTES = 10, /* their bytes */
};

#define PERF_MOST_WALK_REGISTERS 17

/* What of a perf_event_attr decides how its records look. */
struct perf_layout {
	uint64_t sample_type;
	uint64_t read_format;
	uint64_t branch_sample_type;
	uint64_t fixed_period;    /* of a sample without PERF_SAMPLE_PERIOD; 0 = unknown */
	uint32_t regs_user_count; /* bits in sample_regs_user */
	uint32_t regs_intr_count;
	int32_t user_pc;        /* which of the user registers is the program counter, -1 = none is recorded */
	uint32_t sample_id_all; /* side-band records end with a struct sample_id */
	/* Which of the user registers a walk of the copied stack begins with, in the order of struct unwind_samples;
	 * -1 = not recorded. */
	int32_t walk_registers[PERF_MOST_WALK_REGISTERS];
	uint32_t has_copies;    /* the stack is copied, and enough registers are */
	uint32_t embeds_sample; /* the raw data is the sample that is meant: perf record --off-cpu */
};

/* One slot of an open-addressed table from a sample id to its event; event == NO_EVENT marks a free slot. */
struct perf_id {
	uint64_t id;
	uint32_t event;
	uint32_t pad;
};

struct perf_samples {
	uint64_t *time_ns;
	uint64_t *ip;
	uint64_t *period;
	uint64_t *cgroup;          /* 0 where the event does not record it */
	uint32_t *pid, *tid, *cpu; /* UINT32_MAX where the event does not record them */
	uint32_t *event;           /* index of the layout, or NO_EVENT */
	int32_t *user_chain, *kernel_chain;
	uint16_t *misc;
	uint64_t rows, capacity;
};

/* User stacks as the kernel copied them, with the registers that a walk begins with (unwind_api.h). */
struct perf_copies {
	uint64_t *sample;      /* row of the sample */
	uint64_t *registers;   /* `words` of each copy */
	uint64_t *stack_start; /* where in `stack` it lies */
	uint32_t *stack_bytes;
	uint8_t *stack;
	uint64_t rows, capacity;
	uint64_t stack_used, stack_capacity; /* bytes */
	uint32_t words;                      /* 0 = copies are not wanted */
	uint32_t pad;
};

/* One counter value out of PERF_SAMPLE_READ or PERF_RECORD_READ. */
struct perf_read_row {
	uint64_t time_ns;
	uint64_t id; /* 0 without PERF_FORMAT_ID and without an id in the record */
	uint64_t value;
	uint64_t enabled_ns, running_ns;
	uint64_t lost;
	int64_t sample; /* row of the sample that carries it, -1 for PERF_RECORD_READ */
	uint32_t event; /* of `id` */
	uint32_t pid, tid;
	uint32_t pad;
};

struct perf_branch_row {
	uint64_t from, to;
	uint64_t flags; /* as in the file: the bit order follows its byte order */
	uint64_t sample;
};

/* One side-band record; which fields a type fills stands in decode/perf/columns.py beside SIDE_BAND. */
struct perf_side_band_row {
	uint64_t time_ns;
	uint64_t addr, len, pgoff;
	uint64_t ino, ino_generation;
	uint64_t id;
	uint64_t value;
	uint64_t flags;
	uint64_t name_offset; /* into the names */
	uint32_t name_bytes;
	uint32_t type;
	uint32_t pid, tid, ppid, ptid, cpu;
	uint32_t maj, min, prot;
	uint32_t event;
	uint16_t misc;
	uint8_t build_id_bytes; /* 0 = none */
	uint8_t pad;
	uint8_t build_id[20];
	uint8_t pad2[4];
};

/* Distinct call chains, leaf first, without PERF_CONTEXT_ markers. Chain i is frames[offsets[i] .. offsets[i + 1]]. */
struct perf_chains {
	uint64_t *slots; /* upper half: hash; lower half: chain + 1, 0 = free */
	uint64_t *offsets;
	uint64_t *frames;
	uint64_t slot_mask;
	uint64_t rows, capacity; /* chains */
	uint64_t frame_capacity;
	uint64_t seed;
};

/* Chains to be found or added, in order; they have room. */
#define PERF_LOOKUPS 16
struct perf_lookup {
	const uint64_t *words;
	uint64_t count;
	uint64_t word; /* the chain itself where it is one word */
	uint64_t hash;
	int32_t *chain;
};

struct perf_lookups {
	uint64_t first, count; /* a ring */
	uint64_t words;        /* of all that wait */
	struct perf_lookup waiting[PERF_LOOKUPS];
};

#define PERF_TYPES       64 /* from here on types are the perf tool's (its PERF_RECORD_USER_TYPE_START) */
#define PERF_DAMAGE_KEPT 64

struct perf_damage {
	uint64_t offset; /* in the stream */
	uint64_t bytes;  /* given up */
};

struct perf_losses {
	uint64_t by_type[PERF_TYPES]; /* records seen, also those of unknown types */
	uint64_t unknown_types;       /* records of a type this decoder does not know, skipped */
	uint64_t malformed;           /* stretches that are no valid record */
	uint64_t malformed_bytes;     /* what they held */
	uint64_t unknown_ids;         /* records of no known event */
	uint64_t guest_frames;        /* frames of a virtual machine's guest, left out of the chains */
	uint64_t unknown_contexts;    /* frames after a PERF_CONTEXT_ marker this decoder does not know, left out */
	uint64_t deferred_chains;     /* user chains the kernel put off until the return to user space */
	struct perf_damage damage[PERF_DAMAGE_KEPT]; /* the first of `malformed` */
};

/* Where the search for an id begins in a table of a power of two; decode/perf/records.py fills the table by it. */
static inline uint64_t perf_id_slot(const struct perf_id *ids, uint64_t id)
{
	return hash_home(id, ids);
}

struct perf_decoder {
	const struct perf_layout *layouts;
	const struct perf_id *ids;
	uint64_t id_mask;
	uint32_t layout_count;
	uint32_t swap; /* the records are of the other byte order */
	/* Which u64 of a body holds the id, from its start if >= 0, from its end if negative (-1: last), or NO_WORD. */
	int32_t sample_id_word, trailer_id_word;
	uint32_t mixed_layouts; /* a record of an unknown event cannot be read */
	uint32_t keep_branches;
	uint32_t searching; /* after damage: the next call starts with the search for a record */
	uint32_t skip_samples;
	uint32_t asks_build_ids; /* an event has attr.build_id */
	uint32_t pad;
	/* Of a whole sample that was taken: what its size has beyond it. It is wrong if nothing good follows that. */
	uint64_t spare_bytes;
	struct perf_samples samples;
	struct perf_copies copies;
	struct perf_read_row *reads;
	uint64_t read_rows, read_capacity;
	struct perf_branch_row *branches;
	uint64_t branch_rows, branch_capacity;
	struct perf_side_band_row *side_band;
	uint64_t side_band_rows, side_band_capacity;
	uint8_t *names;
	uint64_t name_bytes, name_capacity;
	struct perf_chains chains;
	struct perf_losses losses;
};

/* Which samples may be added up: those of one event and of one stretch of their process's time. */
struct perf_intervals {
	const uint32_t *event_number; /* of the capture by event of the file, NO_EVENT = not wanted */
	uint64_t events;
	uint64_t interval_ns;
	/* When what a process has mapped or what its threads are called changed, by pid and then time. */
	const uint32_t *change_pid;
	const uint64_t *change_ns;
	uint64_t changes;
};

/* Samples that are alike, added up. */
struct perf_group {
	uint64_t time_ns; /* end of the interval */
	uint64_t count, weight;
	uint64_t cgroup;
	uint32_t event, pid, tid;
	int32_t user_chain, kernel_chain;
	uint32_t pad;
};

struct perf_groups {
	struct perf_group *rows;
	uint64_t *slots; /* upper half: hash; lower half: row + 1, 0 = free; at least 4/3 of the capacity */
	uint64_t slot_mask;
	uint64_t count, capacity;
	uint64_t seed;
	struct perf_intervals intervals;
};

/* Entries of branch stacks that are alike, added up. */
struct perf_branch_sum {
	uint64_t time_ns; /* end of the interval */
	uint64_t from, to;
	uint64_t kind;                    /* flags but for the prediction and the cycles */
	uint64_t count;                   /* entries */
	uint64_t stacks;                  /* samples that have any of them */
	uint64_t mispredicted, predicted; /* the others: not told */
	uint64_t cycles;                  /* sum over the entries that have them */
	uint64_t with_cycles;
	uint64_t cycles_at_limit; /* of these, those that the field may have cut */
	uint64_t last_sample;     /* that was counted in `stacks` */
	uint32_t event, pid;
};

struct perf_branch_sums {
	struct perf_branch_sum *rows;
	uint64_t *slots; /* as of perf_groups */
	uint64_t slot_mask;
	uint64_t count, capacity;
	uint64_t seed;
	struct perf_intervals intervals;
	uint64_t samples;        /* of the batches before */
	uint64_t unknown_events; /* entries of samples of no known event */
};

enum perf_outcome { PERF_TAKEN, PERF_NO_ROOM, PERF_MALFORMED, PERF_NO_LAYOUT, PERF_UNKNOWN_TYPE };

struct cursor;

/* perf_records.c */
uint32_t perf_event_of(const struct perf_decoder *d, const struct cursor *c, int32_t word);
enum perf_outcome perf_take_reads(struct perf_decoder *d, const struct perf_layout *layout, struct cursor *c,
                                  struct perf_read_row row, uint64_t *rows);
/* perf_side_band.c */
enum perf_outcome perf_decode_side_band(struct perf_decoder *d, uint32_t type, uint16_t misc, struct cursor *c,
                                        enum perf_stop *stop);
/* perf_chains.c */
uint64_t perf_hash(const uint64_t *words, uint64_t count, uint64_t seed);
enum perf_stop perf_look_up(struct perf_chains *chains, struct perf_lookups *l, const uint64_t *words, uint64_t count,
                            bool stays, int32_t *chain);
void perf_finish_lookups(struct perf_chains *chains, struct perf_lookups *l);

#endif
