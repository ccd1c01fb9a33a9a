/* SPDX-License-Identifier: Apache-2.0 */
/* Folded stacks: the order of their texts without making these, and then the texts. */
#include "stacks.h"

#include <stdbool.h>
#include <string.h>

struct sorter {
	const int64_t *start;
	const int32_t *function;
	const struct stack_names *names;
	uint32_t *order;
};

/* What decides at `level` frames from the root of a stack; 0 behind its leaf. */
static inline uint32_t symbol_at(const struct sorter *s, uint32_t stack, int64_t level)
{
	const int64_t leaf = s->start[stack], at = s->start[stack + 1] - 1 - level;
	if (at < leaf)
		return 0;
	const uint32_t name = (uint32_t)(s->function[at] + 1);
	return at == leaf ? s->names->leaf_rank[name] : s->names->inner_rank[name];
}

static inline void swap(uint32_t *a, uint32_t *b)
{
	const uint32_t kept = *a;
	*a = *b;
	*b = kept;
}

static uint32_t median(uint32_t a, uint32_t b, uint32_t c)
{
	const uint32_t low = a < b ? a : b, high = a < b ? b : a;
	return c < low ? low : c > high ? high : c;
}

/* Quicksort on one level after the other (Bentley and Sedgewick 1997): what is equal here goes on with the next level.
 * Only the two smaller parts recurse, so that the depth is the logarithm of the rows. */
static void sort_rows(const struct sorter *s, uint64_t first, uint64_t last, int64_t level)
{
	while (last - first > 1) {
		const uint64_t middle = first + (last - first) / 2;
		const uint32_t pivot =
			median(symbol_at(s, s->order[first], level), symbol_at(s, s->order[middle], level),
		               symbol_at(s, s->order[last - 1], level));
		uint64_t less = first, greater = last;
		for (uint64_t i = first; i < greater;) {
			const uint32_t symbol = symbol_at(s, s->order[i], level);
			if (symbol < pivot)
				swap(&s->order[less++], &s->order[i++]);
			else if (symbol > pivot)
				swap(&s->order[i], &s->order[--greater]);
			else
				i++;
		}
		struct part {
			uint64_t first, last;
			int64_t level;
		} parts[3] = { { first, less, level },
			       { less, pivot == 0 ? less : greater, level + 1 },
			       { greater, last, level } };
		int largest = 0;
		for (int i = 1; i < 3; i++)
			if (parts[i].last - parts[i].first > parts[largest].last - parts[largest].first)
				largest = i;
		for (int i = 0; i < 3; i++)
			if (i != largest)
				sort_rows(s, parts[i].first, parts[i].last, parts[i].level);
		first = parts[largest].first;
		last = parts[largest].last;
		level = parts[largest].level;
	}
}

static bool is_same_text(const struct sorter *s, uint32_t a, uint32_t b)
{
	uint32_t symbol = 0;
	int64_t level = 0;
	do
		symbol = symbol_at(s, a, level);
	while (symbol == symbol_at(s, b, level++) && symbol != 0);
	return symbol == symbol_at(s, b, level - 1);
}

/* Sort `order`, numbers of stacks, by their frames from the root, and give every stack its rank; equal texts share one.
 * Returns how many ranks there are. */
EXPORT uint64_t tdprof_rank_stacks(const int64_t *start, const int32_t *function, const struct stack_names *names,
                                   uint32_t *order, uint64_t stacks, uint32_t *rank)
{
	const struct sorter s = { start, function, names, order };
	sort_rows(&s, 0, stacks, 0);
	uint64_t ranks = 0;
	for (uint64_t i = 0; i < stacks; i++) {
		ranks += i == 0 || !is_same_text(&s, order[i - 1], order[i]);
		rank[order[i]] = (uint32_t)ranks - 1;
	}
	return ranks;
}

static uint8_t *put_text(uint8_t *out, const int64_t *start, const uint8_t *text, int64_t row)
{
	const uint64_t bytes = (uint64_t)(start[row + 1] - start[row]);
	memcpy(out, text + start[row], bytes);
	return out + bytes;
}

static uint8_t *put_number(uint8_t *out, uint64_t value)
{
	uint8_t digits[20];
	int count = 0;
	do
		digits[count++] = (uint8_t)('0' + value % 10);
	while ((value /= 10) != 0);
	while (count > 0)
		*out++ = digits[--count];
	return out;
}

/* Write the lines of rows `first` on, as many as have room; *written bytes. Returns the first row left. */
EXPORT uint64_t tdprof_folded_lines(const struct folded_rows *r, uint64_t first, uint8_t *out, uint64_t capacity,
                                    uint64_t *written)
{
	uint8_t *at = out;
	uint64_t i = first;
	for (; i < r->rows; i++) {
		const int64_t leaf = r->start[r->stack[i]];
		const uint32_t thread = r->thread[i];
		uint64_t bytes = (uint64_t)(r->thread_start[thread + 1] - r->thread_start[thread]) + 21;
		for (int64_t frame = leaf; frame < r->start[r->stack[i] + 1]; frame++)
			bytes += (uint64_t)(r->names.start[r->function[frame] + 2] -
			                    r->names.start[r->function[frame] + 1]);
		if (bytes > capacity - (uint64_t)(at - out))
			break;
		at = put_text(at, r->thread_start, r->thread_text, thread);
		for (int64_t frame = r->start[r->stack[i] + 1]; frame-- > leaf;)
			at = put_text(at, r->names.start, r->names.text, r->function[frame] + 1);
		at[-1] = ' '; /* in place of the last separator */
		at = put_number(at, r->weight[i]);
		*at++ = '\n';
	}
	*written = (uint64_t)(at - out);
	return i;
}
