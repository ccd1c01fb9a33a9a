// SPDX-License-Identifier: Apache-2.0
/* Rules for code of x86-64 without call-frame information, out of its instructions: where the stack pointer is,
 * followed from each function's first instruction. What comes of it are guesses, and walks check each return address.
 *
 * Functions begin where a symbol does, where a call of the same stretch leads, and behind padding. Several passes, so
 * that the later know branches backwards. Where no branch is known to lead and none falls through, as behind a jump by
 * a table, the stack is taken for that of the function's body. */
#include "unwind_code.h"

enum {
	PASSES = 3,
	BLOCK = 64, /* bytes of code whose notes are one list */
};

/* What holds at an offset to which a branch or a call leads. */
struct note {
	struct code_state state;
	uint32_t at;
	uint32_t next; /* of the block's, its number; NO_NOTE */
};

struct stretch {
	uint32_t from, to;
};

#define NO_NOTE 0 /* the first is none */

struct analysis {
	struct unwind_table *table;
	const uint8_t *code;
	uint32_t size;
	place_t start;
	struct functions_of_code functions; /* from this stretch on */
	uint64_t base;                      /* ELF address of the first byte */
	VECTOR(struct note) notes;
	uint32_t *block_notes; /* by block the number of its last */
	uint8_t *known; /* of the instruction at each offset, once it was decoded: its length, and 16 × its effect */
	uint8_t *is_noted;           /* a bit for each offset that is in there: most are not */
	VECTOR(struct stretch) data; /* among the code, in order */
	uint32_t next_data;
	struct code_state state, body;
	uint8_t *is_odd;     /* of builtins: a bit for each beginning of one whose ways out do not fit its way in */
	bool is_behind_call; /* or behind its padding; it may never have returned */
	bool is_last_pass;
	bool is_builtins; /* V8's, of which each beginning is known */
};

static const struct code_state ENTRY = {
	.cfa = CODE_SP,
	.copy = NO_COPY,
	.ra = NO_COPY,
	.is_called = true,
	.fp_slot = UNWIND_FP_SAME,
	.depth = 8,
};

static bool is_padding(const struct analysis *a, const struct x86_instruction *i, uint32_t at)
{
	if (i->map == X86_0F)
		return i->opcode == 0x1f;
	return i->map == X86_ONE_BYTE && (i->opcode == 0xcc || (i->opcode == 0x90 && !(i->rex & 1)) ||
	                                  (a->code[at] == 0 && a->code[at + 1] == 0));
}

static bool is_set(const uint8_t *bits, uint32_t at)
{
	return bits[at / 8] >> at % 8 & 1;
}

/* What is noted for an offset; NULL. */
static struct code_state *noted_at(const struct analysis *a, uint32_t at)
{
	uint32_t number = is_set(a->is_noted, at) ? a->block_notes[at / BLOCK] : NO_NOTE;

	while (number != NO_NOTE && a->notes.items[number].at != at)
		number = a->notes.items[number].next;
	return number == NO_NOTE ? NULL : &a->notes.items[number].state;
}

static void note(struct analysis *a, uint32_t at, struct code_state state)
{
	uint32_t *last = &a->block_notes[at / BLOCK], number = a->notes.count;

	if (!PUSH(a->notes, &a->table->budget, (struct note){ state, at, *last }))
		return;
	*last = number;
	a->is_noted[at / 8] |= (uint8_t)(1 << at % 8);
}

/* Whether two states that meet have their frame in different places: code that pushes in a loop. */
static bool is_elsewhere(const struct code_state *state, const struct code_state *other)
{
	if (state->fp_depth != other->fp_depth || state->fp_slot != other->fp_slot)
		return true;
	if (state->fp_depth)
		return false;
	return state->cfa != other->cfa || (state->cfa == CODE_SP && state->depth != other->depth) ||
	       (state->cfa == CODE_POPPED && state->ra != other->ra) ||
	       (state->cfa == CODE_COPY && (state->copy != other->copy || state->copy_depth != other->copy_depth));
}

