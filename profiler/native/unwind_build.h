/* SPDX-License-Identifier: Apache-2.0 */
/* Call-frame information to an unwind table. Section numbers in comments are those of the DWARF 5 standard; .eh_frame
 * is described in the Linux Standard Base, Core, "Exception Frames".
 *
 *   unwind_entries.c     CIEs and FDEs of a section, sorted by address
 *   unwind_program.c     the instructions of an FDE to rows
 *   unwind_epilogue.c    what these leave out of aarch64's prologues and epilogues
 *   unwind_handler.c     where libgcc writes over its own frame
 *   unwind_lazy.c        where RBX is while the dynamic linker's entry, which counts from it, calls
 *   unwind_expression.c  the expressions that are recognised
 *   unwind_go.c          Go's table of stack depths to rows
 *   unwind_go_switch.c   where Go's functions change to another stack
 *   unwind_go_arm.c      the same of aarch64
 *   unwind_functions.c   the functions that symbols name
 *   unwind_code.c        code of x86-64 without any of these to rows, by its instructions, and V8's builtins
 *   unwind_code_state.c  what these instructions do
 *   unwind_data.c        data among such code
 *   unwind_arm_code.c    the same of aarch64
 *   unwind_arm_state.c   what these instructions do
 *   unwind_calls.c       where calls return to
 *   unwind_table.c       rows in order, rules numbered, gaps, the file's bytes
 *   unwind_build.c       the exported functions
 *
 * Input is never trusted: entries that cannot be read are counted, and none of their section is used; where the program
 * of one breaks a rule, its code has none from there on. */
#ifndef TDPROF_UNWIND_BUILD_H
#define TDPROF_UNWIND_BUILD_H

#include "dwarf_cursor.h"
#include "dwarf_memory.h"
#include "unwind_api.h"

enum { MACHINE_X86_64 = 62, MACHINE_AARCH64 = 183 }; /* e_machine */

/* Addresses of all segments in one line: bucket number × 256 + offset in it. */
typedef uint32_t place_t;

/* A rule as one number, as it lies in memory. */
typedef uint64_t packed_rule;

static inline packed_rule pack_rule(uint8_t cfa, uint8_t ra, int16_t fp, int32_t offset)
{
	return cfa | (packed_rule)ra << 8 | (packed_rule)(uint16_t)fp << 16 | (packed_rule)(uint32_t)offset << 32;
}

/* From here on a rule holds. */
struct placed_rule {
	place_t place;
	packed_rule rule;
};

/* A function of the file's symbol table. */
struct symbol {
	uint64_t address, size;
};

/* --- unwind_lazy.c --- */
enum { MOST_RBX_ROWS = 16, MOST_RBX_CALLS = 16 }; /* glibc has a few of each */

/* Code of which the CFA is relative to RBX. */
struct rbx_row {
	place_t start, end;
};

/* A call from such code: behind it RBX is not known, but where the function keeps it. */
struct rbx_call {
	place_t behind, function;
	int32_t slot; /* of RBX, from the CFA of the function */
};

/* Rows are noted while functions are read; once calls are known functions are read again. */
struct lazy_binding {
	struct rbx_row rows[MOST_RBX_ROWS];
	struct rbx_call calls[MOST_RBX_CALLS]; /* their places ascend */
	unsigned row_count, call_count;
	bool is_known;
};

/* --- unwind_program.c --- */
enum { MOST_FORGOTTEN = 16 };

/* Rows of functions that assembly gives a frame by RBP without saying so, as some of libmvec in glibc 2.41; noted
 * where they say that the CFA is by RSP again, and put right when functions are read again. */
struct forgotten_frames {
	place_t rows[MOST_FORGOTTEN]; /* where they begin */
	unsigned count;
};

/* --- unwind_table.c --- */
struct unwind_table {
	struct unwind_header header;
	struct unwind_segment segments[UNWIND_MOST_SEGMENTS];
	VECTOR(packed_rule) rules;
	VECTOR(uint32_t) rows;
	uint32_t *buckets;
	struct map rule_numbers;
	packed_rule last_rule; /* of the last row */
	uint32_t segment;      /* that rows are being added to */
	place_t covered;       /* rows say what holds up to here */
	uint32_t next_bucket;  /* the first that has no number yet */
	uint32_t next_stretch;
	bool has_parts; /* a stretch holds within a function */
	const struct unwind_input *input;
	VECTOR(struct symbol) functions; /* by address; read when they are first asked for */
	bool has_functions;
	uint32_t go_current;                 /* of struct go_parts, from function to function */
	VECTOR(struct placed_rule) function; /* rows of the one that is being read, on aarch64 */
	uint8_t *code;                       /* of a segment, once it was asked for */
	uint32_t code_segment;
	VECTOR(place_t) calls, beginnings; /* as in a table's file */
	struct lazy_binding lazy;
	struct forgotten_frames forgotten;
	VECTOR(uint32_t) doubtful; /* numbers of beginnings in the segment that no padding lies before */
	struct budget budget;      /* without limit */
};

