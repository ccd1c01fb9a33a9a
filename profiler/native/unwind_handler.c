// SPDX-License-Identifier: Apache-2.0
/*
 * Where libgcc goes on in an exception's handler. A function that ends with __builtin_eh_return first calls
 * uw_init_context_1, with a structure in its frame, which keeps the return address, and with its CFA; and at the end
 * uw_install_context_1, with the structure and, behind it, that of the handler's function. It writes the handler's
 * registers over those in the frame, and then, or on aarch64 the function itself, where it returns to:
 * libgcc/unwind-dw2.c.
 */
#include "arm_instruction.h"
#include "unwind_build.h"
#include "x86_instruction.h"

enum {
	MOST_CODE = 64 << 10,
	MOV_TO = 0x89,
	LEA = 0x8d,
	CALL = 0xe8,
	/* Registers as instructions number them */
	RBP = 5,
	RSI = 6,
	RDI = 7,
	FRAME = 16,      /* CFA - RBP */
	FIRST_KEPT = 19, /* of x0 to x30: calls may change those before */
	REGISTERS = 32,
	NOT_KNOWN = INT32_MIN,
};

static const uint8_t SET_SP[] = { 0x48, 0x89, 0xcc }; /* mov %rcx, %rsp */

/* What is known of a function, one instruction after the other. */
struct function {
	int32_t places[REGISTERS]; /* of what registers point to, from the CFA */
	int32_t context;           /* place of the structure */
	uint32_t install;          /* behind the last call of another function with it; 0: none yet */
	uint32_t written; /* x86-64: behind what writes the handler's address into another frame; 0: likewise */
	int32_t context_bytes, context_ra;
};

static struct function function_of(uint16_t machine)
{
	bool is_x86 = machine == MACHINE_X86_64;
	struct function function = {
		.context = NOT_KNOWN,
		.context_bytes = is_x86 ? UNWIND_X86_64_CONTEXT_BYTES : UNWIND_AARCH64_CONTEXT_BYTES,
		.context_ra = is_x86 ? UNWIND_X86_64_CONTEXT_RA : UNWIND_AARCH64_CONTEXT_RA,
	};

	for (unsigned i = 0; i < REGISTERS; i++)
		function.places[i] = NOT_KNOWN;
	return function;
}

static int32_t place_behind(int32_t place, int64_t bytes)
{
	int64_t behind = place + bytes;

	return place == NOT_KNOWN || behind <= NOT_KNOWN || behind > INT32_MAX ? NOT_KNOWN : (int32_t)behind;
}

/* A call with these places as arguments. */
static void follow_call(struct function *function, int32_t first, int32_t second, uint32_t behind)
{
	if (first == NOT_KNOWN || second == NOT_KNOWN)
		return;
	if (function->context == NOT_KNOWN && second == 0)
		function->context = first;
	else if (first == function->context && second == place_behind(first, function->context_bytes))
		function->install = behind;
}

/* The slot of the return address that was kept; false if a rule cannot say it. */
static bool kept_slot(const struct function *function, int16_t *slot)
{
	int32_t kept = place_behind(function->context, function->context_ra);

	if (!function->install || kept & 7 || kept < INT16_MIN || kept >= 0)
		return false;
	*slot = (int16_t)kept;
	return true;
}

static void follow_x86(struct function *function, const struct x86_instruction *i, uint32_t behind)
{
	unsigned reg = (i->modrm >> 3 & 7) | (i->rex & 4) << 1, other = (i->modrm & 7) | (i->rex & 1) << 3;
	unsigned mode = i->modrm >> 6;
	int32_t *places = function->places;

	if (i->map != X86_ONE_BYTE)
		return;
	if (i->opcode == LEA) {
		places[reg] =
			(mode == 1 || mode == 2) && other == RBP ? place_behind(-FRAME, i->displacement) : NOT_KNOWN;
	} else if (i->opcode == MOV_TO && mode == 3) {
		places[other] = places[reg];
	} else if (i->opcode == MOV_TO && mode == 1 && (i->modrm & 7) == 4 && (i->sib & 0xc7) == RBP &&
	           i->displacement == FRAME - 8) { /* to 8(%rbp, a register) */
		function->written = behind;
	} else if (i->opcode == CALL) {
		follow_call(function, places[RDI], places[RSI], behind);
		places[RDI] = places[RSI] = NOT_KNOWN;
	}
}

