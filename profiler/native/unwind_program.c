// SPDX-License-Identifier: Apache-2.0
/* Call-frame instructions (6.4.2) to rows. */
#include "unwind_build.h"

enum {
	DW_CFA_nop = 0x00,
	DW_CFA_advance_loc1 = 0x02,
	DW_CFA_advance_loc2 = 0x03,
	DW_CFA_advance_loc4 = 0x04,
	DW_CFA_offset_extended = 0x05,
	DW_CFA_restore_extended = 0x06,
	DW_CFA_undefined = 0x07,
	DW_CFA_same_value = 0x08,
	DW_CFA_register = 0x09,
	DW_CFA_remember_state = 0x0a,
	DW_CFA_restore_state = 0x0b,
	DW_CFA_def_cfa = 0x0c,
	DW_CFA_def_cfa_register = 0x0d,
	DW_CFA_def_cfa_offset = 0x0e,
	DW_CFA_def_cfa_expression = 0x0f,
	DW_CFA_expression = 0x10,
	DW_CFA_offset_extended_sf = 0x11,
	DW_CFA_def_cfa_sf = 0x12,
	DW_CFA_def_cfa_offset_sf = 0x13,
	DW_CFA_val_offset = 0x14,
	DW_CFA_val_offset_sf = 0x15,
	DW_CFA_val_expression = 0x16,
	DW_CFA_AARCH64_negate_ra_state_with_pc = 0x2c,
	DW_CFA_AARCH64_negate_ra_state = 0x2d,
	DW_CFA_GNU_args_size = 0x2e,
	DW_CFA_GNU_negative_offset_extended = 0x2f,
	DW_CFA_advance_loc = 0x40,
	DW_CFA_offset = 0x80,
	DW_CFA_restore = 0xc0,

	MOST_REMEMBERED = 16, /* states; compilers nest one or two */

	RBX = 3, /* DWARF numbers of x86-64 */
	BY_RBX = UNWIND_CFA_REGISTER + RBX,
	BY_RCX = UNWIND_CFA_REGISTER + 2,
};

struct run {
	struct cursor c;
	const struct cie *cie;
	uint16_t machine;
	struct frame_row row;
	packed_rule rule; /* of the row, if `is_known` */
	bool is_known;
	struct frame_row remembered[MOST_REMEMBERED];
	unsigned depth;
	uint8_t last;               /* instruction */
	uint64_t place, end;        /* where the row begins to hold; where the function ends */
	place_t start, before;      /* where the function begins, and the row before */
	bool is_by_rcx;             /* there was a row with the CFA by RCX: its code is read once */
	bool leaves;                /* it goes on in a handler there */
	bool needs_rbx;             /* its callers are not known before it has saved RBX */
	struct kept_rbx *kept;      /* where there is one, rows are run for this alone */
	bool saves_x0;              /* as who goes on in a handler does on aarch64 */
	bool is_whole;              /* nothing was cut off its end */
	uint64_t pushed;            /* bytes between what the rows take for the CFA and the CFA */
	struct unwind_table *table; /* NULL: no rows are added; of a CIE, which has no places, or for `kept` */
};

static int64_t factored(const struct run *run, int64_t value)
{
	return (int64_t)((uint64_t)value * (uint64_t)run->cie->data_align);
}

static bool is_slot(int64_t offset)
{
	return !(offset & 7) && offset >= INT16_MIN && offset < (UNWIND_FP_SAME & ~7);
}

/* A slot as a rule says it: from the CFA or, where that is too far, from what the CFA is relative to; false if it has
 * no form. */
