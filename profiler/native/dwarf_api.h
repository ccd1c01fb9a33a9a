/* SPDX-License-Identifier: Apache-2.0 */
/* What Python (tdprof/symbolize/dwarf.py) and the fuzz target call and share. */
#ifndef TDPROF_DWARF_API_H
#define TDPROF_DWARF_API_H

#include <stdint.h>

enum section_id {
	SECTION_INFO,
	SECTION_ABBREV,
	SECTION_LINE,
	SECTION_STR,
	SECTION_LINE_STR,
	SECTION_RNGLISTS,
	SECTION_RANGES,
	SECTION_ADDR,
	SECTION_STR_OFFSETS,
	SECTION_COUNT
};

struct dwarf_section {
	const uint8_t *data;
	uint64_t size;   /* bytes, uncompressed */
	uint8_t *unread; /* NULL, or `data`: zeros so far, into which `fd` is read from `offset` on, when needed */
	uint64_t offset;
	int64_t fd;
};

struct dwarf_sizes {
	uint64_t ranges, nodes, functions, files;
	uint64_t function_bytes, file_bytes;
	uint64_t units, bad_units;
	uint64_t first_bad_offset; /* in .debug_info, of the first bad unit */
	uint64_t is_spent;         /* reading ended before all units were read: they would take too long */
};

/* Columns that the caller owns, with as many items as dwarf_sizes says. */
struct dwarf_columns {
	uint64_t *range_start;
	uint32_t *range_node; /* NO_ID: no function is known from here */
	uint32_t *range_file, *range_line;
	uint32_t *node_function, *node_file, *node_parent, *node_call_file, *node_call_line;
	uint64_t *function_name; /* offsets into function_text */
	uint64_t *file_name;     /* offsets into file_text */
	char *function_text, *file_text;
};

struct dwarf_skeleton {
	uint64_t unit;
	uint64_t dwo_id;
	const char *name, *directory; /* inside the sections; NULL if absent */
};

struct dwarf_index;

/* Read the unit headers of a file. The sections (SECTION_COUNT of them; `shared` may be NULL) must stay where they
 * are until the index is closed. Addresses outside [text_start, text_end) are those of discarded code. What reading
 * takes is bounded by the sections' sizes and by `file_bytes`, what they take in their files. NULL: no memory, or too
 * little for what is asked for. */
struct dwarf_index *tdprof_dwarf_open(const struct dwarf_section *sections, const struct dwarf_section *shared,
                                      uint64_t text_start, uint64_t text_end, uint64_t file_bytes);
/* The units whose DIEs are in a file of their own (.dwo): fills up to `capacity` rows, returns how many there are. */
uint64_t tdprof_dwarf_skeletons(const struct dwarf_index *index, struct dwarf_skeleton *rows, uint64_t capacity);
/* Give a skeleton its full unit. Returns 0, or -1 if the sections hold no unit with the skeleton's id. */
int tdprof_dwarf_add_split(struct dwarf_index *index, uint64_t number, const struct dwarf_section *sections);
/* Read the units: all of them, or with `wanted` (sorted addresses) only the functions that those fall into. Called
 * once for an index. Returns 0, or -1 if there was not enough memory, or more would be needed than the file may ask. */
int tdprof_dwarf_build(struct dwarf_index *index, const uint64_t *wanted, uint64_t wanted_count, unsigned threads);
void tdprof_dwarf_sizes(const struct dwarf_index *index, struct dwarf_sizes *sizes);
void tdprof_dwarf_copy(const struct dwarf_index *index, const struct dwarf_columns *columns);
void tdprof_dwarf_close(struct dwarf_index *index);

#endif
