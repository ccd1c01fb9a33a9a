/* SPDX-License-Identifier: Apache-2.0 */
/* Records added up by row of a report; arm_spe/tally.py declares the same structures and names the same lanes. */
#ifndef SPE_TALLY_H
#define SPE_TALLY_H

#include "group.h"
#include "record.h"
#include "times.h"

#define SPE_LANES      32  /* counters of a row, one for each bit of a record's `lanes` */
#define SPE_LATENCIES  3   /* total, issue, translation */
#define SPE_LOW        32  /* cycles below have a counter in the row itself; a power of two */
#define SPE_FULL       255 /* records after which the counters of a row are added to its wide ones */
#define SPE_PAGE       6   /* neighbours in a page of larger counters */
#define SPE_PAGE_BITS  14  /* of a page's key, below row and kind */
#define SPE_BLOCK      128 /* records looked up together, so that their memory is asked for before it is needed */
#define SPE_SOURCES    512 /* codes of data sources, at most */
#define SPE_NEIGHBOURS 8   /* groups that are looked up together: code and data are sampled in neighbourhoods */

/* What stands in `row_of`. */
enum spe_placing {
	SPE_UNMET,     /* no record was of this group */
	SPE_UNPLACED,  /* the caller has not placed it yet */
	SPE_NO_ROW,    /* it belongs to no row */
	SPE_FIRST_ROW, /* row 0 and, from here on, those after it */
};

/* What makes two records the same group. */
enum spe_key {
	SPE_KEY_CODE,    /* PC, thread */
	SPE_KEY_ADDRESS, /* data address >> shift, thread; all ones without an address; with a physical one both keys
	                    hold a part of it (SPE_IS_PHYSICAL) */
	SPE_KEY_SOURCE,  /* code of a load's data source, core; all ones for what is no load */
};

/* Where SPE_KEY_ADDRESS has a physical address, too: its first key is bits 55:0 of the data address >> shift, bits
 * 51:43 of the physical one and SPE_IS_PHYSICAL; the second the thread in its low 33 bits and bits 42:12 above them.
 * Both addresses have the same bits 11:0. */
#define SPE_IS_PHYSICAL   ((uint64_t)1 << 62)
#define SPE_PAGE_SHIFT    12 /* of the smallest page */
#define SPE_PHYSICAL_HIGH 53 /* where bits 51:43 stand */
#define SPE_PHYSICAL_LOW  33 /* where bits 42:12 do */
#define SPE_LEAST_SHIFT   6  /* below, the keys have no room for it, and physical addresses are not looked at */

/* Bits of `lanes`. The first ten and the predicates stand where the events packet has them. All but OPERATIONS are of
 * operations that the program executed; caches are of loads, since stores may leave those events unset. */
enum spe_lane {
	LANE_OPERATIONS,
	LANE_RETIRED,
	LANE_L1D_ACCESS,
	LANE_L1D_REFILL,
	LANE_TLB_ACCESS, /* loads and stores */
	LANE_TLB_WALK,
	LANE_NOT_TAKEN, /* branches */
	LANE_MISPREDICTED,
	LANE_LLC_ACCESS,
	LANE_LLC_REFILL,
	LANE_SNOOPED,
	LANE_LOADS,
	LANE_STORES,
	LANE_BRANCHES,
	LANE_OTHERS,
	LANE_VECTOR, /* SVE and SME operations */
	LANE_PARTIAL_PREDICATE = 17,
	LANE_EMPTY_PREDICATE,
	LANE_LOADS_BY_LEVEL, /* eight of them */
	LANE_TOTAL_COUNT = 27,
	LANE_ISSUE_COUNT,
	LANE_TRANSLATION_COUNT,
};

#define SPE_SOURCE_LANES (0xffu << LANE_LOADS_BY_LEVEL | 1u << LANE_SNOOPED)
#define SPE_EVENT_INDEX  1024 /* ten bits of the events tell a load's source, where no packet does */

/* How the records of one span are read. */
struct spe_rules {
	uint64_t thread;           /* of a record that nothing else tells the thread of */
	uint64_t core;             /* second half of SPE_KEY_SOURCE */
	struct spe_times *times;   /* who ran when, on the CPU of the span; NULL: times do not matter */
	uint32_t key;              /* enum spe_key */
	uint32_t shift;            /* of SPE_KEY_ADDRESS */
	uint32_t first_source;     /* code of data source packet 0 */
	uint32_t known_sources;    /* values from here on are not looked at; 0: the core's encoding is unknown */
	uint32_t ignores_contexts; /* the caller tells every record's thread, whatever its packets say */
	uint32_t lanes[1024]; /* by class << 8 | payload: the operation's own lanes, and those its events may set */
	uint16_t source_of_events[SPE_EVENT_INDEX]; /* code of the source */
	/* By code: lanes of a load from there; behind them by events, as source_of_events. */
	uint32_t source_lanes[SPE_SOURCES + SPE_EVENT_INDEX];
};

