/* SPDX-License-Identifier: Apache-2.0 */
/* DWARF 2 to 5 to sorted address ranges with inline chains, files and lines. Section numbers in comments are those
 * of the DWARF 5 standard.
 *
 *   dwarf_section.c   sections that are read when they are needed
 *   dwarf_abbrev.c    abbreviation tables; attribute values
 *   dwarf_value.c     what values mean in a unit: strings, addresses, range lists, references
 *   dwarf_unit.c      unit headers and root DIEs; names of functions
 *   dwarf_scope.c     the scopes around C++ functions without linkage names
 *   dwarf_line.c      line programs to rows
 *   dwarf_function.c  the walk over a unit's DIEs: functions and inlined calls
 *   dwarf_segment.c   their names and files; inlined calls painted over line rows
 *   dwarf_index.c     threads, merging, the exported functions
 *
 * Input is never trusted: a unit that breaks a rule is counted and left out, the others are read. */
#ifndef TDPROF_DWARF_H
#define TDPROF_DWARF_H

#include "dwarf_api.h"
#include "dwarf_cursor.h"
#include "dwarf_memory.h"
#include "dwarf_standard.h"

#include <pthread.h>

struct attribute {
	uint16_t name;    /* DW_AT_* */
	uint16_t form;    /* DW_FORM_* */
	uint8_t size;     /* of the value in bytes, or FORM_VARIES */
	int64_t implicit; /* the value of DW_FORM_implicit_const */
};

#define FORM_VARIES 0xff

struct abbrev {
	uint64_t code;
	uint32_t first; /* of its attributes in the table's */
	uint32_t count;
	int32_t size; /* of a whole DIE's values in bytes, or -1 if it varies */
	uint16_t tag;
	bool has_children;
	bool is_code; /* a function or an inlined call that has addresses */
	bool is_declaration;
	bool has_sibling;
};

/* One contribution to .debug_abbrev, read with one unit's offset and address size. */
struct abbrev_table {
	uint64_t key;
	VECTOR(struct abbrev) abbrevs;
	VECTOR(struct attribute) attributes;
};

/* The sections that a set of units lives in: the file's own, the shared file of dwz, or one .dwo. */
struct debug_file {
	struct dwarf_section sections[SECTION_COUNT];
	struct section_blocks *blocks[SECTION_COUNT]; /* NULL: all of it is in memory */
	const struct debug_file *shared;              /* what the _alt and _sup forms refer to, or NULL */
	VECTOR(struct unit) units;                    /* by offset */
	VECTOR(struct abbrev_table *) tables;
	struct map table_by_key;
	uint64_t abbrev_budget; /* bytes of .debug_abbrev that may still be parsed */
};

/* A value as it stands in a DIE; `number` is the offset, index, address or constant. */
struct value {
	uint16_t form;    /* 0: the attribute is absent */
	const char *text; /* of DW_FORM_string */
	uint64_t number;
};

struct unit {
	const struct debug_file *file;
	const uint8_t *info;        /* what offsets into .debug_info count from */
	struct unit_memory *memory; /* of a worker, where its bytes are; NULL: in the section's */
	struct cursor dies;         /* from the root DIE to the unit's end, in memory or not: see all_dies() */
	uint64_t offset;            /* of the unit's header in .debug_info */
	const struct abbrev_table *table;
	uint16_t version;
	uint8_t offset_size; /* 4 or 8 */
	uint8_t address_size;
	bool is_bad;
	bool is_type_unit;
	/* from the root DIE */
	uint64_t language;     /* 0: it does not say */
	const char *directory; /* of compilation */
	uint64_t low_pc;
	struct value ranges, high_pc;
	uint64_t line_offset;
	bool has_lines;
	uint64_t addr_base, rnglists_base, str_offsets_base;
	uint64_t ranges_base; /* what a DWARF 4 .dwo adds to its offsets into .debug_ranges */
	uint64_t dwo_id;
	const char *dwo_name;
	/* where a split unit's addresses, ranges and lines are: its skeleton's; else itself */
	const struct unit *skeleton;
	struct unit *split; /* a skeleton's full unit, once found */
};

/* --- dwarf_section.c --- */
/* Used again and again for parts of a section: new pages cost more than what they are filled with. */
struct own_memory {
	uint8_t *bytes;
	uint64_t capacity;
};

/* Of a file that is zeros; false: no memory. */
bool open_sections(struct debug_file *file, const struct dwarf_section *sections, struct budget *budget);
void close_sections(struct debug_file *file);
/* Have bytes of a section in memory, as far as it goes. False: its file does not have all of them any more. */
bool load_bytes(const struct debug_file *file, enum section_id id, uint64_t from, uint64_t bytes);
/* Bytes of a section for who wants them once, until the next are read: as they are in memory, or in his own. */
struct cursor read_once(const struct debug_file *file, enum section_id id, uint64_t from, uint64_t bytes,
                        struct own_memory *memory, struct budget *budget);
