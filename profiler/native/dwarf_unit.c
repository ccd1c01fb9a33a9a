// SPDX-License-Identifier: Apache-2.0
/* Unit headers (7.5.1), root DIEs, and the names of functions. */
#include "dwarf.h"

#define DW_UT_type          0x02
#define DW_UT_skeleton      0x04
#define DW_UT_split_compile 0x05
#define DW_UT_split_type    0x06

#define DWARF64_ESCAPE     0xffffffffu
#define LONGEST_HEADER     64 /* more than that of any version */
#define LONGEST_NAME_CHAIN 16 /* inlined call, abstract function, declaration: three in practice */

/* The root DIE; false if it breaks a rule. */
static bool read_root(struct unit *unit, uint64_t *steps)
{
	struct cursor c = all_dies(unit);
	struct value directory = { 0 }, dwo_name = { 0 }, low = { 0 };
	const struct abbrev *abbrev;

	abbrev = find_abbrev(unit->table, read_uleb(&c));
	if (!abbrev)
		return false;
	for (uint32_t i = 0; i < abbrev->count; i++) {
		const struct attribute *attribute = &unit->table->attributes.items[abbrev->first + i];
		struct value value = read_value(&c, attribute, unit);

		switch (attribute->name) {
		case DW_AT_language: unit->language = value.number; break;
		case DW_AT_comp_dir: directory = value; break;
		case DW_AT_low_pc: low = value; break;
		case DW_AT_high_pc: unit->high_pc = value; break;
		case DW_AT_ranges: unit->ranges = value; break;
		case DW_AT_stmt_list:
			unit->line_offset = value.number;
			unit->has_lines = true;
			break;
		case DW_AT_addr_base:
		case DW_AT_GNU_addr_base: unit->addr_base = value.number; break;
		case DW_AT_rnglists_base: unit->rnglists_base = value.number; break;
		case DW_AT_str_offsets_base: unit->str_offsets_base = value.number; break;
		case DW_AT_GNU_ranges_base: unit->ranges_base = value.number; break;
		case DW_AT_GNU_dwo_id: unit->dwo_id = value.number; break;
		case DW_AT_dwo_name:
		case DW_AT_GNU_dwo_name: dwo_name = value; break;
		}
	}
	if (c.bad)
		return false;
	/* Only now, since the bases may stand after what needs them. */
	unit->directory = value_string(unit, &directory, steps);
	unit->dwo_name = value_string(unit, &dwo_name, steps);
	if (low.form) {
		bool bad = false;
		uint64_t address = value_address(unit, &low, &bad);

		unit->low_pc = bad ? 0 : address;
	}
	return true;
}

/* Read one header; false if no further unit can be found after it. */
static bool read_unit(struct debug_file *file, struct cursor *info, struct unit *unit, struct budget *budget)
{
	const struct dwarf_section *section = &file->sections[SECTION_INFO];
	uint64_t length, abbrev_offset;
	uint8_t kind = 0;

	*unit = (struct unit){
		.file = file, .info = section->data, .offset = (uint64_t)(info->at - section->data), .offset_size = 4
	};
	if (!load_bytes(file, SECTION_INFO, unit->offset, LONGEST_HEADER)) {
		unit->is_bad = true;
		info->at = info->end;
		return true;
	}
	length = read_u32(info);
	if (length == DWARF64_ESCAPE) {
		unit->offset_size = 8;
		length = read_u64(info);
	}
	if (info->bad)
		return false;
	/* A unit cut short by the end of the file still has a beginning. */
	unit->dies =
		(struct cursor){ .at = info->at, .end = length < cursor_left(info) ? info->at + length : info->end };
	info->at = unit->dies.end;

	unit->version = read_u16(&unit->dies);
	if (unit->version >= 5) {
		kind = read_u8(&unit->dies);
		unit->address_size = read_u8(&unit->dies);
		abbrev_offset = read_fixed(&unit->dies, unit->offset_size);
		if (kind == DW_UT_skeleton || kind == DW_UT_split_compile)
			unit->dwo_id = read_u64(&unit->dies);
		unit->is_type_unit = kind == DW_UT_type || kind == DW_UT_split_type;
		/* Where the lists start if the root says nothing: behind the section's header (7.26, 7.28). */
		unit->str_offsets_base = unit->addr_base = unit->offset_size == 8 ? 16 : 8;
		unit->rnglists_base = unit->offset_size == 8 ? 20 : 12;
	} else {
		abbrev_offset = read_fixed(&unit->dies, unit->offset_size);
		unit->address_size = read_u8(&unit->dies);
	}
	unit->is_bad = unit->dies.bad || unit->version < 2 || unit->version > 5 ||
	               (unit->address_size != 8 && unit->address_size != 4);
	if (unit->is_bad || unit->is_type_unit)
		return true;
	unit->table = load_abbrev_table(file, abbrev_offset, unit, budget);
	unit->is_bad = !unit->table;
	return true;
}