static void lose_frame(struct code_state *state)
{
	state->cfa = CODE_LOST;
	state->fp_depth = 0;
}

/* Where a branch from behind padding leads back to what was followed from further up, no function began there. */
static bool is_surer(const struct code_state *state, const struct code_state *noted)
{
	return state->doubt < noted->doubt ||
	       (state->doubt == 1 && noted->doubt == 1 && state->assumed < noted->assumed);
}

/* Note what holds where a branch leads; what was followed stands, what was assumed does not. */
static void note_branch(struct analysis *a, const struct x86_instruction *i, uint32_t at)
{
	int64_t target = (int64_t)at + i->length + i->immediate;

	if (target < 0 || target >= a->size)
		return;
	struct code_state *noted = noted_at(a, (uint32_t)target);
	struct code_state state = a->state;

	state.is_called = false;
	if (!noted)
		note(a, (uint32_t)target, state);
	else if (is_surer(&state, noted))
		*noted = state;
	else if (a->is_builtins && !state.doubt && !noted->doubt && is_elsewhere(noted, &state))
		lose_frame(noted);
}

static void note_call(struct analysis *a, const struct x86_instruction *i, uint32_t at)
{
	int64_t target = (int64_t)at + i->length + i->immediate;

	/* call to the next instruction: how position-independent code finds itself, never compiled for this machine. */
	if (target < 0 || target >= a->size || target == (int64_t)at + i->length)
		return;
	if (!noted_at(a, (uint32_t)target))
		note(a, (uint32_t)target, ENTRY);
}

/* What holds at an instruction, of which nothing else is known than what comes before it. */
static void arrive(struct analysis *a, uint32_t at, bool is_behind_padding)
{
	const struct code_state *noted = noted_at(a, at);

	if (is_at_symbol(&a->functions, a->base, a->size, at) ||
	    (noted && noted->is_called && at >= a->functions.end)) {
		a->state = ENTRY;
		a->state.is_builtin = a->is_builtins;
		a->state.doubt = a->is_builtins && is_set(a->is_odd, a->functions.start);
		a->body = a->state;
	} else if (a->is_builtins && a->state.cfa != CODE_DEAD && !a->is_behind_call && noted && !noted->doubt &&
	           !a->state.doubt && is_elsewhere(noted, &a->state)) {
		lose_frame(&a->state);
	} else if (a->state.cfa != CODE_DEAD &&
	           (!noted || noted->doubt > a->state.doubt ||
	            (!a->is_behind_call && (!a->state.doubt || is_surer(&a->state, noted))))) {
		return;
	} else if (noted) {
		a->state = *noted;
	} else if (at >= a->functions.end && (is_behind_padding || at % 16 == 0)) {
		a->state = a->body = ENTRY;
		a->state.doubt = 1;
		a->state.assumed = at;
	} else {
		a->state = a->body;
		a->state.doubt = 2;
	}
	a->state.is_called = false;
}

static void emit(struct analysis *a, uint32_t at)
{
	if (a->is_last_pass)
		add_row(a->table, a->start + at, a->is_builtins ? builtin_rule(&a->state) : code_rule(&a->state));
}

/* mov $15, %eax or %rax; syscall: what a signal handler returns to (__NR_rt_sigreturn). */
static bool is_signal_return(const struct analysis *a, const struct x86_instruction *i, uint32_t at)
{
	static const uint8_t LONG[] = { 0x48, 0xc7, 0xc0, 15, 0, 0, 0, 0x0f, 0x05 },
			     SHORT[] = { 0xb8, 15, 0, 0, 0, 0x0f, 0x05 };
	uint32_t left = a->size - at;

	if (i->immediate != 15)
		return false;
	return (left >= sizeof(LONG) && !memcmp(a->code + at, LONG, sizeof(LONG))) ||
	       (left >= sizeof(SHORT) && !memcmp(a->code + at, SHORT, sizeof(SHORT)));
}

