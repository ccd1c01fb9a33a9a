// SPDX-License-Identifier: Apache-2.0
/* The CIEs and FDEs of .eh_frame (LSB 10.6.1) and .debug_frame (6.4.1). */
#include "unwind_build.h"

enum {
	DW_EH_PE_absptr = 0x00,
	DW_EH_PE_uleb128 = 0x01,
	DW_EH_PE_udata2 = 0x02,
	DW_EH_PE_udata4 = 0x03,
	DW_EH_PE_udata8 = 0x04,
	DW_EH_PE_sleb128 = 0x09,
	DW_EH_PE_sdata2 = 0x0a,
	DW_EH_PE_sdata4 = 0x0b,
	DW_EH_PE_sdata8 = 0x0c,
	DW_EH_PE_pcrel = 0x10,
	DW_EH_PE_datarel = 0x30,
	DW_EH_PE_application = 0x70, /* mask */
	DW_EH_PE_indirect = 0x80,
	DW_EH_PE_omit = 0xff,

	SEARCH_ROW_BYTES = 8, /* where a function begins, and its FDE */

	ANY_SIZE = 0xff, /* of an FDE's augmentation */

	RADIX_BITS = 11,
	RADIX_PASSES = 3, /* of a place's 32 bits */
};

uint64_t read_pointer(struct cursor *c, uint8_t encoding, uint64_t address)
{
	uint64_t value;

	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8: value = read_u64(c); break;
	case DW_EH_PE_uleb128: value = read_uleb(c); break;
	case DW_EH_PE_udata2: value = read_u16(c); break;
	case DW_EH_PE_udata4: value = read_u32(c); break;
	case DW_EH_PE_sleb128: value = (uint64_t)read_sleb(c); break;
	case DW_EH_PE_sdata2: value = (uint64_t)(int64_t)(int16_t)read_u16(c); break;
	case DW_EH_PE_sdata4: value = (uint64_t)(int64_t)(int32_t)read_u32(c); break;
	default: cursor_fail(c); return 0;
	}
	if (encoding & DW_EH_PE_indirect)
		cursor_fail(c); /* the address stands in data that only a running program has */
	if ((encoding & DW_EH_PE_application) == DW_EH_PE_pcrel)
		return address + value;
	if (encoding & DW_EH_PE_application)
		cursor_fail(c); /* relative to sections that neither machine's linkers use for this */
	return value;
}

/* Of an encoded pointer; 0 where there is none. */
static uint8_t size_of_pointer(uint8_t encoding)
{
	if (encoding == DW_EH_PE_omit)
		return 0;
	switch (encoding & 0x0f) {
	case DW_EH_PE_absptr:
	case DW_EH_PE_udata8:
	case DW_EH_PE_sdata8: return 8;
	case DW_EH_PE_udata4:
	case DW_EH_PE_sdata4: return 4;
	case DW_EH_PE_udata2:
	case DW_EH_PE_sdata2: return 2;
	default: return ANY_SIZE;
	}
}

/* One entry: its bytes behind the length, and where they begin. */
struct piece {
	struct cursor c;
	uint64_t offset; /* of the length field in the section */
	uint64_t id, id_offset;
	bool is_wide; /* 64-bit DWARF */
};

struct reader {
	struct entries *entries;
	const struct unwind_table *table;
	const struct unwind_section *section;
	enum entry_kind kind;
	uint32_t first_cie; /* of this section in the entries' list */
	uint32_t last_cie;  /* used last */
	/* The search table of .eh_frame_hdr, by address; the row that was found last. */
	const uint8_t *rows;
	uint32_t row_count, last_row;
	uint64_t header_address;
};

static uint64_t offset_in(const struct reader *reader, const struct cursor *c)
{
	return (uint64_t)(c->at - reader->section->data);
}