/* A worker's memory for the unit that it reads. */
struct unit_memory {
	struct own_memory dies;
	struct own_memory is_read; /* by block */
	uint64_t start;            /* in .debug_info, of the first block */
	struct unit unit;
};

/* The unit as a worker reads it: its bytes, and what points to them, are there until the next one is opened. Itself if
 * its section is in memory, or it is too large. */
const struct unit *open_unit(const struct unit *unit, struct unit_memory *memory, struct budget *budget);
void close_unit_memory(struct unit_memory *memory);
/* What tells a text from all others: where it stands, or would if its unit were read into the section's memory. */
uint64_t place_of(const char *text, const struct unit_memory *memory);
/* A unit's DIEs, or those from an offset into .debug_info on, brought into memory as a cursor comes to them. Bad if
 * none of them is there. */
struct cursor all_dies(const struct unit *unit);
struct cursor dies_from(const struct unit *unit, uint64_t offset);

/* --- dwarf_abbrev.c --- */
const struct abbrev *search_abbrev(const struct abbrev_table *table, uint64_t code);
static inline const struct abbrev *find_abbrev(const struct abbrev_table *table, uint64_t code)
{
	/* Compilers number them from 1 without gaps. */
	if (code - 1 < table->abbrevs.count && table->abbrevs.items[code - 1].code == code)
		return &table->abbrevs.items[code - 1];
	return search_abbrev(table, code);
}
const struct abbrev_table *load_abbrev_table(struct debug_file *file, uint64_t offset, const struct unit *unit,
                                             struct budget *budget);
/* An attribute of no name, for values that stand outside DIEs. */
struct attribute make_attribute(uint16_t form, const struct unit *unit);
/* Of a value whose form does not fix its size, or that is longer than 8 bytes. */
struct value read_varied(struct cursor *c, const struct attribute *attribute, const struct unit *unit);
void skip_varied(struct cursor *c, const struct attribute *attribute, const struct unit *unit);
static inline struct value read_value(struct cursor *c, const struct attribute *attribute, const struct unit *unit)
{
	if (attribute->size && attribute->size <= 8)
		return (struct value){ .form = attribute->form, .number = read_fixed(c, attribute->size) };
	return read_varied(c, attribute, unit);
}
static inline void skip_value(struct cursor *c, const struct attribute *attribute, const struct unit *unit)
{
	if (attribute->size != FORM_VARIES)
		cursor_skip(c, attribute->size);
	else
		skip_varied(c, attribute, unit);
}
static inline void skip_values(struct cursor *c, const struct abbrev *abbrev, const struct unit *unit)
{
	if (abbrev->size >= 0)
		cursor_skip(c, (uint64_t)abbrev->size);
	else
		for (uint32_t i = 0; i < abbrev->count; i++)
			skip_value(c, &unit->table->attributes.items[abbrev->first + i], unit);
}

/* --- dwarf_value.c --- */
#define STRING_BYTES_A_STEP 64 /* that are searched for their end */

struct range {
	uint64_t start, end;
};

struct ranges {
	VECTOR(struct range) list;
	uint64_t entries_left; /* that may still be read */
	struct budget *budget;
};

/* The string that a value stands for; NULL if it is no string, is longer than any name, or lies outside its section.
 * Adds to `steps` what the search for its end took. */
const char *value_string(const struct unit *unit, const struct value *value, uint64_t *steps);
uint64_t value_address(const struct unit *unit, const struct value *value, bool *bad);
/* Append the ranges of low_pc and high_pc, or of a range list; false if it breaks a rule or has too many entries. */
bool value_ranges(const struct unit *unit, const struct value *low, const struct value *high, const struct value *list,
                  struct ranges *out);
/* Go on behind a DIE's children, if it says where that is. */
bool skip_children(struct cursor *c, const struct unit *unit, const struct value *sibling);
/* Skip a DIE's values and, if it says where they end, its children; whether it did. */
bool skip_die(struct cursor *c, const struct abbrev *abbrev, const struct unit *unit);
/* The unit and offset that a reference points at; NULL if it points nowhere. */
const struct unit *value_reference(const struct unit *unit, const struct value *value, uint64_t *offset);

/* --- dwarf_unit.c --- */
/* All unit headers of .debug_info with their root DIEs. */
void scan_units(struct debug_file *file, struct budget *budget);
const struct unit *unit_at(const struct debug_file *file, uint64_t offset);
struct function_name {
	const char *text; /* NULL: it has none */
	bool is_linkage;
	bool is_external;        /* without a linkage name that is C's, wherever it stands */
	const struct unit *unit; /* where a plain name's DIE is */
	uint64_t offset;
	const struct unit *file_unit; /* whose files `file` is one of; NULL: the file is not told */
	uint32_t file;                /* that it stands in */
};