/* A builtin that leaves otherwise than with its return address on top of the stack was not entered so either: it goes
 * on in a frame of another's. */
static void check_exit(struct analysis *a, const struct x86_instruction *i, uint32_t at)
{
	const struct code_state *state = &a->state;
	int64_t target = (int64_t)at + i->length + i->immediate;
	bool is_inside = x86_is_jump(i) && target >= a->functions.start && target < a->functions.end;
	bool is_whole =
		state->cfa == CODE_SP && state->depth == 8 && !state->fp_depth && state->fp_slot == UNWIND_FP_SAME;

	if (state->doubt || state->cfa == CODE_LOST || i->opcode == 0xcc || is_inside || is_whole)
		return;
	if (!x86_is_table_jump(i) || !state->fp_depth)
		a->is_odd[a->functions.start / 8] |= (uint8_t)(1 << a->functions.start % 8);
}

static void keep_body(struct analysis *a)
{
	if (a->state.cfa > CODE_SP || (a->state.cfa == CODE_SP && a->state.depth > a->body.depth))
		a->body = a->state;
}

/* One instruction; returns where the next one is. */
static uint32_t follow(struct analysis *a, uint32_t at)
{
	struct x86_instruction i = x86_decode(a->code + at, a->size - at);
	/* Of earlier passes, where it is known: what comes next does not have to wait for this to be decoded. */
	uint32_t next = at + (a->known[at] ? a->known[at] & 15 : i.length);

	if (!i.length) {
		a->state.cfa = CODE_LOST;
		emit(a, at);
		a->state.cfa = CODE_DEAD;
		return at + 1;
	}
	if (is_signal_return(a, &i, at)) {
		/* Its address is looked up one byte before, as all return addresses are. */
		if (a->is_last_pass && at)
			add_row(a->table, a->start + at - 1, UNWIND_SIGNAL);
		a->state.cfa = CODE_DEAD;
		return at + (i.length == 5 ? 7 : 9);
	}
	if (!a->known[at])
		a->known[at] = (uint8_t)(i.length | instruction_effect(&i) << 4);
	emit(a, at);
	a->is_behind_call = (i.map == X86_ONE_BYTE && i.opcode == 0xe8) ||
	                    (a->is_behind_call && at + 1 < a->size && is_padding(a, &i, at));
	if (x86_is_conditional(&i) || x86_is_jump(&i))
		note_branch(a, &i, at);
	else if (i.map == X86_ONE_BYTE && i.opcode == 0xe8)
		note_call(a, &i, at);
	if (x86_is_table_jump(&i))
		a->body = a->state;
	/* V8 writes int3 behind calls that never return. */
	if (x86_is_end(&i) || (a->is_builtins && i.map == X86_ONE_BYTE && i.opcode == 0xcc)) {
		if (a->is_builtins && i.map == X86_ONE_BYTE)
			check_exit(a, &i, at);
		a->state.cfa = CODE_DEAD;
	} else {
		bool is_popped = a->state.cfa == CODE_POPPED && !a->state.doubt;

		apply_instruction(&a->state, &i);
		/* What was popped over was no return address. */
		if (is_popped && a->state.cfa == CODE_LOST && i.map == X86_ONE_BYTE && (i.opcode & 0xf8) == 0x58)
			a->is_odd[a->functions.start / 8] |= (uint8_t)(1 << a->functions.start % 8);
		keep_body(a);
	}
	return next;
}

/* Where data begins from here on; the code's end. */
static uint32_t data_start(const struct analysis *a)
{
	return a->next_data < a->data.count ? a->data.items[a->next_data].from : a->size;
}

/* Over data that begins here; returns where code goes on. */
static uint32_t pass_data(struct analysis *a, uint32_t at)
{
	if (a->is_last_pass)
		add_row(a->table, a->start + at, UNWIND_NONE);
	a->state.cfa = CODE_DEAD;
	return a->data.items[a->next_data++].to;
}

