/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of locations into stacks of frames, and equal ones of these found. */
#include "stacks.h"

#include <string.h>

#include "hash.h"

/* start: [stacks + 1] filled with where each stack's frames begin; a stack without any gets one. */
EXPORT void tdprof_count_frames(const uint32_t *stack_start, const int32_t *location, uint64_t stacks,
                                const uint32_t *frame_start, int64_t *start)
{
	int64_t frames = 0;
	for (uint64_t i = 0; i < stacks; i++) {
		start[i] = frames;
		for (uint32_t j = stack_start[i]; j < stack_start[i + 1]; j++)
			frames += frame_start[location[j] + 1] - frame_start[location[j]];
		frames += frames == start[i];
	}
	start[stacks] = frames;
}

/* function, line: [start[stacks]], of every frame; -1 and 0 for a stack without any. */
EXPORT void tdprof_expand_frames(const uint32_t *stack_start, const int32_t *location, uint64_t stacks,
                                 const uint32_t *frame_start, const int32_t *frame_function, const uint32_t *frame_line,
                                 const int64_t *start, int32_t *function, uint32_t *line)
{
	for (uint64_t i = 0; i < stacks; i++) {
		int64_t at = start[i];
		for (uint32_t j = stack_start[i]; j < stack_start[i + 1]; j++)
			for (uint32_t frame = frame_start[location[j]]; frame < frame_start[location[j] + 1]; frame++) {
				function[at] = frame_function[frame];
				line[at++] = frame_line[frame];
			}
		if (at == start[i]) {
			function[at] = -1;
			line[at] = 0;
		}
	}
}

/* Each row with each stack that holds it, once, however often that is: row, stack: as long as row_of_frame.
 * seen: [rows], all -1. Returns how many pairs there are. */
EXPORT uint64_t tdprof_rows_in_stacks(const int32_t *row_of_frame, const int64_t *start, uint64_t stacks, int64_t *seen,
                                      int64_t *row, int64_t *stack)
{
	uint64_t pairs = 0;
	for (uint64_t i = 0; i < stacks; i++)
		for (int64_t at = start[i]; at < start[i + 1]; at++) {
			const int32_t here = row_of_frame[at];
			if (seen[here] == (int64_t)i)
				continue;
			seen[here] = (int64_t)i;
			row[pairs] = here;
			stack[pairs++] = (int64_t)i;
		}
	return pairs;
}

/* Returns how many distinct stacks there are. */
EXPORT uint64_t tdprof_merge_stacks(struct stack_merge *m)
{
	uint64_t distinct = 0;
	for (uint64_t i = 0; i < m->stacks; i++) {
		const int32_t *row = m->function + m->start[i];
		const uint64_t length = (uint64_t)(m->start[i + 1] - m->start[i]);
		uint64_t hash = m->seed ^ length, at = 0;
		for (uint64_t words[2]; at + 4 <= length; at += 4) {
			memcpy(words, row + at, sizeof(words));
			hash = hash_pair(hash, words[0], words[1], m->seed);
		}
		for (; at < length; at++)
			hash = hash_pair(hash, (uint32_t)row[at], 0, m->seed);
		hash = hash_end(hash);
		uint64_t slot = hash & m->slot_mask;
		for (uint64_t entry; (entry = m->slots[slot]) != 0; slot = (slot + 1) & m->slot_mask) {
			if (entry >> 32 != hash)
				continue;
			const int64_t other = m->representative[(uint32_t)entry - 1];
			if ((uint64_t)(m->start[other + 1] - m->start[other]) == length &&
			    memcmp(m->function + m->start[other], row, length * sizeof(*row)) == 0)
				break;
		}
		if (m->slots[slot] == 0) {
			m->representative[distinct++] = (int64_t)i;
			m->slots[slot] = hash << 32 | distinct;
		}
		m->merged[i] = (int64_t)(uint32_t)m->slots[slot] - 1;
	}
	return distinct;
}
