// SPDX-License-Identifier: Apache-2.0
/* Rows in the order of addresses, with rules numbered and gaps filled. */
#include "unwind_build.h"

enum {
	RULE_UNSUPPORTED = 1, /* beside UNWIND_RULE_NONE; also of a file with more rules than numbers */
	MOST_PADDING = 15,    /* bytes between functions that are no code, so the rule before may hold on */
	LEAST_GUESSED = 257,  /* bytes of code without a rule that are taken for code with frame pointers */
	MOST_INFERRED = 16 << 20,
};

static const packed_rule NONE = UNWIND_NONE;

static uint32_t bucket_span(const struct unwind_segment *segment)
{
	return (uint32_t)(((segment->elf_address & 0xff) + segment->bytes + 0xff) >> UNWIND_BUCKET_SHIFT);
}

place_t segment_start(const struct unwind_segment *segment)
{
	return (segment->first_bucket << UNWIND_BUCKET_SHIFT) + (place_t)(segment->elf_address & 0xff);
}

bool open_table(struct unwind_table *table, const struct unwind_input *input)
{
	uint64_t buckets = 0;

	memset(table, 0, sizeof(*table));
	if (input->segment_count > UNWIND_MOST_SEGMENTS || input->identity_size > sizeof(table->header.identity))
		return false;
	for (uint32_t i = 0; i < input->segment_count; i++) {
		struct unwind_segment *segment = &table->segments[i];

		*segment = input->segments[i];
		segment->first_bucket = (uint32_t)buckets;
		buckets += (uint64_t)bucket_span(segment) + 1;
		/* So that a place fits its type. */
		if (buckets >= UINT32_MAX >> UNWIND_BUCKET_SHIFT ||
		    segment->elf_address > UINT64_MAX - segment->bytes ||
		    (i && segment->elf_address < segment[-1].elf_address + segment[-1].bytes))
			return false;
	}
	table->buckets = malloc((buckets + 1) * sizeof(*table->buckets));
	if (!table->buckets)
		return false;
	table->header.magic = UNWIND_MAGIC;
	table->header.version = UNWIND_VERSION;
	table->header.machine = input->machine;
	table->header.identity_size = (uint8_t)input->identity_size;
	memcpy(table->header.identity, input->identity, input->identity_size);
	table->header.segments = input->segment_count;
	table->header.buckets = (uint32_t)buckets;
	table->input = input;
	for (uint32_t i = 0; i < input->stretch_count; i++)
		table->has_parts = table->has_parts || input->stretches[i].kind == UNWIND_STRETCH_WITHIN;
	table->covered = input->segment_count ? segment_start(&table->segments[0]) : 0;
	PUSH(table->rules, &table->budget, NONE);
	PUSH(table->rules, &table->budget, UNWIND_UNSUPPORTED);
	map_add(&table->rule_numbers, NONE, UNWIND_RULE_NONE, &table->budget);
	map_add(&table->rule_numbers, UNWIND_UNSUPPORTED, RULE_UNSUPPORTED, &table->budget);
	return !table->budget.exhausted;
}

bool find_place(const struct unwind_table *table, uint64_t address, place_t *place)
{
	for (uint32_t i = 0; i < table->header.segments; i++) {
		const struct unwind_segment *segment = &table->segments[i];

		if (address - segment->elf_address < segment->bytes) {
			*place = (place_t)(((uint64_t)segment->first_bucket << UNWIND_BUCKET_SHIFT) +
			                   (address - (segment->elf_address & ~0xffULL)));
			return true;
		}
	}
	return false;
}

uint64_t elf_address(const struct unwind_table *table, place_t place)
{
	const struct unwind_segment *segment = &table->segments[0];

	for (uint32_t i = 1; i < table->header.segments && segment_start(&table->segments[i]) <= place; i++)
		segment = &table->segments[i];
	return segment->elf_address + (place - segment_start(segment));
}

