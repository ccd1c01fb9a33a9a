// SPDX-License-Identifier: Apache-2.0
/* Line programs (6.2). */
#include "dwarf.h"

enum {
	DW_LNS_copy = 1,
	DW_LNS_advance_pc,
	DW_LNS_advance_line,
	DW_LNS_set_file,
	DW_LNS_set_column,
	DW_LNS_negate_stmt,
	DW_LNS_set_basic_block,
	DW_LNS_const_add_pc,
	DW_LNS_fixed_advance_pc,
	DW_LNS_set_prologue_end,
	DW_LNS_set_epilogue_begin,
	DW_LNS_set_isa,

	DW_LNE_end_sequence = 1,
	DW_LNE_set_address,
	DW_LNE_define_file,

	DW_LNCT_path = 1,
	DW_LNCT_directory_index,
};

#define LONGEST_LENGTH 12 /* of the field with a table's */
#define LONGEST_START  12 /* of what follows it, to the end of the field with the header's length */

struct line_header {
	struct cursor program;
	struct unit strings; /* a unit with this table's sizes, to read its strings with */
	uint8_t instruction_bytes, line_range, opcode_base;
	int8_t line_base;
	const uint8_t *operand_counts; /* opcode_base - 1 of them */
};

static bool add_file(struct line_table *out, const char *name, uint64_t directory)
{
	struct line_file file = { .name = name };

	if (out->version >= 5) {
		if (directory < out->directories.count)
			file.directory = out->directories.items[directory];
		file.below_unit_directory = directory != 0; /* entry 0 is that directory itself */
	} else {
		if (directory && directory <= out->directories.count)
			file.directory = out->directories.items[directory - 1];
		file.below_unit_directory = true;
	}
	return PUSH(out->files, out->budget, file);
}

/* The lists of a DWARF 5 header describe their own format (6.2.4, 14 to 21). */
static bool read_entries(struct cursor *c, const struct unit *strings, bool are_files, struct line_table *out)
{
	uint8_t formats = read_u8(c);
	struct cursor description = *c;
	uint64_t count;

	for (unsigned i = 0; i < 2u * formats; i++)
		skip_leb(c);
	count = read_uleb(c);
	for (uint64_t entry = 0; entry < count && !c->bad; entry++) {
		struct cursor format = description;
		const uint8_t *before = c->at;
		const char *name = NULL;
		uint64_t directory = 0, steps = 1u + formats;

		for (unsigned i = 0; i < formats; i++) {
			uint64_t content = read_uleb(&format), form = read_uleb(&format);
			struct attribute attribute = make_attribute((uint16_t)form, strings);
			struct value value = read_value(c, &attribute, strings);

			if (content == DW_LNCT_path)
				name = value_string(strings, &value, &steps);
			else if (content == DW_LNCT_directory_index)
				directory = value.number;
		}
		/* Entries of no bytes could go on for ever. */
		if (c->bad || c->at == before || !spend_work(out->budget, steps))
			return false;
		if (!(are_files ? add_file(out, name, directory) : PUSH(out->directories, out->budget, name)))
			return false;
	}
	return !c->bad;
}

static bool read_old_entries(struct cursor *c, struct line_table *out)
{
	const char *text;

	while ((text = read_string(c)) && *text)
		if (!spend_work(out->budget, 1 + strlen(text) / STRING_BYTES_A_STEP) ||
		    !PUSH(out->directories, out->budget, text))
			return false;
	while ((text = read_string(c)) && *text) {
		uint64_t directory = read_uleb(c);

		skip_leb(c); /* time */
		skip_leb(c); /* length */
		if (!spend_work(out->budget, 1 + strlen(text) / STRING_BYTES_A_STEP) || !add_file(out, text, directory))
			return false;
	}
	return !c->bad;
}

/* How far the header reaches of a table of so many bytes, behind the field with its length. */
static uint64_t header_bytes(const struct unit *unit, uint64_t at, uint64_t length, uint8_t offset_size,
                             struct line_table *out)
{
	struct cursor c = read_once(unit->file, SECTION_LINE, at, LONGEST_START, &out->program, out->budget);
	const uint8_t *start = c.at;
	uint64_t header_length;