bool find_handler_install(struct unwind_table *table, place_t start, place_t end, struct placed_rule out[2])
{
	uint32_t size = end - start, at = 0;
	struct function function = function_of(MACHINE_X86_64);
	int16_t kept;

	if (size > MOST_CODE)
		return false;
	uint8_t *code = read_places(table, start, size + sizeof(SET_SP));

	if (code && !memcmp(code + size, SET_SP, sizeof(SET_SP))) {
		while (at < size) {
			struct x86_instruction i = x86_decode(code + at, size - at);

			if (!i.length)
				break;
			at += i.length;
			follow_x86(&function, &i, at);
		}
	}
	free(code);
	if (at != size || function.written < function.install || !kept_slot(&function, &kept))
		return false;
	out[0].place = start + function.install - 1; /* a return address is looked up one byte before it */
	out[0].rule = pack_rule(UNWIND_CFA_FP, UNWIND_RA_KEPT, kept, FRAME);
	out[1].place = start + function.written;
	out[1].rule = UNWIND_UNSUPPORTED;
	return true;
}

/* A function of aarch64, and where its rows are others than its call-frame information says. */
struct arm_function {
	const uint8_t *code;
	uint32_t size;
	struct function known;
	int32_t places[REGISTERS]; /* `known` has these where nothing falls through to: as in the prologue */
	packed_rule body, kept;    /* the rule of its frame, and that once it may be written over */
	/* Offsets: where its registers are loaded again, where its stack is given back, and behind its jump. */
	uint32_t epilogue, leaves, left;
};

static uint32_t word_at(const struct arm_function *function, uint32_t at)
{
	uint32_t word;

	memcpy(&word, function->code + at, sizeof(word));
	return word;
}

static bool is_end(const struct arm_instruction *i)
{
	return i->kind == ARM_END || i->kind == ARM_JUMP;
}

static void follow_arm(struct arm_function *function, uint32_t at)
{
	uint32_t word = word_at(function, at);
	struct arm_instruction i = arm_decode(word);
	int32_t *places = function->known.places;

	if (is_end(&i) || i.kind == ARM_BRANCH) {
		memcpy(places, function->places, sizeof(function->places));
	} else if (i.kind == ARM_CALL) {
		bool is_prologue = function->known.context == NOT_KNOWN;

		follow_call(&function->known, places[0], places[1], at + 4);
		for (unsigned n = 0; n < FIRST_KEPT; n++)
			places[n] = NOT_KNOWN;
		if (is_prologue)
			memcpy(function->places, places, sizeof(function->places));
	} else if (i.kind == ARM_ADD) {
		places[i.first] = place_behind(places[i.base], i.offset);
	} else if ((word & 0xffe0ffe0) == 0xaa0003e0 && i.first != ARM_NO_REGISTER) { /* MOV */
		unsigned from = word >> 16 & 31;

		places[i.first] = from == ARM_SP ? NOT_KNOWN : places[from]; /* there it is XZR */
	} else if (i.kind != ARM_STORE) {
		if (i.first != ARM_NO_REGISTER)
			places[i.first] = NOT_KNOWN;
		if (i.second != ARM_NO_REGISTER)
			places[i.second] = NOT_KNOWN;
	}
}

/* How a function goes on behind the install: straight on, or back to where it ends without a handler, too. False if it
 * does not set SP by a register. */
static bool find_leave(struct arm_function *function)
{
	uint32_t at = function->known.install;

	function->epilogue = at;
	for (; at < function->size; at += 4) {
		struct arm_instruction i = arm_decode(word_at(function, at));
		int64_t to = at + i.offset;

		if (i.kind == ARM_ADD_SP)
			break;
		if (is_end(&i))
			return false;
		if (i.kind != ARM_BRANCH || to >= function->known.install)
			continue;
		if (to < 4 || function->epilogue != function->known.install)
			return false;
		function->epilogue = (uint32_t)to;
		at = function->epilogue - 4;
	}
	function->leaves = at;
	for (; at < function->size; at += 4) {
		struct arm_instruction i = arm_decode(word_at(function, at));

		function->left = at + 4;
		if (is_end(&i))
			return true;
	}
	return false;
}