static bool make_slot(const struct frame_row *row, uint16_t machine, struct saved saved, int16_t *slot)
{
	int64_t by_base = (int64_t)((uint64_t)saved.offset + (uint64_t)row->cfa_offset);

	if (saved.kind == SAVED_AT_CFA && !is_slot(saved.offset) && row->cfa == UNWIND_NONE) {
		if (row->cfa_register == SP_REGISTER(machine))
			saved = (struct saved){ SAVED_AT_SP, by_base };
		else if (row->cfa_register == FP_REGISTER(machine))
			saved = (struct saved){ SAVED_AT_FP, by_base };
	}
	if (saved.kind < SAVED_AT_CFA || saved.kind > SAVED_AT_SP || !is_slot(saved.offset))
		return false;
	*slot = (int16_t)saved.offset;
	if (saved.kind == SAVED_AT_FP)
		*slot |= UNWIND_FP_BY_FP;
	else if (saved.kind == SAVED_AT_SP)
		*slot |= UNWIND_FP_BY_SP;
	return true;
}

/* Whether the return address is in LR: it was not saved, or what it was saved in has been popped. */
static bool is_in_lr(const struct frame_row *row)
{
	if (row->ra.kind == SAVED_AT_CFA)
		return row->cfa == UNWIND_NONE && row->cfa_register == SP_REGISTER(MACHINE_AARCH64) &&
		       row->ra.offset < -row->cfa_offset;
	return row->ra.kind == SAVED_SAME || row->ra.kind == SAVED_UNSPECIFIED;
}

static packed_rule make_rule(const struct frame_row *row, uint16_t machine)
{
	bool is_by_register = row->cfa == UNWIND_NONE;
	uint8_t cfa = is_by_register ? cfa_by_register(row->cfa_register, machine) : row->cfa, ra;
	int64_t offset = is_by_register ? row->cfa_offset : row->expression_offset;
	bool is_saved = row->fp.kind >= SAVED_AT_CFA;
	int64_t distance;
	int16_t slot = UNWIND_FP_SAME;

	if (row->ra.kind == SAVED_UNDEFINED)
		return UNWIND_STOP;
	if (cfa == UNWIND_UNSUPPORTED || offset != (int32_t)offset || row->sp.kind > SAVED_SAME ||
	    (is_saved && !make_slot(row, machine, row->fp, &slot)))
		return UNWIND_UNSUPPORTED;
	if (row->ra.kind == SAVED_AT_CFA && row->ra.offset == -8 && machine == MACHINE_X86_64) {
		ra = UNWIND_RA_CFA;
	} else if (machine == MACHINE_AARCH64 && is_in_lr(row)) {
		ra = UNWIND_RA_LR;
	} else if (row->ra.kind == SAVED_AT_CFA && !is_saved) {
		if (!make_slot(row, machine, row->ra, &slot))
			return UNWIND_UNSUPPORTED;
		ra = UNWIND_RA_SLOT;
	} else if (row->ra.kind == SAVED_AT_CFA && row->fp.kind == SAVED_AT_CFA) {
		distance = row->ra.offset - row->fp.offset;
		if (distance & 7 || distance < -64 * 8 || distance >= 64 * 8)
			return UNWIND_UNSUPPORTED;
		ra = (uint8_t)(UNWIND_RA_NEAR + distance / 8);
	} else if (machine == MACHINE_X86_64 && row->ra.kind == SAVED_IN_REGISTER && (uint64_t)row->ra.offset < 16) {
		ra = (uint8_t)(UNWIND_RA_REGISTER + row->ra.offset);
	} else {
		return UNWIND_UNSUPPORTED;
	}
	return pack_rule(cfa, ra, slot, (int32_t)offset);
}

/* The rule of the row as it is now. */
static packed_rule rule_here(struct run *run)
{
	if (run->is_known)
		return run->rule;

	struct frame_row row = run->row;

	row.cfa_offset = (int64_t)((uint64_t)row.cfa_offset + run->pushed);
	if (row.ra.kind == SAVED_AT_CFA)
		row.ra.offset = (int64_t)((uint64_t)row.ra.offset - run->pushed);
	if (row.fp.kind == SAVED_AT_CFA)
		row.fp.offset = (int64_t)((uint64_t)row.fp.offset - run->pushed);
	run->rule = make_rule(&row, run->machine);
	run->is_known = true;
	return run->rule;
}