bool open_table(struct unwind_table *table, const struct unwind_input *input);
/* The place of an ELF address; false if it is in no executable segment. */
bool find_place(const struct unwind_table *table, uint64_t address, place_t *place);
/* Where a segment begins. */
place_t segment_start(const struct unwind_segment *segment);
/* The ELF address of a place. */
uint64_t elf_address(const struct unwind_table *table, place_t place);
/* The code of so many places of one segment, to be freed; NULL if it cannot be had. */
uint8_t *read_places(const struct unwind_table *table, place_t start, uint32_t size);
/* Where the segment of a place ends. */
place_t segment_end(const struct unwind_table *table, place_t place);
/* From here to `end`, which is in the same segment, rows will be added; what lies before is filled. Places ascend. */
void begin_rows(struct unwind_table *table, place_t start, place_t end);
void add_row(struct unwind_table *table, place_t place, packed_rule rule);
/* The rule of a stretch of the input that stands for the FDE of a function, for which rows are being added; false if
 * none does. */
bool find_certain(const struct unwind_table *table, place_t start, place_t end, packed_rule *rule);
/* Add a row that holds up to `end`, but for stretches of the input that hold within functions. */
void add_row_until(struct unwind_table *table, place_t place, place_t end, packed_rule rule);
/* Fill what is left. */
void finish_table(struct unwind_table *table);

/* --- unwind_calls.c --- */
/* Leave those out of the beginnings in the segment that rows were added to which execution may return to. */
void check_beginnings(struct unwind_table *table);

/* --- unwind_program.c: where a register's value in the caller is --- */
enum saved_kind {
	SAVED_UNSPECIFIED,
	SAVED_SAME,
	SAVED_UNDEFINED,
	SAVED_AT_CFA, /* in the slot at CFA + offset */
	SAVED_AT_FP,  /* in the slot at FP + offset */
	SAVED_AT_SP,
	SAVED_IN_REGISTER, /* number `offset` */
	SAVED_OTHERWISE,   /* by an expression that is not recognised */
};

struct saved {
	enum saved_kind kind;
	int64_t offset;
};

/* One row of call-frame information, as far as a walk needs it (6.4.1). */
struct frame_row {
	uint8_t cfa;               /* enum unwind_cfa of an expression; UNWIND_NONE: by register */
	int64_t expression_offset; /* of the rule, with an expression */
	uint32_t cfa_register;     /* an expression leaves these two as they were */
	int64_t cfa_offset;
	struct saved ra, fp, sp, rbx; /* RBX: x86-64's */
};

/* --- unwind_entries.c --- */
struct cie {
	uint64_t offset; /* in its section */
	uint64_t code_align;
	int64_t data_align;
	uint8_t encoding;        /* of an FDE's addresses */
	uint8_t augmented_bytes; /* of an FDE's augmentation */
	bool is_augmented, is_signal, is_bad;
	struct frame_row initial;
};

/* Whose rows hold where entries of several kinds overlap: the first. Go's linker writes .debug_frame, too, which does
 * not say where stacks change. */
enum entry_kind { ENTRY_EH_FRAME, ENTRY_GO, ENTRY_DEBUG_FRAME, ENTRY_KINDS };

struct fde {
	place_t start, end;
	enum entry_kind kind;
	uint32_t cie; /* in the entries' list; of Go: how it is unwound */
	struct cursor program;
};

struct entries {
	VECTOR(struct cie) cies;
	VECTOR(struct fde) fdes;
	uint32_t bad;
	struct budget budget;
	uint16_t machine;
};

/* Of .eh_frame or .debug_frame. */
void read_entries(struct entries *entries, const struct unwind_table *table, const struct unwind_section *section,
                  enum entry_kind kind);
/* By address, each cut where the next begins. Returns how many of .eh_frame begin within another. */
uint32_t sort_entries(struct entries *entries);
/* An encoded pointer (LSB 10.5.1); `address` is that of its first byte. */
uint64_t read_pointer(struct cursor *c, uint8_t encoding, uint64_t address);

/* --- unwind_program.c --- */
/* The row that a CIE's instructions leave; false if they break a rule. */
bool run_cie(const struct cie *cie, uint16_t machine, struct cursor program, struct frame_row *out);
/* Add the rows of an FDE, the first at its start; false if it breaks a rule: what comes then has UNWIND_NONE. */
bool run_fde(struct unwind_table *table, const struct cie *cie, const struct fde *fde, uint16_t machine);

/* Where a function keeps RBX. */
struct kept_rbx {
	int64_t slot;       /* from the CFA; 0: nowhere yet */
	bool is_throughout; /* in each row */
};