	if (read_u16(&c) >= 5)
		cursor_skip(&c, 2);
	header_length = read_fixed(&c, offset_size);
	if (c.bad || header_length > length)
		return length;
	header_length += (uint64_t)(c.at - start);
	return header_length < length ? header_length : length;
}

static bool read_header(const struct unit *unit, bool is_all, struct line_header *header, struct line_table *out)
{
	uint64_t at = unit->line_offset, length, header_length;
	struct cursor c = read_once(unit->file, SECTION_LINE, at, LONGEST_LENGTH, &out->program, out->budget);

	length = read_u32(&c);
	at += 4;
	header->strings = *unit;
	header->strings.offset_size = 4;
	if (length == UINT32_MAX) {
		header->strings.offset_size = 8;
		length = read_u64(&c);
		at += 8;
	}
	if (c.bad)
		return false;
	if (!is_all)
		length = header_bytes(unit, at, length, header->strings.offset_size, out);
	c = read_once(unit->file, SECTION_LINE, at, length, &out->program, out->budget);
	out->version = read_u16(&c);
	if (out->version < 2 || out->version > 5)
		return false;
	if (out->version >= 5)
		cursor_skip(&c, 2); /* sizes of an address and of a segment selector */
	header_length = read_fixed(&c, header->strings.offset_size);
	header->program = c;
	cursor_skip(&header->program, header_length);
	header->instruction_bytes = read_u8(&c);
	if (out->version >= 4)
		cursor_skip(&c, 1); /* operations per VLIW instruction */
	cursor_skip(&c, 1);         /* default of is_stmt */
	header->line_base = (int8_t)read_u8(&c);
	header->line_range = read_u8(&c);
	header->opcode_base = read_u8(&c);
	header->operand_counts = c.at;
	if (c.bad || header->program.bad || !header->line_range || !header->opcode_base)
		return false;
	cursor_skip(&c, header->opcode_base - 1u);
	if (out->version < 5)
		return read_old_entries(&c, out);
	return read_entries(&c, &header->strings, false, out) && read_entries(&c, &header->strings, true, out);
}

struct line_state {
	uint64_t address;
	uint32_t file, line;
	uint32_t first_row; /* of the sequence being read */
};

/* End the sequence at `end`, unless it is one of code that the linker discarded: that starts at a tombstone, 0 or
 * near the end of the address space, and so outside the text. */
static void close_sequence(struct line_state *state, uint64_t end, struct line_table *out)
{
	struct line_sequence sequence = { 0, end, state->first_row, out->rows.count };

	if (sequence.last > sequence.first) {
		sequence.start = out->rows.items[sequence.first].address;
		if (sequence.start >= out->text_start && end <= out->text_end && sequence.start < end)
			PUSH(out->sequences, out->budget, sequence);
		else
			out->rows.count = sequence.first;
	}
	state->first_row = out->rows.count;
}

static void add_row(struct line_state *state, struct line_table *out)
{
	struct line_row row = { state->address, state->file, state->line };

	if (out->rows.count > state->first_row) {
		struct line_row *last = &out->rows.items[out->rows.count - 1];

		if (last->address == row.address) { /* of several rows at one address the last holds */
			*last = row;
			return;
		}
		/* Addresses only rise within a sequence. Where they fall (GNU ld leaves such pieces of discarded COMDAT
		 * groups: two DW_LNE_set_address 0 in one sequence), what stands before ends at its last row. */
		if (last->address > row.address)
			close_sequence(state, last->address, out);
	}
	PUSH(out->rows, out->budget, row);
}

