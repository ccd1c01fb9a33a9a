/* SPDX-License-Identifier: Apache-2.0 */
/* Records added up by row of a report; arm_spe/tally.py declares the same structures and names the same lanes. */
#ifndef SPE_TALLY_H
#define SPE_TALLY_H

#include "group.h"
#include "record.h"

#define SPE_LANES     32  /* counters of a row, one for each bit of a record's `lanes` */
#define SPE_LATENCIES 3   /* total, issue, translation */
#define SPE_LOW       32  /* cycles below have a counter in the row itself */
#define SPE_FULL      128 /* a row's counter that gets here begins anew, and a page counts that */
#define SPE_PAGE      6   /* neighbours in a page of larger counters */
#define SPE_BLOCK     128 /* records looked up together, so that their memory is asked for before it is needed */
#define SPE_SOURCES   512 /* codes of data sources, at most */

#define SPE_UNPLACED (-2) /* row of a group that the caller has not placed yet */
#define SPE_NO_ROW   (-1) /* of one that belongs to none */

/* What makes two records the same group. */
enum spe_key {
	SPE_KEY_CODE,    /* PC, thread */
	SPE_KEY_ADDRESS, /* data address >> shift, thread; all ones without an address */
	SPE_KEY_SOURCE,  /* code of a load's data source, core; all ones for what is no load */
};

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

/* How the records of one span are read. */
struct spe_rules {
	uint64_t thread;           /* of a record that nothing else tells the thread of */
	uint64_t core;             /* second half of SPE_KEY_SOURCE */
	uint32_t key;              /* enum spe_key */
	uint32_t shift;            /* of SPE_KEY_ADDRESS */
	uint32_t first_source;     /* code of data source packet 0 */
	uint32_t known_sources;    /* values from here on are not looked at; 0: the core's encoding is unknown */
	uint32_t ignores_contexts; /* the caller tells every record's thread, whatever its packets say */
	uint32_t lanes[1024]; /* by class << 8 | payload: the operation's own lanes, and those its events may set */
	uint16_t source_of_events[1024]; /* code by the ten events that tell a load's source, where no packet does */
	uint8_t level[SPE_SOURCES];      /* by code: level, bit 7 set if another cache gave the line */
};

/* One record, waiting for its group's row. */
struct spe_item {
	uint32_t group;
	uint32_t lanes;
	uint16_t latency[SPE_LATENCIES];
	uint16_t pad;
};

/* One row of a report, in counters below SPE_FULL: two cache lines, whatever is counted. */
struct spe_row {
	uint8_t lanes[SPE_LANES];
	uint8_t low[SPE_LATENCIES][SPE_LOW]; /* records by latency */
};

/* Neighbours of one histogram; the caller takes them away before 2^32 records. */
struct spe_page {
	uint64_t key; /* (row * 4 + kind) << 14 | first / SPE_PAGE; kind: a latency's, or SPE_LATENCIES: of lanes */
	uint32_t hits[SPE_PAGE];
};

/* Records by latency from SPE_LOW on, and what no longer fitted into rows. */
struct spe_pages {
	uint64_t slots;    /* a power of two, above `capacity`, at most 2^32 */
	uint64_t capacity; /* pages that fit */
	uint64_t count;    /* pages so far */
	uint32_t *slot;    /* 1 + page, as in group.h */
	struct spe_page *page;
};

/* Pages that one record may need: of each latency, and of all lanes. */
#define SPE_PAGES_OF_RECORD (SPE_LATENCIES + SPE_LANES / SPE_PAGE + 1)

struct spe_tally {
	int32_t *row_of; /* by group, as many as fit: SPE_UNPLACED at first */
	struct spe_row *rows;
	struct spe_item *waiting; /* records of groups without a row */
	uint64_t waiting_capacity, waiting_count;
	uint64_t folded;       /* of them already added, by spe_fold */
	int64_t others;        /* group of pairs that the table has no room for; -1: it may still grow */
	uint64_t with_context; /* records whose context packet names their thread */
	uint64_t decoded;      /* by spe_tally_span: records in the columns, */
	uint64_t added;        /* and of them those that were added */
};

#endif
