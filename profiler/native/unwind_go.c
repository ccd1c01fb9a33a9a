// SPDX-License-Identifier: Apache-2.0
/* Go's .gopclntab, of Go 1.18 and later: for each function, how many bytes its frame has at each instruction.
 * Format: pcHeader, functab, _func and step() in runtime/symtab.go and runtime/runtime2.go. */
#include "unwind_go.h"

enum {
	/* words of pcHeader behind its first 8 bytes */
	WORD_FUNCTIONS = 0,
	WORD_TEXT = 2,
	WORD_NAMES = 3,
	WORD_PCTAB = 6,
	WORD_PCLN = 7,

	/* fields of _func */
	FUNC_NAME = 4,
	FUNC_PCSP = 16,
	FUNC_FLAGS_1_18 = 37,
	FUNC_FLAGS_1_20 = 41,

	FLAG_TOP_FRAME = 1, /* the outermost of a stack: goexit, mstart, rt0_go */
	FLAG_WRITES_SP = 2, /* changes to another stack */
};

#define MAGIC_1_18 0xfffffff0U
#define MAGIC_1_20 0xfffffff1U

/* How a function is unwound, in fde.cie. */
enum { GO_COUNTED, GO_OUTERMOST, GO_SWITCH, GO_SIGNAL, GO_PUT_IN, GO_KNOWN_SWITCH };

struct go_table {
	const struct unwind_section *section;
	uint64_t text, names, pctab, pcln;
	uint32_t flags_at; /* in _func */
};

static bool open_go(struct go_table *go, const struct unwind_input *input, uint64_t *functions)
{
	struct cursor c = cursor_over(input->gopclntab.data, input->gopclntab.size, 0);
	uint32_t magic = read_u32(&c);
	uint64_t words[WORD_PCLN + 1];

	if (magic != MAGIC_1_18 && magic != MAGIC_1_20)
		return false;
	cursor_skip(&c, 3); /* two zeros, bytes of the smallest instruction */
	uint8_t pointer_size = read_u8(&c);

	for (unsigned i = 0; i <= WORD_PCLN; i++)
		words[i] = read_u64(&c);
	if (c.bad || pointer_size != 8)
		return false;
	go->section = &input->gopclntab;
	/* A relocation fills it in where the program can be loaded anywhere. */
	go->text = words[WORD_TEXT] ? words[WORD_TEXT] : input->text_address;
	go->names = words[WORD_NAMES];
	go->pctab = words[WORD_PCTAB];
	go->pcln = words[WORD_PCLN];
	go->flags_at = magic == MAGIC_1_18 ? FUNC_FLAGS_1_18 : FUNC_FLAGS_1_20;
	*functions = words[WORD_FUNCTIONS];
	return true;
}

static struct cursor go_cursor(const struct go_table *go, uint64_t base, uint64_t offset)
{
	if (base > go->section->size)
		return (struct cursor){ .bad = true };
	return cursor_over(go->section->data + base, go->section->size - base, offset);
}

/* A function's name, or "". */
static const char *go_name(const struct go_table *go, uint32_t name)
{
	struct cursor c = go_cursor(go, go->names, name);
	const char *text = c.bad ? NULL : read_string(&c);

	return text ? text : "";
}

/* How a function is unwound, by its flags and name. */
static uint32_t kind_of(const struct go_table *go, uint8_t flags, uint32_t name_at)
{
	static const char SIGNAL_RETURN[] = "runtime.sigreturn"; /* with suffixes that versions differ in */
	const char *name = go_name(go, name_at);
	enum go_switch known = go_switch_named(name);

	if (flags & FLAG_TOP_FRAME)
		return GO_OUTERMOST;
	/* On some machines, and in older versions, clocks are read by functions that stay on their stack; and what
	 * calls one from code of another calling convention has its name. */
	if (known && (known == GO_CROSSCALL || flags & FLAG_WRITES_SP))
		return GO_KNOWN_SWITCH + known;
	/* mcall leaves its caller's stack for good. */
	if (flags & FLAG_WRITES_SP)
		return strcmp(name, "runtime.mcall") == 0 ? GO_OUTERMOST : GO_SWITCH;
	/* Signal handlers have these called where the signal came, as if the code there had. */
	if (strcmp(name, "runtime.sigpanic") == 0 || strcmp(name, "runtime.asyncPreempt") == 0)
		return GO_PUT_IN;
	return strncmp(name, SIGNAL_RETURN, sizeof(SIGNAL_RETURN) - 1) == 0 ? GO_SIGNAL : GO_COUNTED;
}

static void read_go_function(struct entries *entries, const struct unwind_table *table, const struct go_table *go,
                             uint64_t start, uint64_t end, uint32_t at)
{
	struct cursor name = go_cursor(go, go->pcln, (uint64_t)at + FUNC_NAME);
	struct cursor pcsp = go_cursor(go, go->pcln, (uint64_t)at + FUNC_PCSP);
	struct cursor flags = go_cursor(go, go->pcln, (uint64_t)at + go->flags_at);
	struct fde fde = { .kind = ENTRY_GO };
	uint32_t name_at = read_u32(&name), pcsp_at = read_u32(&pcsp);
	uint8_t flag = read_u8(&flags);

	if (name.bad || pcsp.bad || flags.bad) {
		entries->bad++;
		return;
	}
	/* No table: a mark inside of a function, such as the end of the text. */
	if (!pcsp_at || end <= start || !find_place(table, start, &fde.start))
		return;
	uint64_t most = segment_end(table, fde.start) - fde.start;

	fde.end = fde.start + (place_t)(end - start < most ? end - start : most);
	fde.program = go_cursor(go, go->pctab, pcsp_at);
	fde.cie = kind_of(go, flag, name_at);
	/* Its first address is a return address that no call left: it is looked up one byte before, as all are. */
	if (fde.start > 0 && (fde.cie == GO_SIGNAL || strcmp(go_name(go, name_at), "runtime.systemstack_switch") == 0))
		fde.start--;
	PUSH(entries->fdes, &entries->budget, fde);
}