static bool run_program(struct line_header *header, struct line_table *out)
{
	struct cursor *c = &header->program;
	struct line_state state = { 0, 1, 1, out->rows.count };
	unsigned opcode_base = header->opcode_base;

	while (cursor_left(c) && !out->budget->exhausted) {
		unsigned opcode = *c->at++;

		if (opcode >= opcode_base) {
			unsigned step = opcode - opcode_base;

			state.address += (uint64_t)(step / header->line_range) * header->instruction_bytes;
			state.line += (uint32_t)(header->line_base + (int)(step % header->line_range));
			add_row(&state, out);
			continue;
		}
		switch (opcode) {
		case 0: { /* an extended opcode, with its length */
			uint64_t length = read_uleb(c);
			struct cursor operand = *c;

			cursor_skip(c, length);
			if (c->bad)
				return false;
			operand.end = c->at;
			switch (read_u8(&operand)) {
			case DW_LNE_end_sequence:
				close_sequence(&state, state.address, out);
				state = (struct line_state){ 0, 1, 1, out->rows.count };
				break;
			case DW_LNE_set_address:
				state.address = read_fixed(&operand, cursor_left(&operand) < 8 ? 4 : 8);
				break;
			case DW_LNE_define_file: {
				const char *name = read_string(&operand);

				if (name)
					add_file(out, name, read_uleb(&operand));
				break;
			}
			}
			break;
		}
		case DW_LNS_copy: add_row(&state, out); break;
		case DW_LNS_advance_pc: state.address += read_uleb(c) * header->instruction_bytes; break;
		case DW_LNS_advance_line: state.line += (uint32_t)read_sleb(c); break;
		case DW_LNS_set_file: state.file = (uint32_t)read_uleb(c); break;
		case DW_LNS_const_add_pc:
			state.address +=
				(uint64_t)((255 - opcode_base) / header->line_range) * header->instruction_bytes;
			break;
		case DW_LNS_fixed_advance_pc: state.address += read_u16(c); break;
		case DW_LNS_negate_stmt:
		case DW_LNS_set_basic_block:
		case DW_LNS_set_prologue_end:
		case DW_LNS_set_epilogue_begin: break;
		default: /* columns, and opcodes of a later standard: the header says how many operands */
			for (unsigned i = 0; i < header->operand_counts[opcode - 1]; i++)
				skip_leb(c);
		}
	}
	/* A program that was cut off: its last sequence is whole up to the last row. */
	if (out->rows.count > state.first_row)
		close_sequence(&state, out->rows.items[out->rows.count - 1].address, out);
	return !c->bad;
}

static int compare_sequences(const void *a, const void *b)
{
	const struct line_sequence *x = a, *y = b;

	if (x->start != y->start)
		return x->start < y->start ? -1 : 1;
	return x->first < y->first ? -1 : x->first > y->first;
}

/* Sort; of overlapping sequences the later start takes over, so that no address is visited twice. */
static void order_sequences(struct line_table *out)
{
	struct line_sequence *items = out->sequences.items;
	uint32_t kept = 0;

	if (!out->sequences.count)
		return;
	qsort(items, out->sequences.count, sizeof(*items), compare_sequences);
	for (uint32_t i = 0; i < out->sequences.count; i++) {
		items[kept] = items[i];
		if (i + 1 < out->sequences.count && items[i + 1].start < items[i].end)
			items[kept].end = items[i + 1].start;
		kept += items[kept].end > items[kept].start;
	}
	out->sequences.count = kept;
}

bool read_line_files(const struct unit *unit, struct line_table *out)
{
	struct line_header header;

	out->files.count = out->directories.count = 0;
	return read_header(unit, false, &header, out) &&
	       spend_work(out->budget, (uint64_t)(header.program.end - header.operand_counts) / STRING_BYTES_A_STEP);
}

bool read_lines(const struct unit *unit, uint64_t text_start, uint64_t text_end, struct line_table *out)
{
	struct line_header header;
	bool fine;

	out->text_start = text_start;
	out->text_end = text_end;
	out->rows.count = out->sequences.count = out->files.count = out->directories.count = 0;
	if (!unit->has_lines)
		return true;
	/* Units may share a program, and each runs it. */
	fine = read_header(unit, true, &header, out) && spend_work(out->budget, cursor_left(&header.program)) &&
	       run_program(&header, out);
	order_sequences(out);
	return fine && !out->budget->exhausted;
}