/* Instructions that are known to leave the state as it is, up to where a branch leads or a function begins; returns
 * where the next one is. */
static uint32_t pass_over(struct analysis *a, uint32_t at)
{
	uint8_t least = (uint8_t)(least_effect(&a->state) << 4);
	uint64_t until = a->functions.next < a->functions.behind ? a->functions.next->address - a->base : a->size,
		 next = at;

	if (until > data_start(a))
		until = data_start(a);
	if (a->is_behind_call)
		return at;
	do {
		uint8_t known = a->known[next];

		if (!known || known >= least || next + (known & 15) > until)
			break;
		next += known & 15;
	} while (next < until && !is_set(a->is_noted, (uint32_t)next));
	if (next == at)
		return at;
	emit(a, at);
	a->is_behind_call = false;
	a->state.prologue = CODE_NO_PROLOGUE;
	keep_body(a);
	return (uint32_t)next;
}

static void run_pass(struct analysis *a, struct functions_of_code functions)
{
	bool is_behind_padding = true;

	a->functions = functions;
	a->is_behind_call = false;
	a->next_data = 0;
	a->state = (struct code_state){ .cfa = CODE_DEAD };
	a->body = ENTRY;
	for (uint32_t at = 0; at < a->size && !a->table->budget.exhausted;) {
		if (at >= data_start(a)) {
			at = pass_data(a, at);
			continue;
		}
		if (a->state.cfa == CODE_DEAD) {
			struct x86_instruction i = x86_decode(a->code + at, a->size - at);
			bool is_known = is_set(a->is_noted, at);

			if (i.length && at + 1 < a->size && !is_known && is_padding(a, &i, at)) {
				is_behind_padding = true;
				at += i.length;
				continue;
			}
		}
		arrive(a, at, is_behind_padding);
		is_behind_padding = false;
		uint32_t next = pass_over(a, at);

		if (next == at)
			next = follow(a, at);

		/* An instruction that reaches into a function was none. */
		if (a->functions.next < a->functions.behind && a->functions.next->address < a->base + next) {
			next = (uint32_t)(a->functions.next->address - a->base);
			a->state.cfa = CODE_DEAD;
		}
		at = next > at ? next : at + 1;
	}
}

/* Data is not followed; a function that a symbol names is not data. */
static void note_data(struct analysis *a)
{
	struct stretch found = { 0 };

	while (find_data(a->code, a->size, &found.from, &found.to)) {
		const struct symbol *next = first_function(a->table, a->base + found.from);

		if (next == a->functions.behind || next->address >= a->base + found.to)
			PUSH(a->data, &a->table->budget, found);
	}
}

void infer_rows(struct unwind_table *table, place_t start, uint64_t address, const uint8_t *code, uint32_t size,
                bool is_builtins)
{
	struct analysis a = { .table = table, .code = code, .size = size, .start = start, .base = address };
	uint64_t bit_bytes = size / 8 + 1;

	a.is_builtins = is_builtins;
	a.known = calloc(size + 2 * bit_bytes, 1);
	a.block_notes = calloc(size / BLOCK + 1, sizeof(*a.block_notes));
	if (a.known && a.block_notes && PUSH(a.notes, &table->budget, (struct note){ 0 })) {
		struct functions_of_code functions = functions_from(table, address);

		a.is_noted = a.known + size;
		a.is_odd = a.is_noted + bit_bytes;
		a.functions = functions;
		if (!is_builtins)
			note_data(&a);
		for (unsigned number = 0; number < PASSES; number++) {
			a.is_last_pass = number == PASSES - 1;
			run_pass(&a, functions);
		}
	} else {
		table->budget.exhausted = true;
	}
	free(a.known);
	free(a.block_notes);
	RELEASE(a.notes);
	RELEASE(a.data);
}
