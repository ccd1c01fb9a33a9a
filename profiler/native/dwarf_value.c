// SPDX-License-Identifier: Apache-2.0
/* What the value of an attribute means in its unit: strings, addresses, range lists, references. */
#include "dwarf.h"

#define LONGEST_STRING (1u << 16) /* C++ has names of some thousand bytes */
#define STRING_PIECE   256

/* A string whose end is looked for piece by piece, in what is in memory by then; false if the file lacks a part. */
static bool load_string(const struct debug_file *file, enum section_id id, uint64_t offset, uint64_t most)
{
	const uint8_t *text = file->sections[id].data + offset;

	for (uint64_t at = 0; file->blocks[id] && at < most; at += STRING_PIECE) {
		uint64_t piece = most - at < STRING_PIECE ? most - at : STRING_PIECE;

		if (!load_bytes(file, id, offset + at, piece))
			return false;
		if (memchr(text + at, 0, piece))
			break;
	}
	return true;
}

static const char *section_string(const struct debug_file *file, enum section_id id, uint64_t offset, uint64_t *steps)
{
	const char *text;
	struct cursor c;

	if (!file)
		return NULL;
	c = cursor_over(file->sections[id].data, file->sections[id].size, offset);
	if (c.bad)
		return NULL;
	if (cursor_left(&c) > LONGEST_STRING)
		c.end = c.at + LONGEST_STRING;
	text = load_string(file, id, offset, cursor_left(&c)) ? read_string(&c) : NULL;
	*steps += 1 + (text ? (uint64_t)((const char *)c.at - text) : LONGEST_STRING) / STRING_BYTES_A_STEP;
	return text;
}

const char *value_string(const struct unit *unit, const struct value *value, uint64_t *steps)
{
	const struct dwarf_section *offsets = &unit->file->sections[SECTION_STR_OFFSETS];
	struct cursor c;
	uint64_t offset;

	switch (value->form) {
	case DW_FORM_string: return value->text;
	case DW_FORM_strp: return section_string(unit->file, SECTION_STR, value->number, steps);
	case DW_FORM_line_strp: return section_string(unit->file, SECTION_LINE_STR, value->number, steps);
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_strp_alt: return section_string(unit->file->shared, SECTION_STR, value->number, steps);
	case DW_FORM_strx:
	case DW_FORM_strx1:
	case DW_FORM_strx2:
	case DW_FORM_strx3:
	case DW_FORM_strx4:
	case DW_FORM_GNU_str_index:
		if (value->number > offsets->size / unit->offset_size || unit->str_offsets_base > offsets->size)
			return NULL;
		c = cursor_over(offsets->data, offsets->size,
		                unit->str_offsets_base + value->number * unit->offset_size);
		offset = read_fixed(&c, unit->offset_size);
		return c.bad ? NULL : section_string(unit->file, SECTION_STR, offset, steps);
	default: return NULL;
	}
}

static bool is_address_index(uint16_t form)
{
	return form == DW_FORM_addrx || (form >= DW_FORM_addrx1 && form <= DW_FORM_addrx4) ||
	       form == DW_FORM_GNU_addr_index;
}

static uint64_t indexed_address(const struct unit *unit, uint64_t index, bool *bad)
{
	const struct unit *skeleton = unit->skeleton ? unit->skeleton : unit;
	const struct dwarf_section *section = &skeleton->file->sections[SECTION_ADDR];
	struct cursor c;
	uint64_t address;

	if (index > section->size / unit->address_size || skeleton->addr_base > section->size) {
		*bad = true;
		return 0;
	}
	c = cursor_over(section->data, section->size, skeleton->addr_base + index * unit->address_size);
	address = c.bad ? 0 : read_fixed(&c, unit->address_size);
	*bad |= c.bad;
	return address;
}

uint64_t value_address(const struct unit *unit, const struct value *value, bool *bad)
{
	if (value->form == DW_FORM_addr)
		return value->number;
	if (is_address_index(value->form))
		return indexed_address(unit, value->number, bad);
	*bad = true;
	return 0;
}

static bool add_range(struct ranges *out, uint64_t start, uint64_t end)
{
	if (!out->entries_left)
		return false;
	out->entries_left--;
	return end <= start || PUSH(out->list, out->budget, (struct range){ start, end });
}

/* A list of .debug_ranges (DWARF 2 to 4, 2.17.3): pairs of offsets from a base that pairs of their own may set. */
static bool read_old_ranges(const struct unit *unit, uint64_t offset, struct ranges *out)
{
	const struct unit *skeleton = unit->skeleton ? unit->skeleton : unit;
	const struct dwarf_section *section = &skeleton->file->sections[SECTION_RANGES];
	uint64_t last_address = unit->address_size == 8 ? UINT64_MAX : UINT32_MAX;
	uint64_t base = skeleton->low_pc;
	struct cursor c;

	if (unit->skeleton)
		offset += skeleton->ranges_base;
	c = cursor_over(section->data, section->size, offset);
	while (!c.bad) {
		uint64_t start = read_fixed(&c, unit->address_size), end = read_fixed(&c, unit->address_size);

		if (c.bad)
			break;
		if (!start && !end)
			return true;
		if (start == last_address)
			base = end;
		else if (!add_range(out, base + start, base + end))
			return false;
	}
	return false;
}

