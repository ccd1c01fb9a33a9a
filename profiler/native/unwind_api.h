/* SPDX-License-Identifier: Apache-2.0 */
/* What Python (tdprof/native/unwind_api.py), the recorder and the fuzz targets call: tables are built from a file's
 * sections, put into the arrays of a session, and walked. The formats are those of bpf/unwind.h. */
#ifndef TDPROF_UNWIND_API_H
#define TDPROF_UNWIND_API_H

#include <stdint.h>

#include "unwind.h"

/* A section of the file, uncompressed; all 0 where the file has none. */
struct unwind_section {
	const uint8_t *data;
	uint64_t size;    /* bytes */
	uint64_t address; /* ELF address */
};

/* Code whose rule is known from elsewhere. Holds where no FDE does. */
struct unwind_stretch {
	uint64_t start, end; /* ELF addresses */
	struct unwind_rule rule;
	uint64_t kind; /* enum unwind_stretch_kind */
};

enum unwind_stretch_kind {
	UNWIND_STRETCH_PLAIN,
	UNWIND_STRETCH_CERTAIN,  /* holds for a function that lies wholly in it, whatever its FDE says */
	UNWIND_STRETCH_BUILTINS, /* V8's: rows are made of the instructions where these are known */
	UNWIND_STRETCH_WITHIN,   /* holds for a part of a function (aarch64: of a leaf), whatever its FDE says */
};

struct unwind_input {
	struct unwind_section eh_frame;
	struct unwind_section eh_frame_hdr; /* has where each of its functions begins; may be empty */
	struct unwind_section debug_frame;  /* fills what .eh_frame leaves open */
	struct unwind_section gopclntab;    /* the same for Go's code */
	struct unwind_section symbols;      /* rows of Elf64_Sym: where functions begin that nothing else tells of */
	/* Fills `code` with what lies at an ELF address; not 0: it cannot be read. NULL: no code is looked into. */
	int (*read_code)(uint64_t address, uint8_t *code, uint64_t size);
	uint64_t text_address;                  /* what Go's table counts from, where it does not say */
	const struct unwind_segment *segments;  /* executable ones by address; first_bucket is filled by the builder */
	const struct unwind_stretch *stretches; /* by address, not overlapping */
	uint32_t segment_count, stretch_count;
	uint16_t machine; /* EM_X86_64 or EM_AARCH64 */
	uint16_t identity_size;
	uint32_t
		is_vdso; /* aarch64's: what its instructions say from where a symbol is, or a call leads, is no guess */
	uint8_t identity[64];
};

struct unwind_table;

/* Work and memory are linear in the sections' sizes, whatever they hold. NULL: no memory, or too many segments or too
 * much text for the format. */
struct unwind_table *tdprof_unwind_build(const struct unwind_input *input);
/* Bytes of the table as a file. */
uint64_t tdprof_unwind_size(const struct unwind_table *table);
/* Fills as many bytes. */
void tdprof_unwind_write(const struct unwind_table *table, uint8_t *out);
void tdprof_unwind_close(struct unwind_table *table);

/* --- Tables in files' format, as a session uses them. --- */

/* Whether the bytes are a whole table of this version with all numbers in bounds. Reads each row once. */
int tdprof_unwind_check(const uint8_t *table, uint64_t size);

/* Where in a session's arrays the next table goes, and how much fits. */
struct unwind_session {
	struct unwind_rule *rules; /* number 0 is UNWIND_NONE */
	uint32_t *rule_slots;      /* 2 * UNWIND_MOST_RULES of them, 0 at first: finds equal rules */
	uint32_t *buckets, *rows;
	uint32_t rule_count, bucket_count, row_count;          /* used */
	uint32_t rule_capacity, bucket_capacity, row_capacity; /* that of rules is at most UNWIND_MOST_RULES */
};

