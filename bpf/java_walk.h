/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The methods of a JVM's frames (HotSpot). Its structures are the process's, which may have any bytes in them: nothing
 * is believed but that it can be read, and what an interpreted frame says has to fit the method that it names. Who
 * includes this has the maps: was_method_sent(), send_method(), was_java_code_sent() and send_java_code().
 */
#ifndef TDPROF_JAVA_WALK_H
#define TDPROF_JAVA_WALK_H

#include "mix.h"
#include "walk_state.h"

static __always_inline int was_method_sent(__u64 identity);
/* Send one of which `bytes` hold something. */
static __always_inline void send_method(struct java_method *method, __u64 bytes);
static __always_inline int was_java_code_sent(__u64 identity);
/* Send code of this identity; 0: it is none of a method, and so need not be asked again. */
static __always_inline void send_java_code(struct java_code *code, __u64 identity);

/*
 * src/hotspot/cpu/x86/frame_x86.hpp and aarch64/frame_aarch64.hpp: the method is the third word below the frame
 * pointer, where it is in that the eighth; from JDK 20 on the ninth on aarch64. It is written there whenever the method
 * calls.
 */
#define JAVA_METHOD_SLOT   (3 * 8)
#define JAVA_PLACE_SLOT    (8 * 8)
#define JAVA_PLACE_SLOT_20 (9 * 8)
#define JAVA_HAS_LINES     1 /* of ConstMethod's flags: _has_linenumber_table */
/* How compiled methods call themselves: "nmethod", and "native nmethod". */
#define JAVA_COMPILED_METHOD 0x00646f6874656d6eULL
#define JAVA_COMPILED_NATIVE 0x6e2065766974616eULL

static __always_inline __u64 java_pointer(__u64 address)
{
	__u64 value = 0;

	walk_read_user(&value, sizeof(value), (void *)address);
	return value;
}

/* What begins so many bytes within a ConstMethod. */
static __always_inline __u64 java_constant(struct java_walk *java, __u16 offset)
{
	java->index = offset >> 3;
	return java->constant[java->index & 15] >> (offset & 7) * 8;
}

/* A text of the class's constants. */
static __always_inline __u64 java_symbol(const struct java_layout *layout, struct java_walk *java, __u16 index)
{
	return java_pointer(java_constant(java, layout->pool) + layout->pool_bytes + 8 * (__u64)index);
}

/* The length of a text, of which at most `most` bytes are read; 0: it cannot be. */
static __always_inline __u16 read_symbol(const struct java_layout *layout, __u8 *to, __u32 most, __u64 symbol)
{
	__u16 length = 0;

	walk_read_user(&length, sizeof(length), (void *)(symbol + layout->text_length));
	__u32 bytes = length;

	if (bytes > most)
		bytes = most;
	asm volatile("" : "+r"(bytes)); /* as in send_stack() */
	return bytes > most || walk_read_user(to, bytes, (void *)(symbol + layout->text)) ? 0 : length;
}

/* Send what a method says of itself, unless that was done. */
static __always_inline void note_method(const struct java_layout *layout, struct java_walk *java, __u32 pid,
                                        __u64 constant, __u64 class_name, __u64 identity)
{
	struct java_method *method = &java->method;

	if (was_method_sent(identity))
		return;
	__u16 file = 0, code_bytes = java_constant(java, layout->code_bytes);
	__u64 pool = java_constant(java, layout->pool), begin = layout->constant_bytes + (__u64)code_bytes;
	__u64 bytes = 8 * (__u64)(__u32)java_constant(java, layout->bytes) - begin;

	method->identity = identity;
	method->pid = pid;
	method->lowest_byte = layout->lowest_byte;
	method->class_bytes = read_symbol(layout, method->class_name, JAVA_CLASS_BYTES, class_name);
	method->name_bytes = read_symbol(layout, method->name, JAVA_NAME_BYTES,
	                                 java_symbol(layout, java, java_constant(java, layout->name)));
	method->signature_bytes = read_symbol(layout, method->signature, JAVA_SIGNATURE_BYTES,
	                                      java_symbol(layout, java, java_constant(java, layout->signature)));
	/* At its next sample. */
	if (!method->class_bytes || !method->name_bytes || !method->signature_bytes)
		return;
	walk_read_user(&file, sizeof(file), (void *)(pool + layout->file));
	method->file_bytes =
		file ? read_symbol(layout, method->file, JAVA_FILE_BYTES, java_symbol(layout, java, file)) : 0;
	if (!(java_constant(java, layout->flags) & JAVA_HAS_LINES))
		bytes = 0;
	if (bytes > MOST_JAVA_LINE_BYTES)
		bytes = MOST_JAVA_LINE_BYTES;
	asm volatile("" : "+r"(bytes)); /* as in send_stack() */
	if (bytes > MOST_JAVA_LINE_BYTES || walk_read_user(method->lines, bytes, (void *)(constant + begin)))
		bytes = 0;
	method->line_bytes = bytes;
	send_method(method, sizeof(*method) - sizeof(method->lines) + bytes);
}

