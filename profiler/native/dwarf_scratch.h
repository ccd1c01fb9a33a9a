/* SPDX-License-Identifier: Apache-2.0 */
/* What the walk over a unit's DIEs collects and the painting of its functions reads. */
#ifndef TDPROF_DWARF_SCRATCH_H
#define TDPROF_DWARF_SCRATCH_H

#include "dwarf.h"

/* A function or inlined call that has addresses, as read; becomes a `struct node` once code is left to it. */
struct candidate {
	const struct unit *named_by; /* where and */
	uint64_t named_at;           /* at which offset its name is to be found */
	uint32_t parent;             /* candidate, or NO_ID for a function of its own */
	uint32_t call_file, call_line;
	uint32_t node; /* NO_ID until needed */
};

struct interval {
	uint64_t start, end;
	uint32_t candidate;
};

/* Memory that is used again for each unit and function. */
struct function_scratch {
	struct line_table lines;
	bool lines_read, lines_fine;
	const struct unit *unit, *line_unit;
	uint32_t unit_number, first_run;
	bool has_skipped;
	uint64_t segment_budget;   /* that the unit may still look at */
	VECTOR(uint32_t) file_ids; /* of the unit's file numbers; FILE_UNRESOLVED until asked for */
	struct line_table foreign; /* the files of another unit, which describes functions of this one */
	const struct unit *foreign_unit;
	VECTOR(struct candidate) candidates;
	VECTOR(struct interval) intervals;
	VECTOR(uint64_t) edges;
	VECTOR(uint32_t) owners;     /* candidate that owns the code from each edge to the next */
	VECTOR(uint32_t) free_cells; /* union-find: the next cell that nobody owns yet */
	VECTOR(struct range) covered;
	struct ranges ranges;
};

/* --- dwarf_segment.c --- */
void load_lines(struct worker *worker);
uint32_t row_at(const struct line_table *lines, const struct line_sequence *sequence, uint64_t address);
/* Emit `start` to `end`, which no function claims, as lines without a function. */
void add_gap(struct worker *worker, uint64_t start, uint64_t end);
/* Turn the collected function, with all that stands below it, into runs of segments. */
void finish_function(struct worker *worker);

#endif