/* Append a checked table; *first_bucket is where its bucket 0 lies. -1, and nothing changed but rules added, if there
 * is no room. A rule that does not fit any more becomes UNWIND_UNSUPPORTED. */
int tdprof_unwind_place(struct unwind_session *session, const uint8_t *table, uint32_t *first_bucket);

/* An executable mapping's way into the buckets: the address `start` (page aligned) has the bucket `bucket`, each
 * further 256 bytes the next, up to `end`. */
struct unwind_extent {
	uint64_t start, end;
	uint32_t bucket;
	uint32_t reserved;
};

/* The part of a mapping of a checked table's file that the table covers; -1 if it covers none of it. `bucket` counts
 * from the table's first. */
int tdprof_unwind_extent(const uint8_t *table, uint64_t start, uint64_t end, uint64_t file_offset,
                         struct unwind_extent *out);

/* --- The walk over copied stacks. --- */

enum unwind_mapping_kind {
	UNWIND_MAPPING_TABLE,
	UNWIND_MAPPING_JIT,
	UNWIND_MAPPING_NO_TABLE,
	UNWIND_MAPPING_TRAMPOLINES, /* of CPython's -X perf on x86-64, and nothing else: generated code whose rule is
	                               known */
};

struct unwind_mapping {
	uint64_t start, end;
	uint64_t file_offset;
	uint32_t table; /* number */
	uint32_t kind;  /* enum unwind_mapping_kind */
};

#define UNWIND_X86_64_WORDS  17 /* by DWARF number: rax rdx rcx rbx rsi rdi rbp rsp r8 … r15 rip */
#define UNWIND_AARCH64_WORDS 4  /* x29 x30 sp pc */

/* Many samples: columns of `count`, except where said. */
struct unwind_samples {
	const uint64_t *registers;   /* UNWIND_*_WORDS a sample */
	const uint32_t *space;       /* number of the address space */
	const uint64_t *stack_start; /* where the copied stack begins in `stack`; there lies the word at sp */
	const uint32_t *stack_bytes;
	const uint8_t *stack;
	uint64_t stack_total; /* bytes of `stack` */
	uint64_t count;
	uint32_t is_leaf_known; /* x86-64: not 0 if all registers are given, not only rbp, rsp and rip */
	uint16_t machine;
	uint16_t most_frames; /* of a stack */
	/* Bit n: the n-th page of 4 KiB, from that of sp on, was copied, as far as the copy's bytes reach; the others
	 * are not among the bytes. UNWIND_ALL_PAGES, and all if this is NULL: whatever there is, without a gap. */
	const uint64_t *pages;
};

#define UNWIND_ALL_PAGES UINT64_MAX
#define UNWIND_PAGE      4096

struct unwind_world {
	const uint32_t *first_mapping;         /* of each space in `mappings`, and one more, which ends the last */
	const struct unwind_mapping *mappings; /* executable ones of each space, by address, not overlapping */
	const uint8_t *const *tables;          /* checked */
	uint32_t spaces, table_count;
};

/* What is found: columns of `count`, and addresses one stack after the other. */
struct unwind_stacks {
	uint64_t
		*addresses; /* leaf first; callers as return addresses, an interrupted instruction as its address + 1 */
	uint64_t capacity;  /* of `addresses` */
	uint32_t *depth;
	uint8_t *end;           /* enum unwind_end */
	uint16_t *methods;      /* UNWIND_METHODS a sample */
	uint16_t *guessed_from; /* index of the first address that is a guess; 0: none is */
	uint8_t *is_lost;       /* whether it led to where nothing is mapped; NULL: nobody asks */
};

/* Walk samples until all are done or the next stack might not fit. Returns how many are done. */
uint64_t tdprof_unwind_walk(const struct unwind_samples *samples, const struct unwind_world *world,
                            const struct unwind_stacks *out);
/* The word of an enum unwind_end; NULL if there is no such. */
const char *tdprof_unwind_end_word(uint32_t end);

#endif