/* False if RBX is in another slot than in a row before. */
static bool note_rbx(const struct frame_row *row, struct kept_rbx *kept)
{
	if (row->rbx.kind != SAVED_AT_CFA) {
		kept->is_throughout = false;
		return row->rbx.kind <= SAVED_SAME;
	}
	if (!kept->slot)
		kept->slot = row->rbx.offset;
	return kept->slot == row->rbx.offset;
}

static const uint8_t SET_FP[] = { 0x48, 0x89, 0xe5 };   /* mov %rsp, %rbp */
static const uint8_t RESET_SP[] = { 0x48, 0x89, 0xec }; /* mov %rbp, %rsp */
#define PUSHED_FP pack_rule(UNWIND_CFA_SP, UNWIND_RA_CFA, -16, 16)
#define BY_FP     pack_rule(UNWIND_CFA_FP, UNWIND_RA_CFA, -16, 16)

static bool is_forgotten(const struct forgotten_frames *forgotten, place_t row)
{
	for (unsigned i = 0; i < forgotten->count; i++)
		if (forgotten->rows[i] == row)
			return true;
	return false;
}

/* Whether the row before had a frame by RBP: since RBP was pushed the code has set it, and now SP by it. */
static bool had_forgotten_frame(struct run *run)
{
	struct forgotten_frames *forgotten = &run->table->forgotten;
	uint64_t size = run->place - run->before;
	uint8_t first[sizeof(SET_FP)], last[sizeof(RESET_SP)];
	const struct unwind_input *input = run->table->input;

	if (is_forgotten(forgotten, run->before))
		return true;
	if (run->machine != MACHINE_X86_64 || rule_here(run) != PUSHED_FP || run->table->last_rule != PUSHED_FP ||
	    !input->read_code || size < sizeof(first) + sizeof(last) || forgotten->count == MOST_FORGOTTEN)
		return false;
	uint64_t address = elf_address(run->table, run->before);

	if (input->read_code(address, first, sizeof(first)) ||
	    input->read_code(address + size - sizeof(last), last, sizeof(last)) ||
	    memcmp(first, SET_FP, sizeof(first)) || memcmp(last, RESET_SP, sizeof(last)))
		return false;
	forgotten->rows[forgotten->count++] = run->before;
	return true;
}

/* A row of the function that is read, which holds up to `end`. */
static void end_row(struct run *run, uint64_t end, packed_rule rule)
{
	place_t place = (place_t)run->place;
	struct placed_rule install[2];

	if (run->machine == MACHINE_AARCH64) {
		PUSH(run->table->function, &run->table->budget, (struct placed_rule){ place, rule });
		return;
	}
	if ((rule & 0xff) == BY_RCX && !run->is_by_rcx) {
		run->is_by_rcx = true;
		run->leaves = find_handler_install(run->table, run->start, place, install);
		run->leaves = run->leaves && install[0].place > run->before;
		for (unsigned i = 0; run->leaves && i < 2; i++)
			add_row(run->table, install[i].place, install[i].rule);
	}
	run->leaves = run->leaves && (rule & 0xff) != UNWIND_CFA_FP;
	if (run->leaves || (run->needs_rbx && run->row.rbx.kind != SAVED_AT_CFA))
		rule = UNWIND_UNSUPPORTED;
	if (rule == PUSHED_FP && is_forgotten(&run->table->forgotten, place)) {
		add_row(run->table, place, rule);
		add_row(run->table, place + (place_t)sizeof(SET_FP), BY_FP);
	} else if ((rule & 0xff) == BY_RBX) {
		add_rbx_row(run->table, place, (place_t)(end < run->end ? end : run->end), rule);
	} else if (run->table->has_parts) {
		add_row_until(run->table, place, (place_t)(end < run->end ? end : run->end), rule);
	} else {
		add_row(run->table, place, rule);
	}
	run->before = place;
}