void scan_units(struct debug_file *file, struct budget *budget)
{
	const struct dwarf_section *section = &file->sections[SECTION_INFO];
	struct cursor info = cursor_over(section->data, section->size, 0);
	struct unit unit;
	uint64_t steps = 0;

	while (cursor_left(&info) && read_unit(file, &info, &unit, budget))
		if (!PUSH(file->units, budget, unit))
			break;
	for (uint32_t i = 0; i < file->units.count; i++) {
		struct unit *each = &file->units.items[i];

		if (!each->is_bad && !each->is_type_unit)
			each->is_bad = !read_root(each, &steps);
	}
	spend_work(budget, steps);
}

const struct unit *unit_at(const struct debug_file *file, uint64_t offset)
{
	uint32_t low = 0, high = file->units.count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (file->units.items[middle].offset <= offset)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &file->units.items[low - 1] : NULL;
}

struct function_name function_name(const struct unit *unit, uint64_t offset, uint64_t *steps)
{
	struct function_name found = { 0 };

	for (int step = 0; step < LONGEST_NAME_CHAIN; step++) {
		struct value reference = { 0 };
		const struct abbrev *abbrev;
		const char *name = NULL, *linkage_name = NULL;
		const uint8_t *start;
		struct cursor c;

		if (unit->is_bad || unit->is_type_unit)
			break;
		c = dies_from(unit, offset);
		abbrev = c.bad ? NULL : find_abbrev(unit->table, read_uleb(&c));
		if (!abbrev)
			break;
		start = c.at;
		*steps += 1 + abbrev->count;
		for (uint32_t i = 0; i < abbrev->count; i++) {
			const struct attribute *attribute = &unit->table->attributes.items[abbrev->first + i];
			struct value value;

			switch (attribute->name) {
			case DW_AT_linkage_name:
			case DW_AT_MIPS_linkage_name:
				value = read_value(&c, attribute, unit);
				linkage_name = value_string(unit, &value, steps);
				if (c.bad)
					linkage_name = NULL;
				break;
			case DW_AT_name:
				value = read_value(&c, attribute, unit);
				name = value_string(unit, &value, steps);
				break;
			case DW_AT_decl_file:
				value = read_value(&c, attribute, unit);
				if (!c.bad && !found.file_unit && value.number <= UINT32_MAX) {
					found.file_unit = unit;
					found.file = (uint32_t)value.number;
				}
				break;
			case DW_AT_external: found.is_external |= read_value(&c, attribute, unit).number != 0; break;
			case DW_AT_abstract_origin:
			case DW_AT_specification: reference = read_value(&c, attribute, unit); break;
			default: skip_value(&c, attribute, unit);
			}
		}
		*steps += (uint64_t)(c.at - start) / STRING_BYTES_A_STEP;
		if (linkage_name) {
			found.text = linkage_name;
			found.is_linkage = true;
			break;
		}
		if (c.bad)
			break;
		/* The deepest name is that of the declaration; what refers to it rarely repeats it. */
		if (name) {
			found.text = name;
			found.unit = unit;
			found.offset = offset;
		}
		unit = reference.form ? value_reference(unit, &reference, &offset) : NULL;
		if (!unit)
			break;
	}
	return found;
}