/* The next entry; false at the section's end. A terminator in the middle, where files were joined, is passed over. */
static bool next_piece(const struct reader *reader, struct cursor *section, struct piece *piece)
{
	for (;;) {
		piece->offset = offset_in(reader, section);
		if (cursor_left(section) < 8)
			return false;
		uint64_t length = read_u32(section);

		if (length == 0)
			continue;
		piece->is_wide = length == UINT32_MAX;
		if (piece->is_wide)
			length = read_u64(section);
		piece->c = *section;
		cursor_skip(section, length);
		if (section->bad) {
			reader->entries->bad++; /* what follows cannot be found */
			return false;
		}
		piece->c.end = section->at;
		piece->id_offset = offset_in(reader, &piece->c);
		piece->id =
			piece->is_wide && reader->kind == ENTRY_DEBUG_FRAME ? read_u64(&piece->c) : read_u32(&piece->c);
		if (!piece->c.bad)
			return true;
		reader->entries->bad++;
	}
}

static bool is_cie(const struct reader *reader, const struct piece *piece)
{
	if (reader->kind == ENTRY_EH_FRAME)
		return piece->id == 0;
	return piece->id == (piece->is_wide ? UINT64_MAX : UINT32_MAX);
}

/* .eh_frame_hdr as linkers write it (LSB 10.6.2); of other forms nothing is asked. */
static void open_search_table(struct reader *reader, const struct unwind_section *header)
{
	enum { FORM_BYTES = 4, ROWS_AT = 12 };
	static const uint8_t form[FORM_BYTES] = { 1, DW_EH_PE_pcrel | DW_EH_PE_sdata4, DW_EH_PE_udata4,
		                                  DW_EH_PE_datarel | DW_EH_PE_sdata4 };

	if (header->size < ROWS_AT || memcmp(header->data, form, FORM_BYTES) != 0)
		return;
	struct cursor c = cursor_over(header->data, header->size, ROWS_AT - 4);
	uint32_t count = read_u32(&c);

	if (count > (header->size - ROWS_AT) / SEARCH_ROW_BYTES)
		return;
	reader->rows = c.at;
	reader->row_count = count;
	reader->header_address = header->address;
}

static uint64_t start_in_row(const struct reader *reader, uint32_t row)
{
	int32_t distance;

	memcpy(&distance, reader->rows + (uint64_t)row * SEARCH_ROW_BYTES, sizeof(distance));
	return reader->header_address + (uint64_t)(int64_t)distance;
}

/* Whether the search table has a function's start, if there is one; they mostly come in its order. */
static bool is_in_search_table(struct reader *reader, uint64_t start)
{
	uint32_t low = 0, high = reader->row_count;

	if (!reader->rows)
		return true;
	for (uint32_t row = reader->last_row; row < high && row < reader->last_row + 2; row++) {
		if (start_in_row(reader, row) == start) {
			reader->last_row = row;
			return true;
		}
	}
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (start_in_row(reader, middle) < start)
			low = middle + 1;
		else
			high = middle;
	}
	reader->last_row = low;
	return low < reader->row_count && start_in_row(reader, low) == start;
}

/* What the letters of the augmentation say; false if one is unknown, so that the rest cannot be read. */
static bool read_augmentation(struct reader *reader, struct cie *cie, struct cursor *c, const char *letters)
{
	if (*letters != 'z')
		return *letters == 0;
	uint64_t size = read_uleb(c);
	struct cursor data = *c;

	cie->is_augmented = true;
	cursor_skip(c, size);
	if (c->bad)
		return false;
	data.end = c->at;
	for (letters++; *letters; letters++) {
		uint8_t encoding;

		switch (*letters) {
		case 'R': cie->encoding = read_u8(&data); break;
		case 'P':
			encoding = read_u8(&data);
			/* Only its size matters here, and that it may be indirect is no fault. */
			read_pointer(&data, encoding & ~(DW_EH_PE_indirect | DW_EH_PE_application),
			             reader->section->address);
			break;
		case 'L': cie->augmented_bytes = size_of_pointer(read_u8(&data)); break;
		case 'S': cie->is_signal = true; break;
		case 'B': /* aarch64: signed with key B */
		case 'G': /* aarch64: memory tagging */ break;
		default: return false;
		}
	}
	return !data.bad && data.at == data.end;
}

