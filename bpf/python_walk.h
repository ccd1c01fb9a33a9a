/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The walk of CPython's own frames. Its structures are the process's, which may have any bytes in them: nothing is
 * believed but that it can be read, and every loop is bounded. Who includes this has the maps: was_sent() and
 * send_code().
 */
#ifndef TDPROF_PYTHON_WALK_H
#define TDPROF_PYTHON_WALK_H

#include "mix.h"
#include "walk_state.h"

/* Whether a code object was sent lately. */
static __always_inline int was_sent(__u64 code);
/* Send one of which `bytes` hold something. */
static __always_inline void send_code(struct python_code *code, __u64 bytes);

static __always_inline __u64 python_pointer(__u64 address)
{
	__u64 value = 0;

	walk_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* The thread's number, as it wrote it down itself. */
static __always_inline __u32 python_thread_id(const struct python_runtime *runtime, __u64 thread)
{
	__u32 number = 0;
	__u64 place = thread + runtime->thread_id;

	if (runtime->pthread_id != PYTHON_NONE)
		place = python_pointer(place) + runtime->pthread_id;
	walk_read_user(&number, sizeof(number), (void *)place);
	return number;
}

/* Whether one of CPython's structures is the thread's that is walked. */
static __always_inline int is_python_thread(const struct python_runtime *runtime, const struct python_walk *python,
                                            __u64 thread)
{
	__u32 number = python_thread_id(runtime, thread);

	return number == python->tid || (number && number == python->forked_by);
}

/* The innermost frame of a thread; 0: it runs none. */
static __always_inline __u64 python_thread_frame(const struct python_runtime *runtime, __u64 thread)
{
	__u64 frame = python_pointer(thread + runtime->thread_frame);

	return frame && runtime->inner_frame != PYTHON_NONE ? python_pointer(frame + runtime->inner_frame) : frame;
}

/* CPython's structure of the thread among the next of them, the newest first; 0: it is none of those. */
static __always_inline __u64 find_python_thread(const struct python_runtime *runtime, struct python_walk *python)
{
	for (int i = 0; i < PYTHON_THREADS_PER_PROGRAM && python->interpreter; i++) {
		__u64 thread = python->thread;

		if (!thread) {
			python->interpreter = python_pointer(python->interpreter + runtime->next_interpreter);
			if (python->interpreter)
				python->thread = python_pointer(python->interpreter + runtime->first_thread);
			continue;
		}
		python->thread = python_pointer(thread + runtime->next_thread);
		if (is_python_thread(runtime, python, thread))
			return thread;
	}
	return 0;
}

/*
 * Have a frame in the window; 0 if it cannot be read. From 3.11 on frames stand on a stack of their own, callers' at
 * lower addresses: a read serves those of the same page, too, which can be read wherever the frame can.
 */
static __always_inline int fill_python_window(const struct python_runtime *runtime, struct python_walk *python,
                                              __u64 frame)
{
	__u64 offset = frame - python->start, before = 0;

	if (offset >= python->bytes || python->bytes - offset < PYTHON_FRAME_BYTES) {
		if (runtime->entry != PYTHON_ENTRY_ALWAYS)
			before = frame & PAGE_OFFSET_MASK & ~7ULL;
		if (before > PYTHON_WINDOW_BYTES - PYTHON_FRAME_BYTES)
			before = PYTHON_WINDOW_BYTES - PYTHON_FRAME_BYTES;
		__u64 bytes = before + PYTHON_FRAME_BYTES;

		asm volatile("" : "+r"(bytes)); /* as in send_stack() */
		python->start = frame - before;
		python->bytes = 0;
		if (bytes > PYTHON_WINDOW_BYTES || walk_read_user(python->word, bytes, (void *)python->start))
			return 0;
		python->bytes = bytes;
		offset = before;
	}
	python->offset = offset;
	return 1;
}

static __always_inline __u64 python_word(struct python_walk *python, __u16 offset)
{
	python->index = (python->offset + offset) >> 3;
	return python->word[python->index & (PYTHON_WINDOW_BYTES / 8 - 1)];
}

/* As much of `most` bytes as can be read: all, or up to the end of the page. */
static __always_inline __u32 read_some(__u8 *to, __u32 most, __u64 from)
{
	__u32 rest = (PAGE_OFFSET_MASK + 1 - (from & PAGE_OFFSET_MASK)) & (most - 1);

	if (walk_read_user(to, most, (void *)from) == 0)
		return most;
	return rest && walk_read_user(to, rest, (void *)from) == 0 ? rest : 0;
}

/* What a code object points to: file name, name, from 3.11 on qualified name, and table of lines. */
static __always_inline __u64 python_name(const struct python_walk *python, __u32 number)
{
	return python->code[PYTHON_LINE_DISTANCE / 8 + number];
}

static __always_inline __u64 python_lines(const struct python_runtime *runtime, const struct python_walk *python)
{
	return python_name(python, runtime->has_qualified_names ? 3 : 2);
}

static __always_inline __u32 python_first_line(const struct python_runtime *runtime, const struct python_walk *python)
{
	__u32 at = runtime->code_line + PYTHON_LINE_DISTANCE - runtime->code_names;

	return python->code[at >> 3 & 15] >> (at & 4) * 8;
}

/*
 * The object's place may be another's later; what it points to then is another's, too, or, where code is made, run and
 * dropped (exec, eval, templates), in the same places again. So more of it tells, and for code of modules, which begins
 * at line 1 whatever its lines are, the hash of its table of lines, where the compiler left that (from 3.10 on). Each
 * is mixed by itself: objects lie at regular distances, and those of two functions alike often differ by the same bits
 * as their names do.
 */
static __always_inline __u64 code_identity(const struct python_runtime *runtime, const struct python_walk *python,
                                           __u64 object)
{
	__u64 hash = mix(mix(mix(python->process, object), python_name(python, 1)), python_name(python, 0));
	__u64 qualified = runtime->has_qualified_names ? python_name(python, 2) : 0;
	__u64 first_line = python_first_line(runtime, python); /* one of replace() may differ in these two alone */
	__u64 lines = python_lines(runtime, python), table = 0;

	hash = mix(mix(hash, python->code[0]), python->code[1]); /* from 3.11 on its constants and names */
	hash = mix(mix(hash, python->code[5]), python->code[8]); /* up to 3.10 its constants; from 3.12 on its number */
	__u64 bytes = (first_line - 2) >> 60; /* 8 of that line 0 and 1: branches are much work for the verifier */

	asm volatile("" : "+r"(bytes)); /* as in send_stack() */
	walk_read_user(&table, bytes & 8, (void *)(lines + PYTHON_HASH_IN_BYTES));
	return mix(mix(mix(hash, lines), table), first_line << 32 ^ qualified);
}

/* Send what a code object says of itself, unless that was done. */
static __always_inline void note_code(const struct python_runtime *runtime, struct python_walk *python,
                                      struct python_code *sent, __u64 identity)
{
	__u64 lines = python_lines(runtime, python), bytes = 0;

	if (was_sent(identity))
		return;
	sent->code = identity;
	sent->process = python->stack.process;
	sent->first_line = python_first_line(runtime, python);
	sent->path_bytes = read_some(sent->path, PYTHON_PATH_BYTES, python_name(python, 0));
	sent->name_bytes =
		read_some(sent->name, PYTHON_NAME_BYTES, python_name(python, runtime->has_qualified_names ? 2 : 1));
	/* Of a frozen module, maybe, and not in memory yet: at its next sample. */
	if (!sent->path_bytes || !sent->name_bytes)
		return;
	/* A bytes object: its length after the header of 16 bytes, its bytes after another 16. */
	bytes = python_pointer(lines + 16);
	sent->line_bytes = bytes > 0xffffffffULL ? 0 : bytes;
	if (bytes > MOST_LINE_BYTES)
		bytes = MOST_LINE_BYTES;
	asm volatile("" : "+r"(bytes)); /* as in send_stack() */
	if (bytes > MOST_LINE_BYTES || walk_read_user(sent->lines, bytes, (void *)(lines + 32)))
		bytes = 0;
	send_code(sent, sizeof(*sent) - sizeof(sent->lines) + bytes);
}

/* One frame: note it, and return where its caller's is; 0: there is none. */
static __always_inline __u64 walk_python_frame(const struct python_runtime *runtime, struct python_walk *python,
                                               struct python_code *sent, __u64 frame)
{
	struct python_stack *stack = &python->stack;

	if (!fill_python_window(runtime, python, frame))
		return 0;
	__u64 code = python_word(python, runtime->frame_code) & ~7ULL; /* from 3.14 on with marks in the lowest bits */
	__u64 previous = python_word(python, runtime->frame_previous);
	__u64 instruction = python_word(python, runtime->frame_instruction) >> (runtime->frame_instruction & 7) * 8;
	__u8 entry = python_word(python, runtime->frame_entry) >> (runtime->frame_entry & 7) * 8;
	__u32 last = (python->count - 1) & (PYTHON_SLOTS - 1), count = python->count & (PYTHON_SLOTS - 1);

	if (runtime->entry == PYTHON_ENTRY_OWNER && entry >= PYTHON_OWNER_C) {
		/* No code of its own: the frame before it is where C code came in. */
		if (python->count && python->count <= MOST_PYTHON_FRAMES)
			stack->frame[last].call = PYTHON_CALL_ENTRY;
		return previous;
	}
	if (walk_read_user(python->code, PYTHON_CODE_BYTES,
	                   (void *)(code + runtime->code_names - PYTHON_LINE_DISTANCE)))
		return 0;
	if (count >= MOST_PYTHON_FRAMES) {
		stack->is_cut = 1;
		return 0;
	}
	if (runtime->instruction == PYTHON_INSTRUCTION_ADDRESS)
		instruction -= code + runtime->code_instructions;
	__u64 identity = code_identity(runtime, python, code);
	__u32 call = runtime->entry == PYTHON_ENTRY_ALWAYS || (runtime->entry == PYTHON_ENTRY_FLAG && entry);
	__u32 above = 1 + (__u32)(python_word(python, runtime->frame_top) >> (runtime->frame_top & 7) * 8);

	/* A top of 0 or -1 is none. By the sign: branches are much work for the verifier. */
	call |= (1 - (__u64)above) >> 62 & PYTHON_CALL_WAITS;

	stack->frame[count].code = identity;
	stack->frame[count].instruction = instruction;
	stack->frame[count].call = call;
	/* `identity` is mixed as it is. */
	python->hash = mix(python->hash, identity + (instruction << 2 | call));
	python->count = count + 1;
	note_code(runtime, python, sent, identity);
	return previous;
}

#endif
