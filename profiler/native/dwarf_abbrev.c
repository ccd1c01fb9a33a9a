// SPDX-License-Identifier: Apache-2.0
/* Abbreviation tables (7.5.3) and attribute values (7.5.5, 7.5.6). */
#include "dwarf.h"

/* A DIE has at most a few dozen attributes; far more is damage, and would make each DIE slow. */
#define MOST_ATTRIBUTES 512

/* Bytes of a value of this form in a unit, or FORM_VARIES. Unknown forms vary too: reading one fails. */
static uint8_t form_size(uint16_t form, const struct unit *unit)
{
	switch (form) {
	case DW_FORM_flag_present:
	case DW_FORM_implicit_const: return 0;
	case DW_FORM_data1:
	case DW_FORM_flag:
	case DW_FORM_ref1:
	case DW_FORM_strx1:
	case DW_FORM_addrx1: return 1;
	case DW_FORM_data2:
	case DW_FORM_ref2:
	case DW_FORM_strx2:
	case DW_FORM_addrx2: return 2;
	case DW_FORM_strx3:
	case DW_FORM_addrx3: return 3;
	case DW_FORM_data4:
	case DW_FORM_ref4:
	case DW_FORM_ref_sup4:
	case DW_FORM_strx4:
	case DW_FORM_addrx4: return 4;
	case DW_FORM_data8:
	case DW_FORM_ref8:
	case DW_FORM_ref_sig8:
	case DW_FORM_ref_sup8: return 8;
	case DW_FORM_data16: return 16;
	case DW_FORM_addr: return unit->address_size;
	case DW_FORM_ref_addr: return unit->version == 2 ? unit->address_size : unit->offset_size;
	case DW_FORM_strp:
	case DW_FORM_line_strp:
	case DW_FORM_sec_offset:
	case DW_FORM_strp_sup:
	case DW_FORM_GNU_ref_alt:
	case DW_FORM_GNU_strp_alt: return unit->offset_size;
	default: return FORM_VARIES;
	}
}

static bool parse_abbrev(struct cursor *c, struct abbrev_table *table, struct abbrev *abbrev, const struct unit *unit,
                         struct budget *budget)
{
	bool has_addresses = false;

	abbrev->tag = (uint16_t)read_uleb(c);
	abbrev->has_children = read_u8(c);
	abbrev->first = table->attributes.count;
	abbrev->size = 0;
	for (;;) {
		struct attribute attribute = { 0 };
		uint64_t name = read_uleb(c), form = read_uleb(c);

		if (c->bad || name > UINT16_MAX || form > UINT16_MAX)
			return false;
		if (!name && !form)
			break;
		if (form == DW_FORM_implicit_const)
			attribute.implicit = read_sleb(c);
		attribute.name = (uint16_t)name;
		attribute.form = (uint16_t)form;
		attribute.size = form_size(attribute.form, unit);
		if (attribute.size == FORM_VARIES)
			abbrev->size = -1;
		else if (abbrev->size >= 0)
			abbrev->size += attribute.size;
		abbrev->has_sibling |= name == DW_AT_sibling;
		abbrev->is_declaration |= name == DW_AT_declaration;
		has_addresses |= name == DW_AT_low_pc || name == DW_AT_ranges;
		if (!PUSH(table->attributes, budget, attribute))
			return false;
		if (table->attributes.count - abbrev->first > MOST_ATTRIBUTES)
			return false;
	}
	abbrev->count = table->attributes.count - abbrev->first;
	abbrev->is_code =
		has_addresses && (abbrev->tag == DW_TAG_subprogram || abbrev->tag == DW_TAG_inlined_subroutine);
	return true;
}

static int compare_codes(const void *a, const void *b)
{
	uint64_t x = ((const struct abbrev *)a)->code, y = ((const struct abbrev *)b)->code;

	return x < y ? -1 : x > y;
}

/* The table at an offset, parsed on first use. NULL if it is damaged or if the file makes us read too much:
 * overlapping tables could otherwise cost the square of the section's size. */
const struct abbrev_table *load_abbrev_table(struct debug_file *file, uint64_t offset, const struct unit *unit,
                                             struct budget *budget)
{
	const struct dwarf_section *section = &file->sections[SECTION_ABBREV];
	/* Sizes of values depend on these three. */
	uint64_t key = offset << 8 | (uint64_t)(unit->version == 2) << 5 | (uint64_t)(unit->offset_size == 8) << 4 |
	               unit->address_size;
	struct cursor c = cursor_over(section->data, section->size, offset);
	const uint8_t *start = c.at;
	uint32_t known = map_find(&file->table_by_key, key);
	struct abbrev_table *table;
	bool sorted = true, fine = true;
	uint64_t used;