/* The row holds up to here. False if the place is before the row, or where the function is not. */
static bool advance(struct run *run, uint64_t to)
{
	if ((!run->table && !run->kept) || to < run->place || (run->is_whole && to > run->end))
		return false;
	/* What a clipped function says of code behind its end is not needed, but no fault. */
	if (to > run->place && run->place < run->end) {
		if (!run->kept)
			end_row(run, to, rule_here(run));
		else if (!note_rbx(&run->row, run->kept))
			return false;
	}
	run->place = to;
	return to <= UINT64_MAX >> 1;
}

static bool advance_by(struct run *run, uint64_t delta)
{
	uint64_t bytes;

	if (run->is_whole && delta == 0)
		return false;
	return !__builtin_mul_overflow(delta, run->cie->code_align, &bytes) && bytes <= UINT64_MAX >> 2 &&
	       advance(run, run->place + bytes);
}

static void save(struct run *run, uint64_t number, enum saved_kind kind, int64_t offset)
{
	struct saved saved = { kind, offset };

	if (number == RA_REGISTER(run->machine))
		run->row.ra = saved;
	else if (number == FP_REGISTER(run->machine))
		run->row.fp = saved;
	else if (number == SP_REGISTER(run->machine))
		run->row.sp = saved;
	else {
		if (number == RBX)
			run->row.rbx = saved;
		run->saves_x0 = run->saves_x0 || number == 0;
		return; /* the rule is the same */
	}
	run->is_known = false;
}

static void restore(struct run *run, uint64_t number)
{
	const struct frame_row *initial = &run->cie->initial;

	if (number == RA_REGISTER(run->machine))
		save(run, number, initial->ra.kind, initial->ra.offset);
	else if (number == FP_REGISTER(run->machine))
		save(run, number, initial->fp.kind, initial->fp.offset);
	else if (number == SP_REGISTER(run->machine))
		save(run, number, initial->sp.kind, initial->sp.offset);
	else if (number == RBX)
		run->row.rbx = initial->rbx;
}

static void define_cfa(struct run *run, uint64_t number, int64_t offset)
{
	run->is_known = false;
	run->row.cfa = UNWIND_NONE;
	run->row.cfa_register = number < 64 ? (uint32_t)number : 64;
	run->row.cfa_offset = offset;
}

static struct cursor read_block(struct cursor *c)
{
	uint64_t size = read_uleb(c);
	struct cursor block = { .at = c->at, .end = c->at, .bad = c->bad };

	cursor_skip(c, size);
	if (!c->bad)
		block.end = c->at;
	return block;
}

/* Instructions that say where a register is. False: not one of them. */
static bool run_register(struct run *run, uint8_t op)
{
	struct cursor *c = &run->c;
	uint64_t number = read_uleb(c);

	switch (op) {
	case DW_CFA_offset_extended: save(run, number, SAVED_AT_CFA, factored(run, (int64_t)read_uleb(c))); return true;
	case DW_CFA_offset_extended_sf: save(run, number, SAVED_AT_CFA, factored(run, read_sleb(c))); return true;
	case DW_CFA_GNU_negative_offset_extended:
		save(run, number, SAVED_AT_CFA, factored(run, (int64_t)(0 - read_uleb(c))));
		return true;
	case DW_CFA_restore_extended: restore(run, number); return true;
	case DW_CFA_undefined: save(run, number, SAVED_UNDEFINED, 0); return true;
	case DW_CFA_same_value: save(run, number, SAVED_SAME, 0); return true;
	case DW_CFA_register: save(run, number, SAVED_IN_REGISTER, (int64_t)read_uleb(c)); return true;
	case DW_CFA_expression: {
		struct saved saved = saved_by_expression(read_block(c), run->machine);

		save(run, number, saved.kind, saved.offset);
		return true;
	}
	case DW_CFA_val_expression:
		read_block(c);
		save(run, number, SAVED_OTHERWISE, 0);
		return true;
	case DW_CFA_val_offset:
	case DW_CFA_val_offset_sf:
		skip_leb(c);
		save(run, number, SAVED_OTHERWISE, 0);
		return true;
	default: return false;
	}
}