void read_go_functions(struct entries *entries, const struct unwind_table *table, const struct unwind_input *input)
{
	struct go_table go;
	uint64_t functions;

	if (!input->gopclntab.size || !open_go(&go, input, &functions))
		return;
	struct cursor c = go_cursor(&go, go.pcln, 0);
	uint32_t start = read_u32(&c), at = read_u32(&c);

	for (uint64_t i = 0; i < functions && !c.bad; i++) {
		uint32_t end = read_u32(&c), next = i + 1 < functions ? read_u32(&c) : 0;

		if (!c.bad)
			read_go_function(entries, table, &go, go.text + start, go.text + end, at);
		start = end;
		at = next;
	}
}

/* Bytes of the frame (without the return address of x86-64) to a rule. Go's code finds its frames by SP alone, and
 * what C has above them gets its FP back from crosscall2: where else FP is saved does not matter. */
static packed_rule go_rule(int32_t bytes, uint16_t machine, bool is_put_in)
{
	if (bytes < 0 || bytes & 7)
		return UNWIND_UNSUPPORTED;
	if (machine == MACHINE_X86_64)
		return pack_rule(UNWIND_CFA_SP, UNWIND_RA_CFA, UNWIND_FP_SAME, bytes + 8);
	/* Who was interrupted has its x30 in 16 bytes that were made for it. */
	if (is_put_in)
		return pack_rule(UNWIND_CFA_SP, UNWIND_RA_INTERRUPTED, bytes ? UNWIND_FP_BY_SP : UNWIND_FP_SAME,
		                 bytes + 16);
	if (bytes == 0)
		return pack_rule(UNWIND_CFA_SP, UNWIND_RA_LR, UNWIND_FP_SAME, 0);
	/* The return address lies at the frame's lower end. */
	return pack_rule(UNWIND_CFA_SP, UNWIND_RA_SLOT, UNWIND_FP_BY_SP, bytes);
}

/* The parts of a function that changes stacks; false if they are not known. */
static bool read_parts(struct unwind_table *table, const struct fde *fde, uint16_t machine, struct go_parts *parts)
{
	uint8_t code[1024];
	uint32_t size = fde->end - fde->start;

	if (!table->input->read_code || size > sizeof(code) ||
	    table->input->read_code(elf_address(table, fde->start), code, size))
		return false;
	parts->current = table->go_current;

	enum go_switch kind = (enum go_switch)(fde->cie - GO_KNOWN_SWITCH);
	bool is_found = machine == MACHINE_X86_64 ? find_go_parts(kind, code, size, parts)
	                                          : find_go_arm_parts(kind, code, size, parts);

	table->go_current = parts->current;
	return is_found;
}

/* Rows from a place to where the frame has another size. */
static void add_counted(struct unwind_table *table, const struct go_parts *parts, place_t start, uint64_t place,
                        uint64_t end, int32_t bytes, uint16_t machine)
{
	uint64_t from = place;

	for (unsigned i = 0; i < parts->count; i++) {
		const struct go_part *part = &parts->part[i];
		uint64_t first = start + part->start, last = start + part->end;

		if (last <= from || first >= end)
			continue;
		if (first > from)
			add_row(table, (place_t)from, go_rule(bytes, machine, parts->is_put_in));
		add_row(table, (place_t)(first > from ? first : from), go_part_rule(part, bytes));
		from = last;
	}
	if (from < end)
		add_row(table, (place_t)from, go_rule(bytes, machine, parts->is_put_in));
}

bool run_go(struct unwind_table *table, const struct fde *fde, uint16_t machine)
{
	struct cursor c = fde->program;
	uint32_t bytes = UINT32_MAX; /* counts from -1 */
	uint64_t place = fde->start;
	struct go_parts parts = { .is_put_in = fde->cie == GO_PUT_IN };

	if (fde->cie > GO_KNOWN_SWITCH ? !read_parts(table, fde, machine, &parts)
	                               : fde->cie != GO_COUNTED && fde->cie != GO_PUT_IN) {
		add_row(table, fde->start,
		        fde->cie == GO_OUTERMOST ? (packed_rule)UNWIND_STOP
		        : fde->cie == GO_SIGNAL  ? (packed_rule)UNWIND_SIGNAL
		                                 : (packed_rule)UNWIND_UNSUPPORTED);
		return true;
	}
	/* Each step takes at least a byte of the function, so that all functions together take their text's size. */
	while (place < fde->end) {
		uint64_t change = read_uleb(&c);

		/* The end; what is left then is padding, which is never run. */
		if (!c.bad && !change && place != fde->start)
			return true;
		uint64_t distance = read_uleb(&c);

		if (c.bad || !distance) {
			add_row(table, (place_t)place, UNWIND_NONE);
			return false;
		}
		bytes += (uint32_t)(change & 1 ? ~(change >> 1) : change >> 1);

		uint64_t next = place + (distance & UINT32_MAX) * (machine == MACHINE_X86_64 ? 1 : 4);

		add_counted(table, &parts, fde->start, place, next < fde->end ? next : fde->end, (int32_t)bytes,
		            machine);
		place = next;
	}
	return true;
}