	if (known != MAP_NOTHING)
		return file->tables.items[known];
	if (c.bad)
		return NULL;
	table = take_memory(budget, sizeof(*table)) ? calloc(1, sizeof(*table)) : NULL;
	if (!table || !PUSH(file->tables, budget, table)) {
		free(table);
		budget->exhausted = true;
		return NULL;
	}
	while (fine) {
		struct abbrev abbrev = { .code = read_uleb(&c) };

		if (c.bad || !abbrev.code)
			break;
		fine = parse_abbrev(&c, table, &abbrev, unit, budget) && PUSH(table->abbrevs, budget, abbrev);
		if (table->abbrevs.count > 1 && fine)
			sorted &= abbrev.code > table->abbrevs.items[table->abbrevs.count - 2].code;
		fine = fine && (uint64_t)(c.at - start) <= file->abbrev_budget;
	}
	used = (uint64_t)(c.at - start);
	file->abbrev_budget -= used < file->abbrev_budget ? used : file->abbrev_budget;
	if (!fine) {
		/* Keep the empty table, so that other units at this offset fail at once. */
		table->abbrevs.count = 0;
	} else if (!sorted) {
		qsort(table->abbrevs.items, table->abbrevs.count, sizeof(*table->abbrevs.items), compare_codes);
	}
	map_add(&file->table_by_key, key, file->tables.count - 1, budget);
	return table;
}

const struct abbrev *search_abbrev(const struct abbrev_table *table, uint64_t code)
{
	uint32_t low = 0, high = table->abbrevs.count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (table->abbrevs.items[middle].code < code)
			low = middle + 1;
		else
			high = middle;
	}
	return low < table->abbrevs.count && table->abbrevs.items[low].code == code ? &table->abbrevs.items[low] : NULL;
}

struct attribute make_attribute(uint16_t form, const struct unit *unit)
{
	return (struct attribute){ .form = form, .size = form_size(form, unit) };
}

/* DW_FORM_indirect: the form stands before the value. A chain of them is damage. */
static struct attribute read_indirect(struct cursor *c, const struct unit *unit)
{
	uint16_t form = (uint16_t)read_uleb(c);

	if (form == DW_FORM_indirect || form == DW_FORM_implicit_const)
		cursor_fail(c);
	return make_attribute(form, unit);
}

void skip_varied(struct cursor *c, const struct attribute *attribute, const struct unit *unit)
{
	switch (attribute->form) {
	case DW_FORM_sdata:
	case DW_FORM_udata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index: skip_leb(c); break;
	case DW_FORM_string: read_string(c); break;
	case DW_FORM_block:
	case DW_FORM_exprloc: cursor_skip(c, read_uleb(c)); break;
	case DW_FORM_block1: cursor_skip(c, read_u8(c)); break;
	case DW_FORM_block2: cursor_skip(c, read_u16(c)); break;
	case DW_FORM_block4: cursor_skip(c, read_u32(c)); break;
	case DW_FORM_indirect: {
		struct attribute direct = read_indirect(c, unit);

		if (!c->bad)
			skip_value(c, &direct, unit);
		break;
	}
	default: /* its length is unknown, and with it where the next value starts */ cursor_fail(c);
	}
}

struct value read_varied(struct cursor *c, const struct attribute *attribute, const struct unit *unit)
{
	struct value value = { .form = attribute->form };

	switch (attribute->form) {
	case DW_FORM_implicit_const: value.number = (uint64_t)attribute->implicit; return value;
	case DW_FORM_flag_present: value.number = 1; return value;
	case DW_FORM_string: value.text = read_string(c); return value;
	case DW_FORM_sdata: value.number = (uint64_t)read_sleb(c); return value;
	case DW_FORM_udata:
	case DW_FORM_ref_udata:
	case DW_FORM_strx:
	case DW_FORM_addrx:
	case DW_FORM_loclistx:
	case DW_FORM_rnglistx:
	case DW_FORM_GNU_addr_index:
	case DW_FORM_GNU_str_index: value.number = read_uleb(c); return value;
	case DW_FORM_indirect: {
		struct attribute direct = read_indirect(c, unit);

		return c->bad ? (struct value){ 0 } : read_value(c, &direct, unit);
	}
	}
	skip_value(c, attribute, unit); /* blocks and data16 hold nothing that we ask for */
	return value;
}