/* Instructions that say where the CFA is. False: not one of them. */
static bool run_cfa(struct run *run, uint8_t op)
{
	struct cursor *c = &run->c;
	uint64_t number;

	switch (op) {
	case DW_CFA_def_cfa:
		number = read_uleb(c);
		define_cfa(run, number, (int64_t)read_uleb(c));
		return true;
	case DW_CFA_def_cfa_sf:
		number = read_uleb(c);
		define_cfa(run, number, factored(run, read_sleb(c)));
		return true;
	case DW_CFA_def_cfa_register:
		number = read_uleb(c);
		if (run->is_whole && run->row.cfa == UNWIND_NONE && number == run->row.cfa_register &&
		    !(run->table && had_forgotten_frame(run)))
			return false;
		define_cfa(run, number, run->row.cfa_offset);
		return true;
	case DW_CFA_def_cfa_offset: define_cfa(run, run->row.cfa_register, (int64_t)read_uleb(c)); return true;
	case DW_CFA_def_cfa_offset_sf: define_cfa(run, run->row.cfa_register, factored(run, read_sleb(c))); return true;
	case DW_CFA_def_cfa_expression:
		run->is_known = false;
		set_cfa_expression(&run->row, read_block(c), run->machine);
		return true;
	default: return false;
	}
}

/* One instruction; false if it breaks a rule. */
static bool run_instruction(struct run *run)
{
	struct cursor *c = &run->c;
	uint8_t op = read_u8(c), low = op & 0x3f;

	switch (op & 0xc0) {
	case DW_CFA_advance_loc: return advance_by(run, low);
	case DW_CFA_offset: save(run, low, SAVED_AT_CFA, factored(run, (int64_t)read_uleb(c))); return true;
	case DW_CFA_restore: restore(run, low); return true;
	default: break;
	}
	switch (op) {
	case DW_CFA_nop:
	case DW_CFA_AARCH64_negate_ra_state: /* whether it is signed: the signature is removed in any case */
	case DW_CFA_AARCH64_negate_ra_state_with_pc: return true;
	case DW_CFA_advance_loc1: return advance_by(run, read_u8(c));
	case DW_CFA_advance_loc2: return advance_by(run, read_u16(c));
	case DW_CFA_advance_loc4: return advance_by(run, read_u32(c));
	case DW_CFA_remember_state:
		if (run->depth == MOST_REMEMBERED)
			return false;
		run->remembered[run->depth++] = run->row;
		return true;
	case DW_CFA_restore_state:
		if (run->depth == 0)
			return false;
		run->row = run->remembered[--run->depth];
		run->is_known = false;
		return true;
	case DW_CFA_GNU_args_size: skip_leb(c); return true;
	default:
		return op >= DW_CFA_def_cfa && op <= DW_CFA_def_cfa_expression     ? run_cfa(run, op)
		       : op == DW_CFA_def_cfa_sf || op == DW_CFA_def_cfa_offset_sf ? run_cfa(run, op)
		                                                                   : run_register(run, op);
	}
}

static bool is_advance(uint8_t op)
{
	return (op & 0xc0) == DW_CFA_advance_loc || (op >= DW_CFA_advance_loc1 && op <= DW_CFA_advance_loc4);
}

/* Whether an assembler may write an instruction behind the last one: what does nothing is padding at the end, and no
 * place or state is left without anything said of it. */
