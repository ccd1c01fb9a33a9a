// SPDX-License-Identifier: Apache-2.0
/* Rules for code of aarch64 without call-frame information, out of its instructions, as unwind_code.c makes them of
 * x86-64's: where SP is and where the return address is, followed from each function's first instruction. What comes of
 * it are guesses, but for the vDSO's, and walks check each return address. */
#include "unwind_arm_code.h"

enum {
	PASSES = 3, /* so that the later know branches backwards */
	WORD = 4,
	NO_NOTE = 0, /* the first is none */
};

struct arm_analysis {
	struct unwind_table *table;
	const uint8_t *code;
	uint32_t size; /* bytes, whole instructions */
	place_t start;
	uint64_t base;                      /* ELF address of the first byte */
	struct functions_of_code functions; /* from this instruction on */
	VECTOR(struct arm_state) notes;     /* what holds where branches and calls lead */
	uint32_t *note_numbers;             /* by instruction; NO_NOTE */
	uint8_t *is_odd; /* by instruction, of builtins: one begins here whose ways out do not fit its way in */
	struct arm_state state, body;
	uint32_t furthest;   /* to which a branch of the function leads */
	bool has_table;      /* it has a jump by a register, to what no branch leads to */
	bool is_behind_call; /* which may never have returned */
	bool is_last_pass;
	bool is_builtins;
};

static const struct arm_state ENTRY = {
	.cfa = ARM_CFA_SP,
	.is_called = true,
	.has_lr = true,
	.constant = ARM_NO_REGISTER,
	.fp_slot = NOT_SAVED,
	.lr_slot = NOT_SAVED,
};

static uint32_t word_at(const struct arm_analysis *a, uint32_t at)
{
	uint32_t word = 0;

	if (at + WORD <= a->size)
		memcpy(&word, a->code + at, sizeof(word));
	return word;
}

static struct arm_state *noted_at(const struct arm_analysis *a, uint32_t at)
{
	uint32_t number = a->note_numbers[at / WORD];

	return number == NO_NOTE ? NULL : &a->notes.items[number];
}

static void note(struct arm_analysis *a, uint32_t at, struct arm_state state)
{
	if (PUSH(a->notes, &a->table->budget, state))
		a->note_numbers[at / WORD] = a->notes.count - 1;
}

/* Whether two states that meet have their frame, or the return address, in different places. */
static bool is_elsewhere(const struct arm_state *state, const struct arm_state *other)
{
	if (state->fp_depth != other->fp_depth || state->fp_slot != other->fp_slot ||
	    state->lr_slot != other->lr_slot || (state->lr_slot == NOT_SAVED && state->has_lr != other->has_lr))
		return true;
	return !state->fp_depth && (state->cfa != other->cfa || state->depth != other->depth);
}

static void lose_frame(struct arm_state *state)
{
	state->cfa = ARM_CFA_LOST;
	state->fp_depth = 0;
}

/* All is the caller's, but for the return address, which is in LR. */
static bool is_whole(const struct arm_state *state)
{
	return state->has_lr && state->fp_slot == NOT_SAVED && !state->fp_depth;
}

/* What was followed stands, what was assumed does not. */
static void note_branch(struct arm_analysis *a, const struct arm_instruction *i, uint32_t at)
{
	int64_t target = (int64_t)at + i->offset;

	if (target < 0 || target >= a->size)
		return;
	struct arm_state *noted = noted_at(a, (uint32_t)target);
	struct arm_state state = a->state;

	/* A jump without a frame is a tail call. */
	if (target > a->furthest && (i->kind == ARM_CONDITIONAL || !is_whole(&state)))
		a->furthest = (uint32_t)target;
	state.is_called = false;
	if (!noted)
		note(a, (uint32_t)target, state);
	else if (noted->doubt > state.doubt)
		*noted = state;
	else if (!state.doubt && !noted->doubt && !noted->is_called && is_elsewhere(noted, &state))
		lose_frame(noted);
}

static void note_call(struct arm_analysis *a, const struct arm_instruction *i, uint32_t at)
{
	int64_t target = (int64_t)at + i->offset;

	if (i->offset == 0 || i->offset == WORD || target < 0 || target >= a->size)
		return;
	if (!noted_at(a, (uint32_t)target))
		note(a, (uint32_t)target, ENTRY);
}

/* Where nothing falls through and no branch is known to lead: behind all that the function before leads to, or with
 * PACIASP, BTI C, or what makes room on the stack, which are how functions begin, and little else does. */
static bool is_function_start(const struct arm_analysis *a, uint32_t at)
{
	uint32_t word = word_at(a, at);
	struct arm_instruction i = arm_decode(word);
	bool makes_room = (i.kind == ARM_ADD && i.first == ARM_SP && i.base == ARM_SP && i.offset < 0) ||
	                  (i.base == ARM_SP && i.writeback < 0);

	return at % 16 == 0 || word == ARM_PACIASP || word == ARM_PACIBSP || word == ARM_BTI_C || makes_room ||
	       (at > a->furthest && !a->has_table);
}

/* Of a function that begins here. */
static void enter_function(struct arm_analysis *a, uint32_t at, uint8_t doubt)
{
	a->state = ENTRY;
	a->state.is_builtin = a->is_builtins;
	a->state.doubt = doubt;
	a->body = a->state;
	a->furthest = at;
	a->has_table = false;
}

