/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The walk of a user stack in BPF: what it reads, and a step of the loop. Who includes this has the maps, and gives
 * their elements by unwind_bucket(), unwind_row(), unwind_rule_at(), mapping_at() and code_heap_at(), and what some of
 * them tell by has_left_its_stack() and was_java_code_sent(): bcc takes maps in the main file only.
 */
#ifndef TDPROF_WALK_H
#define TDPROF_WALK_H

#include "unwind_calls.h"
#include "walk_state.h"

#ifdef __aarch64__
#define UNWIND_MACHINE UNWIND_AARCH64
#else
#define UNWIND_MACHINE UNWIND_X86_64
#endif

#define PAGE_OFFSET_MASK 4095ULL /* of the smallest pages; larger ones are whole numbers of them */

/* By number, because bcc leaves these out where it cannot see the kernel's symbols. */
static long (*walk_read_user)(void *to, __u32 bytes, const void *from) = (void *)BPF_FUNC_probe_read_user;
static long (*walk_read_kernel)(void *to, __u32 bytes, const void *from) = (void *)BPF_FUNC_probe_read_kernel;
static void *(*walk_current_task)(void) = (void *)BPF_FUNC_get_current_task_btf;
static void *(*walk_task_registers)(void *task) = (void *)BPF_FUNC_task_pt_regs;

/* Read the stack from the frame's beginning on, unless enough of it is there. */
static __always_inline void fill_window(struct unwind_memory *memory, __u64 sp)
{
	__u64 start = sp & ~7ULL;

	if (start - memory->start < memory->bytes)
		return;
	memory->start = start;
	memory->bytes = WINDOW_BYTES;
	if (walk_read_user(memory->word, WINDOW_BYTES, (void *)start) == 0)
		return;
	/* The stack ends, or was swapped out, within the window: the rest of this page. */
	__u32 rest = (PAGE_OFFSET_MASK + 1 - (start & PAGE_OFFSET_MASK)) & (WINDOW_BYTES - 1);

	memory->bytes = walk_read_user(memory->word, rest, (void *)start) == 0 ? rest : 0;
}

static __always_inline int unwind_read(struct unwind_memory *memory, __u64 address, __u64 *word)
{
	__u64 offset = address - memory->start;

	if (address & 7)
		return UNWIND_END_BAD_SP;
	if (offset < memory->bytes) {
		memory->index = offset >> 3;
		*word = memory->word[memory->index & (WINDOW_BYTES / 8 - 1)];
		return 0;
	}
	return walk_read_user(word, sizeof(*word), (void *)address) ? UNWIND_END_UNREADABLE : 0;
}

static __always_inline int unwind_returns_to(struct unwind_memory *memory, __u64 pc)
{
	__u64 before = 0, after = 0; /* what cannot be read is no call */

	if (walk_read_user(&before, sizeof(before), (void *)(pc - 8)))
		memory->unread = pc;
	if (UNWIND_MACHINE == UNWIND_AARCH64 ? unwind_ends_with_branch_and_link(before) : unwind_ends_with_call(before))
		return 1;
	walk_read_user(&after, sizeof(after), (void *)pc);
	return UNWIND_MACHINE == UNWIND_AARCH64 ? unwind_begins_with_arm_sigreturn(after)
	                                        : unwind_begins_with_sigreturn(after);
}

#include "unwind_step.h"
#include "walk_registers.h"
#include "code_heap.h"
#include "v8_code.h"

/* Make `mapping` the one that holds `address`; 0 if none does. */
static __always_inline int find_mapping(struct walk *walk, __u64 address)
{
	struct unwind_tables *range = &walk->tables;

	range->first = walk->space.first;
	range->end = walk->space.first + walk->space.count;
	/* 4,096 mappings; a process that has more executable ones is not walked beyond them. */
	for (int step = 0; step < 13; step++) {
		__u32 first = range->first, end = range->end;

		if (first >= end)
			break;
		__u32 middle = first + ((end - first) >> 1);
		const struct sample_mapping *candidate = mapping_at(middle);

		if (!candidate)
			return 0;
		if (address < candidate->start) {
			range->end = middle;
		} else if (address - candidate->start >= candidate->bytes) {
			range->first = middle + 1;
		} else {
			walk->mapping = *candidate;
			return 1;
		}
	}
	return 0;
}

/*
 * Note a frame, or what it executes, for who names methods, unless there are too many. The compiler must not see that
 * the number is below the bound: it would leave the mask out, and if it keeps the number on the stack then Linux 6.1
 * forgets that it was checked.
 */
static __always_inline void note_java(struct walk *walk, __u64 fp, __u64 sp, __u64 depth)
{
	__u32 number = walk->java_count;

	if (number >= JAVA_SLOTS)
		return;
	asm volatile("" : "+r"(number));
	struct java_place *place = &walk->java[number & (JAVA_SLOTS - 1)];

	place->fp = fp;
	place->sp = sp;
	place->depth = depth;
	walk->java_heap = walk->mapping.first_bucket - 1;
	walk->java_count = number + 1;
}

/*
 * The rule for a frame of a JVM's interpreter, which is noted for who names its method. Below its frame pointer it
 * keeps its caller's stack pointer. As it begins and ends a method that is another frame's, so where it was interrupted
 * this is a guess; of the leaf that is said in the end. No call precedes where it returns to.
 */