/* Where the row begins that says how the stack is once it is given back; false if it says another thing. */
static bool find_given_back(const struct unwind_table *table, struct arm_function *function, place_t start)
{
	const struct placed_rule *row = NULL;

	for (uint32_t i = 0; i < table->function.count && table->function.items[i].place <= start + function->leaves;
	     i++)
		row = &table->function.items[i];
	if (!row || row->rule != pack_rule(UNWIND_CFA_SP, UNWIND_RA_LR, UNWIND_FP_SAME, 0))
		return false;
	function->leaves = row->place - start;
	return true;
}

/* The rule of a frame whose record is at its lower end: all of such a function have it. */
static bool find_body(const struct unwind_table *table, struct arm_function *function)
{
	for (uint32_t i = 0; i < table->function.count; i++) {
		packed_rule rule = table->function.items[i].rule;
		int32_t bytes = (int32_t)(rule >> 32);

		if (bytes > 0 && bytes <= -INT16_MIN &&
		    rule == pack_rule(UNWIND_CFA_SP, UNWIND_RA_NEAR + 1, (int16_t)-bytes, bytes)) {
			function->body = rule;
			return true;
		}
	}
	return false;
}

static bool find_arm_install(const struct unwind_table *table, struct arm_function *function, place_t start)
{
	int16_t slot;

	if (!find_body(table, function))
		return false;
	function->known = function_of(MACHINE_AARCH64);
	function->known.places[ARM_SP] = 0;
	memcpy(function->places, function->known.places, sizeof(function->places));
	for (uint32_t at = 0; at < function->size; at += 4)
		follow_arm(function, at);
	if (!kept_slot(&function->known, &slot) || !find_leave(function) || !find_given_back(table, function, start))
		return false;
	function->kept = pack_rule(UNWIND_CFA_SP, UNWIND_RA_KEPT, slot, (int32_t)(function->body >> 32));
	return true;
}

/* What a row's rule is `at` so many bytes from the function's start. */
static packed_rule rule_at(const struct arm_function *function, packed_rule rule, uint32_t at)
{
	if (at >= function->leaves && at < function->left)
		return UNWIND_UNSUPPORTED;
	/* A return address is looked up one byte before it. */
	if (rule == function->body &&
	    (at + 1 >= function->known.install || (at >= function->epilogue && at < function->leaves)))
		return function->kept;
	return rule;
}

/* The function's rows, with those that the others begin between them. */
static void add_rows(struct unwind_table *table, const struct arm_function *function, place_t start)
{
	const uint32_t changes[] = { function->epilogue, function->known.install - 1, function->leaves,
		                     function->left };

	for (uint32_t i = 0; i < table->function.count; i++) {
		struct placed_rule row = table->function.items[i];
		uint32_t at = row.place - start, stop = function->size;

		if (i + 1 < table->function.count)
			stop = table->function.items[i + 1].place - start;
		while (at < stop) {
			uint32_t next = stop;

			add_row(table, start + at, rule_at(function, row.rule, at));
			for (unsigned n = 0; n < sizeof(changes) / sizeof(*changes); n++)
				next = changes[n] > at && changes[n] < next ? changes[n] : next;
			at = next;
		}
	}
	table->function.count = 0;
}

bool add_throwing_function(struct unwind_table *table, place_t start, place_t end)
{
	struct arm_function function = { .size = end - start };
	uint8_t *code;
	bool is_found;

	if (function.size > MOST_CODE || function.size & 3)
		return false;
	code = read_places(table, start, function.size);
	function.code = code;
	is_found = code && find_arm_install(table, &function, start);
	if (is_found)
		add_rows(table, &function, start);
	free(code);
	return is_found;
}
