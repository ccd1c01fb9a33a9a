// SPDX-License-Identifier: Apache-2.0
/* The functions that a file's symbols name. */
#include "unwind_build.h"

/* By address; of equal ones the order stays. Digit by digit, which a comparing sort of a large file's is ten times as
 * slow as. */
static bool sort_symbols(struct symbol *symbols, uint32_t count)
{
	enum { DIGIT_BITS = 11, DIGITS = 1 << DIGIT_BITS };
	struct symbol *from = symbols, *to = malloc(count * sizeof(*to)), *spare = to;
	uint64_t differing = 0;

	if (!to)
		return false;
	for (uint32_t i = 0; i < count; i++)
		differing |= symbols[i].address ^ symbols[0].address;
	for (unsigned shift = 0; shift < 64 && differing >> shift; shift += DIGIT_BITS) {
		uint32_t starts[DIGITS + 1] = { 0 };
		struct symbol *moved = from;

		for (uint32_t i = 0; i < count; i++)
			starts[(from[i].address >> shift & (DIGITS - 1)) + 1]++;
		for (unsigned digit = 0; digit < DIGITS; digit++)
			starts[digit + 1] += starts[digit];
		for (uint32_t i = 0; i < count; i++)
			to[starts[from[i].address >> shift & (DIGITS - 1)]++] = from[i];
		from = to;
		to = moved;
	}
	if (from != symbols)
		memcpy(symbols, from, count * sizeof(*symbols));
	free(spare);
	return true;
}

/* Elf64_Sym: System V ABI, chapter 4, "Symbol Table". */
void read_functions(struct unwind_table *table)
{
	enum { STT_FUNC = 2, ROW_BYTES = 24, INFO_AT = 4, VALUE_AT = 8 };
	const struct unwind_section *section = &table->input->symbols;

	if (table->has_functions)
		return;
	table->has_functions = true;
	for (uint64_t at = 0; at + ROW_BYTES <= section->size; at += ROW_BYTES) {
		struct cursor c = cursor_over(section->data, section->size, at + VALUE_AT);
		struct symbol symbol = { read_u64(&c), read_u64(&c) };

		if ((section->data[at + INFO_AT] & 15) == STT_FUNC && symbol.address)
			PUSH(table->functions, &table->budget, symbol);
	}
	if (table->functions.count && !sort_symbols(table->functions.items, table->functions.count))
		table->budget.exhausted = true;
}

const struct symbol *first_function(const struct unwind_table *table, uint64_t address)
{
	uint32_t low = 0, high = table->functions.count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (table->functions.items[middle].address < address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? table->functions.items + low : table->functions.items; /* may be NULL */
}

struct functions_of_code functions_from(const struct unwind_table *table, uint64_t address)
{
	const struct symbol *first = first_function(table, address);

	return (struct functions_of_code){
		.next = first,
		.behind = table->functions.count ? table->functions.items + table->functions.count : first,
	};
}