static void read_cie(struct reader *reader, struct piece *piece)
{
	struct cursor *c = &piece->c;
	struct cie cie = { .offset = piece->offset, .encoding = DW_EH_PE_absptr };
	uint8_t version = read_u8(c);
	const char *letters = read_string(c);

	cie.is_bad = !letters || (version != 1 && version != 3 && version != 4);
	if (!cie.is_bad && version == 4)
		cie.is_bad = read_u8(c) != 8 || read_u8(c) != 0; /* sizes of address and segment selector */
	cie.code_align = read_uleb(c);
	cie.data_align = read_sleb(c);
	uint64_t ra = version == 1 ? read_u8(c) : read_uleb(c);

	cie.is_bad = cie.is_bad || c->bad || !read_augmentation(reader, &cie, c, letters) ||
	             (!cie.is_signal && !run_cie(&cie, reader->entries->machine, *c, &cie.initial));
	/* A column of its own for the return address: hand-written, and not followed. */
	if (ra != RA_REGISTER(reader->entries->machine))
		cie.initial.ra.kind = SAVED_OTHERWISE;
	reader->entries->bad += cie.is_bad;
	PUSH(reader->entries->cies, &reader->entries->budget, cie);
}

/* CIEs come in the order of their offsets. */
static bool find_cie(struct reader *reader, uint64_t offset, uint32_t *number)
{
	const struct cie *cies = reader->entries->cies.items;
	uint32_t low = reader->first_cie, high = reader->entries->cies.count;

	if (reader->last_cie < high && cies[reader->last_cie].offset == offset) {
		*number = reader->last_cie;
		return true;
	}
	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (cies[middle].offset == offset) {
			*number = reader->last_cie = middle;
			return true;
		}
		if (cies[middle].offset < offset)
			low = middle + 1;
		else
			high = middle;
	}
	return false;
}

static void read_fde(struct reader *reader, struct piece *piece)
{
	struct entries *entries = reader->entries;
	struct cursor *c = &piece->c;
	struct fde fde = { .kind = reader->kind };
	uint64_t cie_offset = reader->kind == ENTRY_EH_FRAME ? piece->id_offset - piece->id : piece->id;

	if (!find_cie(reader, cie_offset, &fde.cie)) {
		entries->bad++;
		return;
	}
	const struct cie *cie = &entries->cies.items[fde.cie];
	uint64_t start = read_pointer(c, cie->encoding, reader->section->address + offset_in(reader, c));
	uint64_t size = read_pointer(c, cie->encoding & 0x0f, 0);

	uint64_t augmented = cie->is_augmented ? read_uleb(c) : 0;

	cursor_skip(c, augmented);
	if (c->bad || (cie->is_augmented && cie->augmented_bytes != ANY_SIZE && augmented != cie->augmented_bytes) ||
	    (size && !is_in_search_table(reader, start))) {
		entries->bad++;
		return;
	}
	/* Code that the linker discarded keeps an address of 0 or nearby. */
	if (!size || !find_place(reader->table, start, &fde.start))
		return;
	uint64_t end = fde.start + (size < UINT32_MAX ? size : UINT32_MAX),
		 most = segment_end(reader->table, fde.start);

	fde.end = (place_t)(end < most ? end : most);
	fde.program = *c;
	PUSH(entries->fdes, &entries->budget, fde);
}

void read_entries(struct entries *entries, const struct unwind_table *table, const struct unwind_section *section,
                  enum entry_kind kind)
{
	struct reader reader = { .entries = entries,
		                 .table = table,
		                 .section = section,
		                 .kind = kind,
		                 .first_cie = entries->cies.count,
		                 .last_cie = entries->cies.count };
	uint32_t fdes_before = entries->fdes.count, bad_before = entries->bad;
	struct piece piece;

