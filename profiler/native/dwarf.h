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
	struct cursor dies; /* from the root DIE to the unit's end */
	uint64_t offset;    /* of the unit's header in .debug_info */
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
/* Of a file that is zeros; false: no memory. */
bool open_sections(struct debug_file *file, const struct dwarf_section *sections, struct budget *budget);
void close_sections(struct debug_file *file);
/* Have bytes of a section in memory, as far as it goes. False: its file does not have all of them any more. */
bool load_bytes(const struct debug_file *file, enum section_id id, uint64_t from, uint64_t bytes);
/* The same of a whole unit. Of other units than a walk's own and what value_reference() gives no DIE is read. */
bool load_unit(const struct unit *unit);

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
struct value read_value(struct cursor *c, const struct attribute *attribute, const struct unit *unit);
void skip_value(struct cursor *c, const struct attribute *attribute, const struct unit *unit);
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
/* The unit, in memory, and offset that a reference points at; NULL if it points nowhere. */
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
};

/* The linkage name of a function's DIE, through its origin and declaration; else its plain name.
 * Adds to `steps` what that took. */
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
	uint64_t text_start, text_end;
	uint16_t version;
	struct budget *budget;
};

/* Rows and sequences outside [text_start, text_end) belong to code that the linker discarded, and are left out. */
bool read_lines(const struct unit *unit, uint64_t text_start, uint64_t text_end, struct line_table *out);

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
	uint32_t parent; /* or NO_ID */
	uint32_t call_file, call_line;
};

/* What one thread has found, and its scratch memory. */
struct worker {
	struct dwarf_index *index;
	VECTOR(struct segment) segments;
	VECTOR(struct run) runs;
	VECTOR(struct node) nodes;
	VECTOR(const char *) functions; /* names, inside the sections or of the next */
	VECTOR(char *) scoped_names;
	VECTOR(uint64_t) files; /* offsets into file_text */
	VECTOR(char) file_text;
	struct map function_by_name, function_by_die, file_by_hash;
	uint64_t bad_units, first_bad_offset;
	struct budget budget;
	struct function_scratch *scratch;
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
	uint32_t next_unit;          /* handed out to threads */
	pthread_mutex_t scopes_lock; /* of the next two */
	VECTOR(struct unit_scopes *) scopes;
	struct map scopes_by_unit;
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
uint32_t intern_file(struct worker *worker, const char *text, size_t length);
bool open_worker(struct worker *worker, struct dwarf_index *index);
void close_worker(struct worker *worker);

/* --- dwarf_scope.c --- */
/* A plain name behind those of the scopes around its DIE. A function around it that has a linkage name
 * comes first, by that: `_Z3runv::{lambda#1}::operator()`. */
const char *scoped_name(struct worker *worker, const struct function_name *function);
void close_scopes(struct dwarf_index *index);

/* --- from the standard: tags (7.5.3), attributes (7.5.4), forms (7.5.6) --- */
enum {
	DW_TAG_class_type = 0x02,
	DW_TAG_lexical_block = 0x0b,
	DW_TAG_structure_type = 0x13,
	DW_TAG_union_type = 0x17,
	DW_TAG_inlined_subroutine = 0x1d,
	DW_TAG_module = 0x1e,
	DW_TAG_catch_block = 0x25,
	DW_TAG_subprogram = 0x2e,
	DW_TAG_try_block = 0x32,
	DW_TAG_namespace = 0x39,

	DW_LANG_C_plus_plus = 0x04, /* 7.5.12, and dwarfstd.org's list of languages that came after the standard */
	DW_LANG_C_plus_plus_03 = 0x19,
	DW_LANG_C_plus_plus_11 = 0x1a,
	DW_LANG_C_plus_plus_14 = 0x21,
	DW_LANG_C_plus_plus_17 = 0x2a,
	DW_LANG_C_plus_plus_20 = 0x2b,
	DW_LANG_C_plus_plus_23 = 0x3a,

	DW_AT_sibling = 0x01,
	DW_AT_name = 0x03,
	DW_AT_stmt_list = 0x10,
	DW_AT_low_pc = 0x11,
	DW_AT_high_pc = 0x12,
	DW_AT_language = 0x13,
	DW_AT_comp_dir = 0x1b,
	DW_AT_abstract_origin = 0x31,
	DW_AT_declaration = 0x3c,
	DW_AT_external = 0x3f,
	DW_AT_specification = 0x47,
	DW_AT_ranges = 0x55,
	DW_AT_call_file = 0x58,
	DW_AT_call_line = 0x59,
	DW_AT_linkage_name = 0x6e,
	DW_AT_str_offsets_base = 0x72,
	DW_AT_addr_base = 0x73,
	DW_AT_rnglists_base = 0x74,
	DW_AT_dwo_name = 0x76,
	DW_AT_MIPS_linkage_name = 0x2007,
	DW_AT_GNU_dwo_name = 0x2130,
	DW_AT_GNU_dwo_id = 0x2131,
	DW_AT_GNU_ranges_base = 0x2132,
	DW_AT_GNU_addr_base = 0x2133,

	DW_FORM_addr = 0x01,
	DW_FORM_block2 = 0x03,
	DW_FORM_block4 = 0x04,
	DW_FORM_data2 = 0x05,
	DW_FORM_data4 = 0x06,
	DW_FORM_data8 = 0x07,
	DW_FORM_string = 0x08,
	DW_FORM_block = 0x09,
	DW_FORM_block1 = 0x0a,
	DW_FORM_data1 = 0x0b,
	DW_FORM_flag = 0x0c,
	DW_FORM_sdata = 0x0d,
	DW_FORM_strp = 0x0e,
	DW_FORM_udata = 0x0f,
	DW_FORM_ref_addr = 0x10,
	DW_FORM_ref1 = 0x11,
	DW_FORM_ref2 = 0x12,
	DW_FORM_ref4 = 0x13,
	DW_FORM_ref8 = 0x14,
	DW_FORM_ref_udata = 0x15,
	DW_FORM_indirect = 0x16,
	DW_FORM_sec_offset = 0x17,
	DW_FORM_exprloc = 0x18,
	DW_FORM_flag_present = 0x19,
	DW_FORM_strx = 0x1a,
	DW_FORM_addrx = 0x1b,
	DW_FORM_ref_sup4 = 0x1c,
	DW_FORM_strp_sup = 0x1d,
	DW_FORM_data16 = 0x1e,
	DW_FORM_line_strp = 0x1f,
	DW_FORM_ref_sig8 = 0x20,
	DW_FORM_implicit_const = 0x21,
	DW_FORM_loclistx = 0x22,
	DW_FORM_rnglistx = 0x23,
	DW_FORM_ref_sup8 = 0x24,
	DW_FORM_strx1 = 0x25,
	DW_FORM_strx2 = 0x26,
	DW_FORM_strx3 = 0x27,
	DW_FORM_strx4 = 0x28,
	DW_FORM_addrx1 = 0x29,
	DW_FORM_addrx2 = 0x2a,
	DW_FORM_addrx3 = 0x2b,
	DW_FORM_addrx4 = 0x2c,
	DW_FORM_GNU_addr_index = 0x1f01,
	DW_FORM_GNU_str_index = 0x1f02,
	DW_FORM_GNU_ref_alt = 0x1f20,
	DW_FORM_GNU_strp_alt = 0x1f21,
};

#endif