/* A list of .debug_rnglists (7.25). */
static bool read_rnglist(const struct unit *unit, uint64_t offset, struct ranges *out)
{
	enum {
		DW_RLE_end_of_list,
		DW_RLE_base_addressx,
		DW_RLE_startx_endx,
		DW_RLE_startx_length,
		DW_RLE_offset_pair,
		DW_RLE_base_address,
		DW_RLE_start_end,
		DW_RLE_start_length
	};
	const struct dwarf_section *section = &unit->file->sections[SECTION_RNGLISTS];
	struct cursor c = cursor_over(section->data, section->size, offset);
	uint64_t base = unit->skeleton ? unit->skeleton->low_pc : unit->low_pc;
	bool bad = false;

	while (!c.bad) {
		uint64_t start, end;

		switch (read_u8(&c)) {
		case DW_RLE_end_of_list: return !c.bad;
		case DW_RLE_base_addressx: base = indexed_address(unit, read_uleb(&c), &bad); continue;
		case DW_RLE_base_address: base = read_fixed(&c, unit->address_size); continue;
		case DW_RLE_startx_endx:
			start = indexed_address(unit, read_uleb(&c), &bad);
			end = indexed_address(unit, read_uleb(&c), &bad);
			break;
		case DW_RLE_startx_length:
			start = indexed_address(unit, read_uleb(&c), &bad);
			end = start + read_uleb(&c);
			break;
		case DW_RLE_offset_pair:
			start = base + read_uleb(&c);
			end = base + read_uleb(&c);
			break;
		case DW_RLE_start_end:
			start = read_fixed(&c, unit->address_size);
			end = read_fixed(&c, unit->address_size);
			break;
		case DW_RLE_start_length:
			start = read_fixed(&c, unit->address_size);
			end = start + read_uleb(&c);
			break;
		default: return false;
		}
		if (c.bad || bad || !add_range(out, start, end))
			return false;
	}
	return false;
}

static bool read_range_list(const struct unit *unit, const struct value *list, struct ranges *out)
{
	const struct dwarf_section *section = &unit->file->sections[SECTION_RNGLISTS];
	uint64_t offset = list->number;

	if (unit->version < 5)
		return read_old_ranges(unit, offset, out);
	if (list->form == DW_FORM_rnglistx) {
		struct cursor c;

		if (offset > section->size / unit->offset_size || unit->rnglists_base > section->size)
			return false;
		c = cursor_over(section->data, section->size, unit->rnglists_base + offset * unit->offset_size);
		offset = unit->rnglists_base + read_fixed(&c, unit->offset_size);
		if (c.bad)
			return false;
	}
	return read_rnglist(unit, offset, out);
}

bool value_ranges(const struct unit *unit, const struct value *low, const struct value *high, const struct value *list,
                  struct ranges *out)
{
	bool bad = false;
	uint64_t start, end;

	if (list->form)
		return read_range_list(unit, list, out);
	if (!low->form || !high->form)
		return true;
	start = value_address(unit, low, &bad);
	/* A constant counts from low_pc (DWARF 4 and later), an address stands for itself. */
	if (high->form == DW_FORM_addr || is_address_index(high->form))
		end = value_address(unit, high, &bad);
	else
		end = start + high->number;
	return !bad && add_range(out, start, end);
}

bool skip_children(struct cursor *c, const struct unit *unit, const struct value *sibling)
{
	const uint8_t *info = unit->info;
	uint64_t next;

	if (c->bad || value_reference(unit, sibling, &next) != unit || next >= (uint64_t)(unit->dies.end - info) ||
	    info + next < c->at)
		return false;
	c->at = info + next;
	if (c->end < c->at)
		c->end = c->at; /* what was skipped need not be in memory */
	return true;
}

bool skip_die(struct cursor *c, const struct abbrev *abbrev, const struct unit *unit)
{
	struct value sibling = { 0 };

	if (!abbrev->has_sibling) {
		skip_values(c, abbrev, unit);
		return false;
	}
	for (uint32_t i = 0; i < abbrev->count; i++) {
		const struct attribute *attribute = &unit->table->attributes.items[abbrev->first + i];

		if (attribute->name == DW_AT_sibling)
			sibling = read_value(c, attribute, unit);
		else
			skip_value(c, attribute, unit);
	}
	return skip_children(c, unit, &sibling);
}

const struct unit *value_reference(const struct unit *unit, const struct value *value, uint64_t *offset)
{
	const struct debug_file *file = unit->file;
	const struct unit *found;

	switch (value->form) {
	case DW_FORM_ref1:
	case DW_FORM_ref2:
	case DW_FORM_ref4:
	case DW_FORM_ref8:
	case DW_FORM_ref_udata: *offset = unit->offset + value->number; return unit;
	case DW_FORM_ref_addr: break;
	case DW_FORM_ref_sup4:
	case DW_FORM_ref_sup8:
	case DW_FORM_GNU_ref_alt: file = file->shared; break;
	default: return NULL;
	}
	*offset = value->number;
	found = file ? unit_at(file, value->number) : NULL;
	return found;
}