	if (!section->size)
		return;
	struct cursor c = cursor_over(section->data, section->size, 0);

	if (kind == ENTRY_EH_FRAME)
		open_search_table(&reader, &table->input->eh_frame_hdr);

	/* .debug_frame's FDEs may stand before their CIEs. */
	for (int pass = kind == ENTRY_DEBUG_FRAME ? 0 : 1; pass < 2; pass++) {
		struct cursor at = c;

		while (next_piece(&reader, &at, &piece)) {
			if (is_cie(&reader, &piece)) {
				if (pass == 0 || kind == ENTRY_EH_FRAME)
					read_cie(&reader, &piece);
			} else if (pass == 1) {
				read_fde(&reader, &piece);
			}
		}
	}
	/* What is wrong with the others of a damaged section no rule tells: then the code says itself what it does. */
	if (entries->bad > bad_before)
		entries->fdes.count = fdes_before;
}

/* Stable, by start; false if there is no memory. */
static bool sort_by_start(struct entries *entries)
{
	uint32_t n = entries->fdes.count, *count = malloc((sizeof(*count) << RADIX_BITS));
	struct fde *from = entries->fdes.items, *to = malloc((n + 1) * sizeof(*to));

	if (!to || !count) {
		free(to), free(count);
		return false;
	}
	for (unsigned pass = 0; pass < RADIX_PASSES; pass++) {
		unsigned shift = pass * RADIX_BITS;
		uint32_t sum = 0;

		memset(count, 0, sizeof(*count) << RADIX_BITS);
		for (uint32_t i = 0; i < n; i++)
			count[from[i].start >> shift & ((1U << RADIX_BITS) - 1)]++;
		for (uint32_t digit = 0; digit < 1U << RADIX_BITS; digit++) {
			uint32_t here = count[digit];

			count[digit] = sum;
			sum += here;
		}
		for (uint32_t i = 0; i < n; i++)
			to[count[from[i].start >> shift & ((1U << RADIX_BITS) - 1)]++] = from[i];

		struct fde *swapped = from;

		from = to;
		to = swapped;
	}
	/* An odd number of passes: what is sorted lies in the new memory. */
	entries->fdes.items = from;
	entries->fdes.capacity = n + 1;
	free(to), free(count);
	return true;
}

uint32_t sort_entries(struct entries *entries)
{
	struct fde *fdes = entries->fdes.items;
	uint32_t kept = 0, overlaps = 0;
	place_t covered[ENTRY_KINDS] = { 0 }; /* up to where, by entries of each kind */

	bool is_sorted = true;

	for (uint32_t i = 1; i < entries->fdes.count && is_sorted; i++)
		is_sorted = fdes[i - 1].start <= fdes[i].start;
	if (!is_sorted && !sort_by_start(entries)) {
		entries->budget.exhausted = true;
		return 0;
	}
	fdes = entries->fdes.items;
	for (uint32_t i = 0; i < entries->fdes.count; i++) {
		struct fde fde = fdes[i];
		bool is_covered = false;

		for (unsigned better = 0; better < fde.kind; better++)
			is_covered = is_covered || fde.start < covered[better];
		if (is_covered)
			continue;
		if (covered[fde.kind] < fde.end)
			covered[fde.kind] = fde.end;
		if (kept && fdes[kept - 1].start == fde.start) {
			/* A better kind stands in for the worse; of one kind the first holds. */
			if (fde.kind < fdes[kept - 1].kind)
				fdes[kept - 1] = fde;
			continue;
		}
		/* No assembler makes functions that overlap. */
		overlaps += kept && fdes[kept - 1].end > fde.start && fdes[kept - 1].kind == ENTRY_EH_FRAME &&
		            fde.kind == ENTRY_EH_FRAME;
		if (kept && fdes[kept - 1].end > fde.start)
			fdes[kept - 1].end = fde.start;
		fdes[kept++] = fde;
	}
	entries->fdes.count = kept;
	return overlaps;
}