static bool may_follow(uint8_t last, uint8_t op)
{
	return !(last == DW_CFA_nop && op != DW_CFA_nop) && !(is_advance(last) && is_advance(op)) &&
	       !(last == DW_CFA_remember_state && op == DW_CFA_restore_state);
}

static bool run_all(struct run *run)
{
	run->last = DW_CFA_restore; /* anything may follow */
	while (cursor_left(&run->c)) {
		uint8_t op = *run->c.at;

		if ((run->is_whole && !may_follow(run->last, op)) || !run_instruction(run) || run->c.bad)
			return false;
		run->last = op;
	}
	return true;
}

bool run_cie(const struct cie *cie, uint16_t machine, struct cursor program, struct frame_row *out)
{
	struct run run;

	memset(&run, 0, sizeof(run));
	run.c = program;
	run.cie = cie;
	run.machine = machine;
	run.row.cfa = UNWIND_UNSUPPORTED;
	if (!run_all(&run))
		return false;
	*out = run.row;
	return true;
}

/*
 * glibc's _dl_runtime_resolve on aarch64 takes no account of the 16 bytes that the PLT pushed: its rows have the return
 * address, which is one of them, above the CFA. Its first instructions say so.
 */
static uint64_t pushed_before(const struct run *run)
{
	struct cursor c = run->c;
	uint8_t op = read_u8(&c);

	if (op >> 6 == DW_CFA_advance_loc >> 6)
		op = read_u8(&c);
	if (run->machine != MACHINE_AARCH64 || op != DW_CFA_offset_extended_sf ||
	    read_uleb(&c) != RA_REGISTER(MACHINE_AARCH64))
		return 0;
	return factored(run, read_sleb(&c)) >= 0 && !c.bad ? 16 : 0;
}

static void begin_fde(struct run *run, const struct cie *cie, const struct fde *fde, uint16_t machine)
{
	run->c = fde->program;
	run->cie = cie;
	run->machine = machine;
	run->row = cie->initial;
	run->is_known = false;
	run->depth = 0;
	run->place = fde->start;
	run->start = run->before = fde->start;
	run->is_by_rcx = run->leaves = run->saves_x0 = run->needs_rbx = false;
	run->kept = NULL;
	run->end = fde->end;
	run->is_whole = fde->kind == ENTRY_EH_FRAME; /* those that overlap are none */
	run->pushed = pushed_before(run);
}

/* What was remembered is for code that comes back to it. */
static bool run_whole(struct run *run)
{
	return run_all(run) && (!run->is_whole || run->depth == 0);
}

bool run_fde(struct unwind_table *table, const struct cie *cie, const struct fde *fde, uint16_t machine)
{
	struct run run;

	if (cie->is_bad) {
		add_row(table, fde->start, UNWIND_NONE);
		return false;
	}
	if (cie->is_signal) {
		add_row(table, fde->start, UNWIND_SIGNAL);
		return true;
	}
	begin_fde(&run, cie, fde, machine);
	run.table = table;
	run.needs_rbx = is_called_with_rbx(&table->lazy, fde->start);
	bool is_good = run_whole(&run);

	if (run.place < run.end)
		end_row(&run, run.end, is_good ? rule_here(&run) : (packed_rule)UNWIND_NONE);
	if (machine == MACHINE_AARCH64 && !(run.saves_x0 && add_throwing_function(table, fde->start, fde->end)))
		add_function(table, fde->start, fde->end);
	return is_good;
}

bool find_kept_rbx(const struct entries *entries, const struct fde *fde, struct kept_rbx *kept)
{
	const struct cie *cie = &entries->cies.items[fde->cie];
	struct run run;

	*kept = (struct kept_rbx){ .is_throughout = true };
	if (cie->is_bad || cie->is_signal)
		return false;
	begin_fde(&run, cie, fde, entries->machine);
	run.table = NULL;
	run.kept = kept;
	return run_whole(&run) && (run.place >= run.end || note_rbx(&run.row, kept)) && kept->slot;
}