/* The linkage name of a function's DIE, through its origin and declaration; else its plain name. And the file that it
 * stands in: of several the definition's, which comes first. Adds to `steps` what that took. */
struct function_name function_name(const struct unit *unit, uint64_t offset, uint64_t *steps);

/* --- dwarf_line.c --- */
struct line_row {
	uint64_t address;
	uint32_t file, line;
};

struct line_sequence {
	uint64_t start, end;
	uint32_t first, last; /* rows, half open */
};

struct line_file {
	const char *name;
	const char *directory;     /* or NULL */
	bool below_unit_directory; /* a relative directory that stands below that of the unit */
};

/* One unit's line table. Reused from unit to unit to keep its memory. */
struct line_table {
	VECTOR(struct line_row) rows;
	VECTOR(struct line_sequence) sequences; /* by start, not overlapping */
	VECTOR(struct line_file) files;
	VECTOR(const char *) directories;
	struct own_memory program; /* which the names stand in, too */
	uint64_t text_start, text_end;
	uint16_t version;
	struct budget *budget;
};

/* Rows and sequences outside [text_start, text_end) belong to code that the linker discarded, and are left out. */
bool read_lines(const struct unit *unit, uint64_t text_start, uint64_t text_end, struct line_table *out);
/* The files alone, of a unit that has lines. */
bool read_line_files(const struct unit *unit, struct line_table *out);

/* --- dwarf_function.c --- */
#define NO_ID UINT32_MAX

struct segment { /* up to the next one, or to its run's end */
	uint64_t start;
	uint32_t node; /* NO_ID: only the line is known */
	uint32_t file, line;
};

struct run { /* an unbroken stretch of segments */
	uint64_t start, end;
	uint32_t first, last; /* segments, half open */
	uint32_t unit;        /* for a stable order */
	bool is_gap;          /* lines that no function claims: gives way to any function */
};

struct node { /* a function, or a call inlined into its parent */
	uint32_t function;
	uint32_t file;   /* that the function stands in, or NO_ID */
	uint32_t parent; /* or NO_ID */
	uint32_t call_file, call_line;
};

/* A function whose name alone may be that of several, until scope_names() has told it apart. */
struct unscoped {
	const struct unit *unit; /* where the DIE that names it is */
	uint64_t offset;
	uint32_t id;
};

/* What a DIE says of a function. */
struct described {
	uint32_t function, file; /* each may be NO_ID */
};

/* What one thread has found, and its scratch memory. */
struct worker {
	struct dwarf_index *index;
	VECTOR(struct segment) segments;
	VECTOR(struct run) runs;
	VECTOR(struct node) nodes;
	VECTOR(const char *) functions;   /* names, inside the sections or of own_names */
	VECTOR(struct unscoped) unscoped; /* named by the unit that is read */
	VECTOR(struct unscoped) foreign;  /* named by other units */
	VECTOR(char *) own_names;
	VECTOR(uint64_t) files; /* offsets into file_text */
	VECTOR(char) file_text;
	VECTOR(struct described) described;
	struct map function_by_name, described_by_die, file_by_hash, file_by_place;
	uint64_t bad_units, first_bad_offset;
	struct budget budget;
	struct function_scratch *scratch;
	struct unit_memory unit_memory;
	/* set when the workers' findings are merged */
	uint32_t first_node, first_function;
	uint32_t *file_ids; /* of this worker's files among all */
};

struct dwarf_index {
	struct debug_file main, shared;
	VECTOR(struct debug_file *) splits;
	uint64_t text_start, text_end;
	const uint64_t *wanted; /* sorted addresses; NULL: everything is wanted */
	uint64_t wanted_count;
	uint32_t next_unit; /* handed out to threads */
	struct common_budget common_budget;
	struct budget budget; /* while no other thread runs */
	struct worker *workers;
	unsigned worker_count;
	VECTOR(struct placed_run) runs; /* of all workers, by start */
	uint32_t node_count, function_count;
	uint64_t function_bytes;
};

/* Add what one unit says; false if the unit is damaged (what was read until there is kept). */
bool index_unit(struct worker *worker, const struct unit *unit, uint32_t number);
/* A copy of a name that stays; NULL: no memory. */
const char *keep_name(struct worker *worker, const char *text, size_t bytes);
uint32_t intern_file(struct worker *worker, const char *text, size_t length);
bool open_worker(struct worker *worker, struct dwarf_index *index);
void close_worker(struct worker *worker);

/* --- dwarf_scope.c --- */
/* Put before plain names those of the scopes around their DIEs; orders `functions`. A function around one that has a
 * linkage name comes first, by that: `_Z3runv::{lambda#1}::operator()`. */
void scope_names(struct worker *worker, struct unscoped *functions, uint32_t count);

#endif