/* Look at a method; not 0: it is none. */
static __always_inline int learn_method(const struct java_layout *layout, struct java_walk *java, __u32 pid,
                                        struct known_method *known, __u64 object)
{
	__u64 constant = java_pointer(object + layout->constant);

	known->time_ns = 0;
	if (walk_read_user(java->constant, JAVA_CONSTANT_BYTES, (void *)constant))
		return 1;
	/*
	 * The method's place may be another's later, when its class was unloaded. Symbols are another's then, too, or
	 * have another hash, before which they have a count.
	 */
	__u64 class_name =
		java_pointer(java_pointer(java_constant(java, layout->pool) + layout->holder) + layout->class_name);
	__u64 text = java_pointer(class_name) & ~0xffffULL;
	__u64 indices =
		(java_constant(java, layout->name) & 0xffff) << 16 | (java_constant(java, layout->signature) & 0xffff);
	__u64 identity = mix(mix(mix(pid, object), constant), java_constant(java, layout->pool));

	identity = mix(mix(mix(identity, class_name), text), indices << 32 | (__u32)java_constant(java, layout->bytes));
	known->object = object;
	known->time_ns = java->time_ns;
	known->identity = identity & ((1ULL << JAVA_IDENTITY_BITS) - 1);
	known->begin = constant + layout->constant_bytes;
	known->bytes = (__u16)java_constant(java, layout->code_bytes);
	note_method(layout, java, pid, constant, class_name, known->identity);
	return 0;
}

/* What is known of a method; 0: it is none. */
static __always_inline const struct known_method *find_method(const struct java_layout *layout, struct java_walk *java,
                                                              __u32 pid, __u64 object)
{
	java->index = object * 0x9e3779b97f4a7c15ULL >> (64 - KNOWN_METHODS_SHIFT);
	struct known_method *known = &java->known[java->index & ((1 << KNOWN_METHODS_SHIFT) - 1)];

	if ((known->object != object || known->time_ns != java->time_ns) &&
	    learn_method(layout, java, pid, known, object))
		return 0;
	return known;
}

/* Send which method a CodeBlob is of, unless that was done; what cannot be read is tried again at its next sample. */
static __always_inline void note_java_code(const struct code_heap *heap, struct java_walk *java, __u32 pid, __u64 blob,
                                           __u64 identity)
{
	struct java_code *code = &java->code;
	__u64 kind = 0;

	if (was_java_code_sent(identity) ||
	    walk_read_user(&kind, sizeof(kind), (void *)java_pointer(blob + heap->kind)))
		return;
	if (kind != JAVA_COMPILED_METHOD && kind != JAVA_COMPILED_NATIVE) {
		send_java_code(0, identity);
		return;
	}
	const struct known_method *known = find_method(&heap->methods, java, pid, java_pointer(blob + heap->compiled));

	if (!known || !was_method_sent(known->identity))
		return;
	code->method = known->identity;
	code->time_ns = java->time_ns;
	code->pid = pid;
	code->begin = blob_place(heap, blob, heap->code_begin);
	code->end = blob_place(heap, blob, heap->code_end);
	send_java_code(code, identity);
}

/*
 * What a stack has for an interpreted frame: its method, and where in that it is. 0: the frame is none, or not whole.
 * `current`: of the frame that was interrupted, where the interpreter is; then what it keeps in the frame may be
 * missing yet. As a method begins and ends that is in another one, and the frame the innermost that is whole.
 */
static __always_inline __u64 java_frame(const struct java_layout *layout, struct java_walk *java,
                                        struct unwind_memory *stack, __u32 pid, const struct java_place *place,
                                        __u64 current)
{
	__u64 fp = place->fp, object = 0, at = 0;
	__s64 made = fp - place->sp;

	if (made < JAVA_METHOD_SLOT)
		return 0;
	fill_window(stack, fp - JAVA_PLACE_SLOT_20);
	if (unwind_read(stack, fp - JAVA_METHOD_SLOT, &object))
		return 0;
	const struct known_method *known = find_method(layout, java, pid, object);

	if (!known)
		return 0;
	__u64 begin = known->begin, bytes = known->bytes;

	if (current - begin < bytes)
		return JAVA_FRAME | known->identity << JAVA_INDEX_BITS | (current - begin);
	if (made < JAVA_PLACE_SLOT || unwind_read(stack, fp - JAVA_PLACE_SLOT, &at))
		return 0;
	if (at && at - begin >= bytes && unwind_read(stack, fp - JAVA_PLACE_SLOT_20, &at))
		return 0;
	at = at || bytes ? at - begin : 0; /* a native method has none */
	return at < bytes || !at ? JAVA_FRAME | known->identity << JAVA_INDEX_BITS | at : 0;
}

#endif
