/* SPDX-License-Identifier: Apache-2.0 */
/* Lines and inlined calls of Go programs, by the table that these carry also when stripped. What Python
 * (tdprof/symbolize/go_lines.py) and the fuzz target call and share. */
#ifndef TDPROF_GO_LINES_H
#define TDPROF_GO_LINES_H

#include <stdint.h>

#define GO_NO_ID UINT32_MAX

struct go_functions {
	const uint8_t *data;    /* .gopclntab */
	const uint8_t *inlined; /* the section that inline trees are in */
	uint64_t size;          /* bytes of data */
	uint64_t inlined_size;
	uint64_t inlined_base; /* where in that section trees count from; above its size: no tree is known */
	uint64_t text;         /* ELF address that functions count from */
	uint64_t functions;    /* how many; then where in `data` each part begins */
	uint64_t units, files, values, lines;
	uint32_t magic;
	uint32_t quantum; /* bytes of the smallest instruction */
};

/* Columns that the caller owns, and how many rows they have room for. */
struct go_columns {
	uint64_t *range_start;   /* ascending; a range reaches to the next, the last of a function's only ends */
	uint32_t *range_node;    /* GO_NO_ID: no function from here */
	uint32_t *range_file;    /* where in the file names, or GO_NO_ID */
	uint32_t *range_line;    /* 0: not known */
	uint32_t *node_function; /* where in the function names */
	uint32_t *node_parent;   /* GO_NO_ID: a function of its own; a parent stands before its calls */
	uint32_t *node_call_file, *node_call_line;
	int32_t *node_tree; /* number in the function's inline tree; -1 for the function itself */
	uint64_t range_room, node_room;
	uint64_t ranges, nodes; /* rows written */
	uint64_t steps;         /* in: how much may be done for all; out: what is left, 0 where it did not do */
};

/* The functions that some addresses (sorted) fall into. Returns 0, or -1 where there is too little room. */
int tdprof_go_lines(const struct go_functions *table, const uint64_t *wanted, uint64_t wanted_count,
                    struct go_columns *columns);

#endif