place_t segment_end(const struct unwind_table *table, place_t place)
{
	place_t end = 0;

	for (uint32_t i = 0; i < table->header.segments && segment_start(&table->segments[i]) <= place; i++)
		end = segment_start(&table->segments[i]) + table->segments[i].bytes;
	return end;
}

static uint32_t rule_number(struct unwind_table *table, packed_rule rule)
{
	uint32_t number = map_find(&table->rule_numbers, rule);

	if (number != MAP_NOTHING)
		return number;
	if (table->rules.count >= UNWIND_MOST_RULES)
		return RULE_UNSUPPORTED;
	number = table->rules.count;
	if (PUSH(table->rules, &table->budget, rule))
		map_add(&table->rule_numbers, rule, number, &table->budget);
	return number;
}

static void number_buckets(struct unwind_table *table, uint32_t until)
{
	while (table->next_bucket < until)
		table->buckets[table->next_bucket++] = table->rows.count;
}

void add_row(struct unwind_table *table, place_t place, packed_rule rule)
{
	if (rule == table->last_rule && place != segment_start(&table->segments[table->segment]))
		return;
	number_buckets(table, (place >> UNWIND_BUCKET_SHIFT) + 1);
	PUSH(table->rows, &table->budget, UNWIND_ROW(place & 0xff, rule_number(table, rule)));
	table->last_rule = rule;
	if ((rule & 0xff) == UNWIND_UNSUPPORTED)
		table->header.unsupported_rows++;
}

uint8_t *read_places(const struct unwind_table *table, place_t start, uint32_t size)
{
	uint8_t *code = table->input->read_code ? malloc((size_t)size + 1) : NULL;

	if (code && table->input->read_code(elf_address(table, start), code, size)) {
		free(code);
		return NULL;
	}
	return code;
}

/* Rows by what the code does; false if it cannot be read. */
static bool fill_inferred(struct unwind_table *table, place_t end, bool is_builtins)
{
	uint64_t address = elf_address(table, table->covered);
	uint32_t bytes = end - table->covered;
	uint8_t *code = bytes <= MOST_INFERRED ? read_places(table, table->covered, bytes) : NULL;

	if (!code)
		return false;
	add_row(table, table->covered, NONE);
	read_functions(table);
	if (table->input->machine == MACHINE_X86_64)
		infer_rows(table, table->covered, address, code, bytes, is_builtins);
	else
		infer_arm_rows(table, table->covered, address, code, bytes, is_builtins);
	free(code);
	return true;
}

/* Up to a place; `is_end`: there is no code from there on. */
static void fill_unknown(struct unwind_table *table, place_t end, bool is_end)
{
	const struct unwind_segment *segment = &table->segments[table->segment];
	place_t first = segment_start(segment);
	/* Padding goes on as what it follows; short code that begins a segment or ends it (.init, .fini) does not. */
	bool is_at_an_edge = table->covered == first || end == first + segment->bytes || is_end;
	uint32_t bytes = end - table->covered;

	if (bytes > MOST_PADDING && fill_inferred(table, end, false)) {
		table->header.guessed_gaps++;
	} else if (bytes >= LEAST_GUESSED) {
		add_row(table, table->covered, UNWIND_FP_GUESS);
		table->header.guessed_gaps++;
	} else if (bytes > MOST_PADDING || (bytes && is_at_an_edge)) {
		add_row(table, table->covered, NONE);
	}
	table->covered = end;
}

static packed_rule stretch_rule(const struct unwind_stretch *stretch)
{
	return pack_rule(stretch->rule.cfa, stretch->rule.ra, stretch->rule.fp, stretch->rule.offset);
}

