// SPDX-License-Identifier: Apache-2.0
/* The dynamic linker's entry of x86-64 for lazy binding, _dl_runtime_resolve_xsavec of glibc's
 * sysdeps/x86_64/dl-trampoline.h: it aligns the stack, and where it was is in RBX alone. While it calls _dl_fixup that
 * is where _dl_fixup keeps RBX, which its call-frame information says. */
#include "unwind_build.h"
#include "x86_instruction.h"

enum {
	CALL = 0xe8,
	MOST_CODE = 64 << 10, /* of a function that is called */
	RED_ZONE = 128,       /* bytes below SP that no signal's handler writes to */
};

/* The function that holds a place. */
static const struct fde *find_fde(const struct entries *entries, uint64_t place)
{
	uint32_t low = 0, high = entries->fdes.count;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (entries->fdes.items[middle].end <= place)
			low = middle + 1;
		else
			high = middle;
	}
	if (low == entries->fdes.count || entries->fdes.items[low].start > place ||
	    entries->fdes.items[low].kind == ENTRY_GO)
		return NULL;
	return &entries->fdes.items[low];
}

static bool is_in(const struct fde *fde, uint64_t place)
{
	return place >= fde->start && place < fde->end;
}

/* The code of a part of a function, to be freed; NULL if it is large, or cannot be had. */
static uint8_t *read_part(const struct unwind_table *table, place_t start, place_t end)
{
	return end - start <= MOST_CODE ? read_places(table, start, end - start) : NULL;
}

/* What is called, and the one function that jumps may lead to from here. */
struct callee {
	const struct unwind_table *table;
	const struct entries *entries;
	const struct fde *home;
	int64_t slot;
};

static bool stays(const struct callee *callee, const struct fde *fde);

/* Whether a jump from `fde` leads to where RBX is in the slot still: another part of the function has it there from its
 * beginning to its end, a function that is called at last has not. */
static bool may_jump(const struct callee *callee, const struct fde *fde, uint64_t place)
{
	const struct fde *part;
	struct kept_rbx kept;

	if (is_in(fde, place) || is_in(callee->home, place))
		return true;
	part = fde == callee->home ? find_fde(callee->entries, place) : NULL;
	return part && find_kept_rbx(callee->entries, part, &kept) && kept.is_throughout && kept.slot == callee->slot &&
	       stays(callee, part);
}

/* Whether the function is left by returns alone. */
static bool stays(const struct callee *callee, const struct fde *fde)
{
	uint32_t size = fde->end - fde->start, at = 0;
	uint8_t *code = read_part(callee->table, fde->start, fde->end);
	bool is_good = code;

	while (is_good && at < size) {
		struct x86_instruction i = x86_decode(code + at, size - at);

		at += i.length;
		is_good = i.length && !x86_is_table_jump(&i);
		if (is_good && (x86_is_jump(&i) || x86_is_conditional(&i)))
			is_good = may_jump(callee, fde, (uint64_t)(fde->start + at + i.immediate));
	}
	free(code);
	return is_good;
}

/* Where a function that is called keeps RBX, as long as it runs; false if that is not known of each of its instructions
 * that can be followed. */
static bool find_slot(const struct unwind_table *table, const struct entries *entries, place_t function, int64_t *slot)
{
	struct callee callee = { .table = table, .entries = entries, .home = find_fde(entries, function) };
	struct kept_rbx kept;

	if (!callee.home || callee.home->start != function || !find_kept_rbx(entries, callee.home, &kept))
		return false;
	*slot = callee.slot = kept.slot;
	return !(kept.slot & 7) && kept.slot < 0 && kept.slot >= -RED_ZONE && stays(&callee, callee.home);
}

/* The calls from the code of a row. */
static void add_calls(struct lazy_binding *lazy, const struct unwind_table *table, const struct entries *entries,
                      const struct rbx_row *row)
{
	uint32_t size = row->end - row->start, at = 0;
	uint8_t *code = read_part(table, row->start, row->end);

	while (code && at < size) {
		struct x86_instruction i = x86_decode(code + at, size - at);
		place_t function;
		int64_t slot;

		if (!i.length || lazy->call_count == MOST_RBX_CALLS)
			break;
		at += i.length;
		if (i.map != X86_ONE_BYTE || i.opcode != CALL)
			continue;
		if (find_place(table, elf_address(table, row->start) + at + (uint64_t)i.immediate, &function) &&
		    find_slot(table, entries, function, &slot))
			lazy->calls[lazy->call_count++] = (struct rbx_call){ row->start + at, function, (int32_t)slot };
	}
	free(code);
}

bool find_rbx_calls(struct lazy_binding *lazy, const struct unwind_table *table, const struct entries *entries)
{
	lazy->is_known = true;
	for (unsigned i = 0; i < lazy->row_count; i++)
		add_calls(lazy, table, entries, &lazy->rows[i]);
	return lazy->call_count;
}

bool is_called_with_rbx(const struct lazy_binding *lazy, place_t function)
{
	for (unsigned i = 0; i < lazy->call_count; i++)
		if (lazy->calls[i].function == function)
			return true;
	return false;
}

void add_rbx_row(struct unwind_table *table, place_t start, place_t end, packed_rule rule)
{
	struct lazy_binding *lazy = &table->lazy;
	int32_t offset = (int32_t)(rule >> 32);

	if (!lazy->is_known && lazy->row_count < MOST_RBX_ROWS)
		lazy->rows[lazy->row_count++] = (struct rbx_row){ start, end };
	for (unsigned i = 0; i < lazy->call_count && offset >= 0 && offset <= UINT8_MAX; i++) {
		const struct rbx_call *call = &lazy->calls[i];

		if (call->behind <= start || call->behind > end)
			continue;
		add_row_until(table, start, call->behind - 1, rule);
		/* A return address is looked up one byte before it. */
		start = call->behind;
		add_row_until(table, start - 1, start,
		              pack_rule(UNWIND_CFA_SP_DEREF, (uint8_t)(rule >> 8), (int16_t)(rule >> 16),
		                        call->slot * 256 + offset));
	}
	if (start < end)
		add_row_until(table, start, end, rule);
}