static __always_inline void interpreter_rule(struct walk *walk, struct unwind_rule *rule)
{
	struct unwind_state *state = &walk->state;
	__u32 depth = walk->stack.depth;

	if (depth && state->flags & UNWIND_EXACT) /* a signal came */
		state->flags |= UNWIND_GUESSED;
	rule->cfa = UNWIND_CFA_FP_DEREF;
	rule->ra = UNWIND_RA_NEAR + 1;
	rule->fp = UNWIND_FP_BY_FP;
	rule->offset = -8 * 256;
	note_java(walk, state->fp, state->sp, depth);
}

static __always_inline int was_java_code_sent(__u64 identity);

/* Note what a JVM has compiled for who names its method, unless that was done. */
static __always_inline void note_compiled(struct walk *walk, const struct code_heap *heap, __u64 blob)
{
	__u64 identity = blob ? compilation_identity(heap, blob, walk->key.pid) : 0;

	if (identity && walk->java_count < JAVA_SLOTS && !was_java_code_sent(identity))
		note_java(walk, blob, identity, JAVA_COMPILED);
}

/* Find the rule for an address; not 0: why there is none. */
static __always_inline int find_rule(struct walk *walk, __u64 address, int has_heaps, struct known_rule *found)
{
	const struct unwind_rule *rule;

	if (address - walk->mapping.start >= walk->mapping.bytes && !find_mapping(walk, address))
		return UNWIND_END_NO_MAPPING;
	found->rule.cfa = UNWIND_FP_GUESS;
	found->rule.ra = UNWIND_RA_CFA;
	if (!walk->mapping.otherwise) {
		__u32 bucket = walk->mapping.first_bucket + ((address - walk->mapping.start) >> UNWIND_BUCKET_SHIFT);

		rule = unwind_rule_at(unwind_search(&walk->tables, bucket, address & 0xff));
		if (!rule)
			return UNWIND_END_NO_TABLE;
		found->rule = *rule;
	}
	found->address = address;
	found->generation = walk->space.generation;
	found->otherwise = walk->mapping.otherwise;
	if (walk->mapping.otherwise && walk->mapping.first_bucket == OF_V8) {
		v8_rule(&walk->memory, &walk->state, walk->stack.depth, &found->rule);
		found->generation = 0; /* as below */
	}
	if (has_heaps && walk->mapping.otherwise && walk->mapping.first_bucket) {
		const struct code_heap *heap = code_heap_at(walk->mapping.first_bucket - 1);

		if (heap && address - heap->interpreter < heap->interpreter_bytes)
			interpreter_rule(walk, &found->rule);
		else if (heap)
			note_compiled(walk, heap, heap_rule(&walk->memory, heap, &walk->state, address, &found->rule));
		found->generation = 0; /* code comes and goes there, and the rule is of this frame */
	}
	return 0;
}

/* One frame: note it, and make the state its caller's; `has_heaps`: also of what JVMs have compiled. Not 0: the enum
 * unwind_end of the stack. */
static __always_inline int walk_frame(struct walk *walk, int has_heaps)
{
	struct unwind_state *state = &walk->state;
	__u64 address = unwind_lookup_pc(state);
	__u32 depth = walk->stack.depth;
	struct known_rule *known = &walk->known[address * 0x9e3779b97f4a7c15ULL >> (64 - KNOWN_RULES_SHIFT)];
	const struct unwind_rule guess = { .cfa = UNWIND_INFERRED | UNWIND_FP_GUESS }, *rule = &known->rule;
	int end;

	if (known->address != address || known->generation != walk->space.generation) {
		known->generation = 0;
		end = find_rule(walk, address, has_heaps, known);
		if (end) {
			/* Where the sample was taken is known, whatever is mapped there. */
			if (depth == 0) {
				walk->stack.address[0] = state->pc;
				walk->stack.depth = 1;
			}
			walk->is_lost = end == UNWIND_END_NO_MAPPING;
			return walk->is_lost ? walk->if_lost : end;
		}
	}
	if (state->flags & UNWIND_TRY_FP) {
		rule = &guess;
	} else {
		if (depth >= MAX_STACK_DEPTH)
			return UNWIND_END_TOO_DEEP;
		/* As all callers, an interrupted instruction is looked for one byte before what stands here. */
		walk->stack.address[depth & 255] = state->pc + (depth > 0 && state->flags & UNWIND_EXACT ? 1 : 0);
		walk->stack.depth = depth + 1;
		walk->is_called = !known->otherwise && !(state->flags & UNWIND_EXACT);
		if (known->otherwise == UNWIND_END_NO_TABLE)
			return UNWIND_END_NO_TABLE; /* that will come, so nothing need be guessed */
		fill_window(&walk->memory, state->sp);
	}
	end = unwind_step(&walk->memory, state, rule);
	walk->if_lost = state->flags & UNWIND_GUESSED ? UNWIND_END_NO_UNWIND_INFO : UNWIND_END_NO_MAPPING;
	if (known->otherwise) {
		walk->if_lost = known->otherwise;
		if (end == UNWIND_END_NO_UNWIND_INFO || end == UNWIND_END_NO_MAPPING)
			end = known->otherwise;
	}
	if (state->flags & UNWIND_GUESSED && !walk->stack.guessed_from)
		walk->stack.guessed_from = walk->stack.depth;
	return end;
}

#endif