/* What holds at an instruction, of which nothing else is known than what comes before it. */
static void arrive(struct arm_analysis *a, uint32_t at, bool is_behind_padding)
{
	const struct arm_state *noted = noted_at(a, at);
	bool is_dead = a->state.cfa == ARM_CFA_DEAD;

	if (is_at_symbol(&a->functions, a->base, a->size, at) ||
	    (noted && noted->is_called && at >= a->functions.end)) {
		enter_function(a, at, a->is_builtins && a->is_odd[a->functions.start / WORD]);
	} else if (!is_dead && !a->is_behind_call && noted && !noted->doubt && !a->state.doubt &&
	           is_elsewhere(noted, &a->state)) {
		lose_frame(&a->state);
	} else if (!is_dead && (!noted || noted->doubt > a->state.doubt || (!a->state.doubt && !a->is_behind_call))) {
		return;
	} else if (noted) {
		a->state = *noted;
	} else if (at >= a->functions.end && (is_behind_padding || is_function_start(a, at))) {
		enter_function(a, at, 1);
	} else {
		a->state = a->body;
		a->state.doubt = 2;
	}
	a->state.is_called = false;
}

static void emit(struct arm_analysis *a, uint32_t at)
{
	packed_rule rule = arm_rule(&a->state);
	uint8_t kind = rule & 0x7f;

	if (!a->is_last_pass)
		return;
	/* Of a builtin, or of the kernel's vDSO, that was followed from its beginning it is no guess. */
	if ((a->is_builtins || a->table->input->is_vdso) && !a->state.doubt && kind < UNWIND_NONE)
		rule &= ~(packed_rule)UNWIND_INFERRED;
	add_row(a->table, a->start + at, rule);
}

/* A builtin that leaves otherwise than with its return address in LR was not entered so either: it goes on in a frame
 * of another's. */
static void check_exit(struct arm_analysis *a, const struct arm_instruction *i, uint32_t at)
{
	const struct arm_state *state = &a->state;
	int64_t target = (int64_t)at + i->offset;
	bool is_inside = i->kind == ARM_BRANCH && target >= a->functions.start && target < a->functions.end;
	bool is_trap = i->kind == ARM_END && !arm_is_return(word_at(a, at));

	if (state->doubt || is_trap || is_inside || is_whole(state) || (i->kind == ARM_JUMP && state->fp_depth))
		return;
	a->is_odd[a->functions.start / WORD] = 1;
}

/* MOV x8, #139; SVC #0: what a signal handler returns to. */
static bool is_signal_return(const struct arm_analysis *a, uint32_t at)
{
	return word_at(a, at) == ARM_SIGRETURN && word_at(a, at + WORD) == ARM_SVC;
}

static void follow(struct arm_analysis *a, uint32_t at)
{
	struct arm_instruction i = arm_decode(word_at(a, at));

	if (is_signal_return(a, at)) {
		/* Its address is looked up one byte before, as all return addresses are. */
		if (a->is_last_pass)
			add_row(a->table, a->start + at - (at ? 1 : 0), UNWIND_SIGNAL);
		a->state.cfa = ARM_CFA_DEAD;
		return;
	}
	emit(a, at);
	a->is_behind_call = i.kind == ARM_CALL;
	if (i.kind == ARM_CONDITIONAL || i.kind == ARM_BRANCH)
		note_branch(a, &i, at);
	else if (i.kind == ARM_CALL)
		note_call(a, &i, at);
	else if (i.kind == ARM_JUMP) {
		a->has_table = a->has_table || !is_whole(&a->state);
		a->body = a->state;
	}
	if (i.kind == ARM_BRANCH || i.kind == ARM_JUMP || i.kind == ARM_END) {
		if (a->is_builtins)
			check_exit(a, &i, at);
		a->state.cfa = ARM_CFA_DEAD;
		return;
	}
	apply_arm_instruction(&a->state, &i);
	if (a->state.fp_depth || (a->state.cfa == ARM_CFA_SP && a->state.depth > a->body.depth))
		a->body = a->state;
}

static bool is_padding(uint32_t word)
{
	return word == 0 || word == ARM_NOP;
}

static void run_pass(struct arm_analysis *a, struct functions_of_code functions)
{
	bool is_behind_padding = true;

	a->functions = functions;
	a->furthest = 0;
	a->is_behind_call = a->has_table = false;
	a->state = (struct arm_state){ .cfa = ARM_CFA_DEAD };
	a->body = ENTRY;
	for (uint32_t at = 0; at < a->size && !a->table->budget.exhausted; at += WORD) {
		if (a->state.cfa == ARM_CFA_DEAD && is_padding(word_at(a, at)) && !noted_at(a, at)) {
			is_behind_padding = true;
			continue;
		}
		if (at && is_signal_return(a, at - WORD))
			continue; /* its second instruction */
		arrive(a, at, is_behind_padding);
		is_behind_padding = false;
		follow(a, at);
	}
}

void infer_arm_rows(struct unwind_table *table, place_t start, uint64_t address, const uint8_t *code, uint32_t size,
                    bool is_builtins)
{
	struct arm_analysis a = { .table = table, .base = address, .start = start, .is_builtins = is_builtins };
	uint32_t skipped = -address & (WORD - 1);

	if (size < skipped + WORD)
		return;
	a.base += skipped;
	a.start += skipped;
	a.code = code + skipped;
	a.size = (size - skipped) & ~(uint32_t)(WORD - 1);
	a.note_numbers = calloc(a.size / WORD, sizeof(*a.note_numbers));
	a.is_odd = calloc(a.size / WORD, 1);
	if (a.note_numbers && a.is_odd && PUSH(a.notes, &table->budget, (struct arm_state){ 0 })) {
		struct functions_of_code functions = functions_from(table, a.base);

		for (unsigned number = 0; number < PASSES; number++) {
			a.is_last_pass = number == PASSES - 1;
			run_pass(&a, functions);
		}
	} else {
		table->budget.exhausted = true;
	}
	free(a.note_numbers);
	free(a.is_odd);
	RELEASE(a.notes);
}