/* Up to a place in the segment that is being filled: stretches of known code, and what is between them. */
static void fill_gap(struct unwind_table *table, place_t end)
{
	while (table->next_stretch < table->input->stretch_count && table->covered < end) {
		const struct unwind_stretch *stretch = &table->input->stretches[table->next_stretch];
		const struct unwind_segment *segment = &table->segments[table->segment];
		uint64_t base =
			segment->elf_address - segment_start(segment); /* may wrap: place + base is an address */
		uint64_t from = stretch->start, to = stretch->end;

		if (from < table->covered + base) {
			/* What follows an outermost function that has an FDE is another function. */
			from = stretch->rule.cfa == UNWIND_STOP ? to : table->covered + base;
		}
		if (to > end + base)
			to = end + base;
		if (from < to) {
			fill_unknown(table, (place_t)(from - base), stretch->rule.cfa == UNWIND_NONE);
			if (stretch->kind == UNWIND_STRETCH_BUILTINS)
				table->header.sources |= UNWIND_FROM_V8;
			if (stretch->kind != UNWIND_STRETCH_BUILTINS ||
			    !fill_inferred(table, (place_t)(to - base), true))
				add_row(table, (place_t)(from - base), stretch_rule(stretch));
			table->covered = (place_t)(to - base);
		}
		if (stretch->end > end + base)
			break; /* it may go on behind what comes now */
		table->next_stretch++;
	}
	fill_unknown(table, end, false);
}

bool find_certain(const struct unwind_table *table, place_t start, place_t end, packed_rule *rule)
{
	const struct unwind_segment *segment = &table->segments[table->segment];
	uint64_t base = segment->elf_address - segment_start(segment); /* may wrap, as in fill_gap */

	for (uint32_t i = table->next_stretch; i < table->input->stretch_count; i++) {
		const struct unwind_stretch *stretch = &table->input->stretches[i];

		if (stretch->start > start + base)
			return false;
		if (stretch->kind == UNWIND_STRETCH_CERTAIN && stretch->end >= end + base) {
			*rule = stretch_rule(stretch);
			return true;
		}
	}
	return false;
}

void add_row_until(struct unwind_table *table, place_t place, place_t end, packed_rule rule)
{
	const struct unwind_segment *segment = &table->segments[table->segment];
	uint64_t base = segment->elf_address - segment_start(segment); /* may wrap, as in fill_gap */

	for (uint32_t i = table->next_stretch; i < table->input->stretch_count; i++) {
		const struct unwind_stretch *stretch = &table->input->stretches[i];

		if (stretch->start >= end + base)
			break;
		if (stretch->kind != UNWIND_STRETCH_WITHIN || stretch->end <= place + base)
			continue;
		if (stretch->start > place + base) {
			add_row(table, place, rule);
			place = (place_t)(stretch->start - base);
		}
		add_row(table, place, stretch_rule(stretch));
		if (stretch->end >= end + base)
			return;
		place = (place_t)(stretch->end - base);
	}
	add_row(table, place, rule);
}

static void enter_segment(struct unwind_table *table, uint32_t number)
{
	while (table->segment < number) {
		const struct unwind_segment *segment = &table->segments[table->segment];

		fill_gap(table, segment_start(segment) + segment->bytes);
		check_beginnings(table);
		number_buckets(table, segment->first_bucket + bucket_span(segment) + 1);
		table->segment++;
		if (table->segment < table->header.segments)
			table->covered = segment_start(&table->segments[table->segment]);
	}
}

void begin_rows(struct unwind_table *table, place_t start, place_t end)
{
	uint32_t number = table->segment;

	while (number + 1 < table->header.segments && segment_start(&table->segments[number + 1]) <= start)
		number++;
	enter_segment(table, number);
	/* No function ends with padding, so a call that is the last one's last does not return to behind that. */
	if (start <= table->covered || start - table->covered > MOST_PADDING)
		PUSH(table->doubtful, &table->budget, table->beginnings.count);
	PUSH(table->beginnings, &table->budget, start);
	fill_gap(table, start);
	table->covered = end;
}

void finish_table(struct unwind_table *table)
{
	enter_segment(table, table->header.segments);
	table->header.rules = table->rules.count;
	table->header.rows = table->rows.count;
	table->header.beginnings = table->beginnings.count;
}