/* Run an FDE's instructions for where RBX is alone. False if they break a rule, or have it in none or several slots. */
bool find_kept_rbx(const struct entries *entries, const struct fde *fde, struct kept_rbx *kept);

/* --- unwind_lazy.c --- */
/* Find the calls from the rows that were noted; false if there is none. Entries are sorted. */
bool find_rbx_calls(struct lazy_binding *lazy, const struct unwind_table *table, const struct entries *entries);
/* Whether a function is called from such rows, so that its caller is not known until it keeps RBX. */
bool is_called_with_rbx(const struct lazy_binding *lazy, place_t function);
/* Add a row with the CFA by RBX up to `end`, and those behind its calls. */
void add_rbx_row(struct unwind_table *table, place_t start, place_t end, packed_rule rule);

/* --- unwind_epilogue.c --- */
/* Add the rows in `function`, which is emptied, and those that the code from `start` to `end` has beside them. */
void add_function(struct unwind_table *table, place_t start, place_t end);
/* The code of the segment that rows are being added to, from its first place on; NULL if it is not at hand. Read once.
 */
const uint8_t *segment_code(struct unwind_table *table, place_t *first);

/* --- unwind_handler.c --- */
/* Of a function from `start` on that leaves for an exception's handler at `end`, where its CFA is by RCX: the rules
 * from where its frame is being written over, and from where others' are. False if it is no such function. */
bool find_handler_install(struct unwind_table *table, place_t start, place_t end, struct placed_rule out[2]);
/* The same of aarch64, where such functions save x0: add the rows in `function`, which is emptied, with these rules. */
bool add_throwing_function(struct unwind_table *table, place_t start, place_t end);

/* --- unwind_expression.c --- */
/* Set the CFA of `row`: to UNWIND_UNSUPPORTED if the expression is not recognised. */
void set_cfa_expression(struct frame_row *row, struct cursor expression, uint16_t machine);
/* Where an expression says that a register is saved. */
struct saved saved_by_expression(struct cursor expression, uint16_t machine);

/* --- unwind_go.c --- */
/* Go's functions as entries. */
void read_go_functions(struct entries *entries, const struct unwind_table *table, const struct unwind_input *input);
bool run_go(struct unwind_table *table, const struct fde *fde, uint16_t machine);

/* --- unwind_functions.c --- */
/* The file's functions by address, once. */
void read_functions(struct unwind_table *table);
/* The first function from an address on; the end of all. */
const struct symbol *first_function(const struct unwind_table *table, uint64_t address);

/* The functions that symbols name in some code, while its instructions are followed in their order. */
struct functions_of_code {
	const struct symbol *next, *behind; /* those to come, by address */
	uint32_t start, end;                /* of the last one, in the code; 0: there was none */
};

struct functions_of_code functions_from(const struct unwind_table *table, uint64_t address);

/* Whether a function begins `at` so many bytes of the `size` bytes of code at the ELF address `base`. */
static inline bool is_at_symbol(struct functions_of_code *functions, uint64_t base, uint32_t size, uint32_t at)
{
	bool is_found = false;

	for (; functions->next < functions->behind && functions->next->address <= base + at; functions->next++) {
		uint64_t bytes = functions->next->size;

		if (functions->next->address != base + at)
			continue;
		is_found = true;
		functions->start = at;
		functions->end = at + (bytes < size - at ? (uint32_t)bytes : size - at);
	}
	return is_found;
}

/* --- unwind_calls.c --- */
/* Note where execution returns to, if the finished table has rules that ask for it. */
void find_calls(struct unwind_table *table);

/* --- unwind_code.c, unwind_arm_code.c --- */
/* Add the rows of `size` bytes of code, of which the first is at `start` and has the ELF address `address`; functions
 * have been read. */
void infer_rows(struct unwind_table *table, place_t start, uint64_t address, const uint8_t *code, uint32_t size,
                bool is_builtins);
void infer_arm_rows(struct unwind_table *table, place_t start, uint64_t address, const uint8_t *code, uint32_t size,
                    bool is_builtins);

#define FP_REGISTER(machine) ((machine) == MACHINE_X86_64 ? 6U : 29U)
#define SP_REGISTER(machine) ((machine) == MACHINE_X86_64 ? 7U : 31U)
#define RA_REGISTER(machine) ((machine) == MACHINE_X86_64 ? 16U : 30U)

/* The kind of a CFA that is register + offset. */
static inline uint8_t cfa_by_register(uint32_t number, uint16_t machine)
{
	if (number == SP_REGISTER(machine))
		return UNWIND_CFA_SP;
	if (number == FP_REGISTER(machine))
		return UNWIND_CFA_FP;
	return machine == MACHINE_X86_64 && number < 16 ? (uint8_t)(UNWIND_CFA_REGISTER + number) : UNWIND_UNSUPPORTED;
}

#endif