/* One record, on its way to its row. */
struct spe_item {
	uint32_t group;
	uint32_t lanes;
	uint16_t latency[SPE_LATENCIES];
	uint16_t pad;
};

/* A group without a row: the caller places it. */
struct spe_met {
	uint64_t first, second;
	uint32_t group;
	uint32_t pad;
};

/* One row of a report: two cache lines, whatever is counted. No counter is above that of LANE_OPERATIONS. */
struct spe_row {
	uint8_t lanes[SPE_LANES];
	uint8_t low[SPE_LATENCIES][SPE_LOW]; /* records by latency */
};

/* What no longer fitted into a row's counters; the caller takes them away before 2^32 records. */
struct spe_wide {
	uint32_t count[sizeof(struct spe_row)];
};

/* Records by latency from SPE_LOW on: neighbours of one histogram. */
struct spe_page {
	uint64_t key; /* (row * SPE_LATENCIES + kind of latency) << SPE_PAGE_BITS | cycles / SPE_PAGE */
	uint32_t hits[SPE_PAGE];
};

struct spe_pages {
	uint64_t slots;    /* a power of two, above `capacity`, at most 2^32 */
	uint64_t capacity; /* pages that fit */
	uint64_t count;    /* pages so far */
	uint32_t *slot;    /* 1 + page, as in group.h */
	struct spe_page *page;
};

struct spe_tally {
	/* The key of SPE_NEIGHBOURS groups is one in the table of groups; a group is its number there * SPE_NEIGHBOURS,
	 * and its place among them. */
	int32_t *row_of; /* by group, as many as fit: enum spe_placing */
	struct spe_row *rows;
	uint32_t *wide_of; /* by row: 1 + its wide counters, 0 if it has none */
	struct spe_wide *wide;
	uint64_t wide_capacity, wide_count;
	struct spe_item *waiting; /* records of groups without a row */
	struct spe_met *met;      /* those groups, as they turned up: as many as there may be waiting records */
	uint64_t waiting_capacity, waiting_count, met_count;
	uint64_t folded;              /* of the waiting records already added, by spe_fold */
	uint64_t groups, most_groups; /* met so far, and at most */
	int64_t others;               /* group of what comes after most_groups; -1: there is none yet */
	uint64_t with_context;        /* records whose context packet names their thread */
	uint64_t unnamed;             /* where times matter: records whose thread nothing tells */
	uint64_t decoded;             /* by spe_add_span: records in the columns, */
	uint64_t added;               /* and of them those that were added */
};

/* Records whose rows are known. */
struct spe_ready {
	unsigned count;
	uint32_t item[SPE_BLOCK];
	int32_t row[SPE_BLOCK];
};

/* What one thread counted. */
struct spe_part {
	const struct spe_row *rows;
	const uint32_t *wide_of; /* by row, as in struct spe_tally */
	const struct spe_wide *wide;
	const struct spe_page *pages;
	uint64_t row_count, page_count;
};

/* The sums of groups of rows, of all parts. Rows and pages are numbered through all parts, fewer than 2^32 of each;
 * those of a group are lists of 1 + number, which 0 ends. What is not said to be given is zeros at first. */
struct spe_sums {
	uint64_t groups;
	const int64_t *group; /* given: by row, less than `groups`; negative: it is left out */
	uint64_t *lanes;      /* SPE_LANES of each group */
	uint64_t *cycles;     /* by group * SPE_LATENCIES + kind, as `page` */
	uint64_t *key;        /* (group * SPE_LATENCIES + kind) << 16 | cycles */
	uint64_t *count;
	uint32_t *row, *next_row, *page, *next_page;
	const uint64_t *first_row, *first_page; /* given: numbers of each part's first */
};

/* Adds them to their rows. There is room for all that may come of it: SPE_LATENCIES pages and one row's wide counters
 * for each. */
void spe_count(struct spe_tally *t, struct spe_pages *pages, const struct spe_item *items,
               const struct spe_ready *ready);

#endif
