"""Which method interpreted frames and compiled code are of: what a process may have in its memory, right and forged."""

import shutil
import subprocess
from pathlib import Path

import pytest

BPF = Path(__file__).parents[4] / "bpf"
# bpf/java_walk.h outside the kernel, with a method in this process's memory.
PROGRAM = """
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>
#include <linux/types.h>
#define __always_inline inline __attribute__((always_inline))
static long walk_read_user(void *to, __u32 bytes, const void *from)
{
	struct iovec here = { to, bytes }, there = { (void *)from, bytes };

	return process_vm_readv(getpid(), &here, 1, &there, 1, 0) == bytes ? 0 : -1;
}
#include "walk_state.h"
static void fill_window(struct unwind_memory *memory, __u64 sp) { (void)memory; (void)sp; }
static int unwind_read(struct unwind_memory *memory, __u64 address, __u64 *word)
{
	(void)memory;
	return walk_read_user(word, 8, (void *)address) != 0;
}
#define UNWIND_ADDRESS_MASK (~0ULL)
static int unwind_follows_call(struct unwind_memory *memory, __u64 pc, int if_not_known) { return 0; }
#include "code_heap.h"
#include "java_walk.h"
static __u64 sent, sent_bytes, code_sent;
static struct java_code last;
static int was_java_code_sent(__u64 identity) { return code_sent == identity; }
static void send_java_code(struct java_code *code, __u64 identity)
{
	code_sent = identity;
	last = code ? *code : (struct java_code){ 0 };
}
static int was_method_sent(__u64 identity) { return sent == identity; }
static void send_method(struct java_method *method, __u64 bytes) { sent = method->identity; sent_bytes = bytes; }

struct symbol { __u16 count, hash, length; char text[10]; };
static struct { struct symbol one; char more[65536]; } class_name = { { 1, 0x1111, 5, "app/A" }, "" };
static struct symbol name = { 1, 2, 1, "f" }, signature = { 1, 3, 3, "()V" };
static struct { __u64 vtable; void *name; } holder = { 0, &class_name };
static struct { void *holder; __u16 file, none[3]; void *constant[3]; } pool =
	{ &holder, 0, { 0 }, { 0, &name, &signature } };
static struct { void *pool; __u32 words; __u16 flags, code, name, signature; __u8 spare[48], bytes[64]; } constant =
	{ &pool, 15, 1, 10, 1, 2, { 0 }, { 0 } };
static struct { __u64 vtable; void *constant; } method = { 0, &constant };
#define layout_ { .constant = 8, .pool = 0, .bytes = 8, .flags = 12, .code_bytes = 14, \
	.name = 16, .signature = 18, .constant_bytes = 72, .holder = 0, .file = 8, .pool_bytes = 16, .class_name = 8, \
	.text_length = 4, .text = 6 }
static const struct java_layout layout = layout_;
static __u64 stack[64];
static struct java_walk java;
static struct unwind_memory memory;
static __u64 looked_at;

/* The index of the bytecode, or -1, of a frame that is made so far. */
static int at(__u64 object, __u64 place, __u64 place_20, __u64 current, int made)
{
	__u64 *fp = stack + 40;
	struct java_place frame = { .fp = (__u64)fp, .sp = (__u64)fp - made };

	fp[-3] = object;
	fp[-8] = place;
	fp[-9] = place_20;
	java.time_ns = ++looked_at;
	__u64 found = java_frame(&layout, &java, &memory, 7, &frame, current);

	return found ? (int)(found & 0xffff) : -1;
}

static struct { __u64 vtable; const char *kind; __u32 complete, number; __u64 begin, end; void *method; } blob =
	{ 0, "nmethod", 0, 42, 0x1000, 0x1800, &method };
static const struct code_heap heap = { .methods = layout_, .code_begin_bytes = 8, .kind = 8, .compilation = 20,
	.code_begin = 24, .code_end = 32, .compiled = 40 };

/* Whether code is sent as the method's, 2: as nobody's; 0: not now. */
static int is_named(const char *kind, void *compiled)
{
	blob.kind = kind;
	blob.method = compiled;
	code_sent = 0;
	java.time_ns = ++looked_at;
	note_java_code(&heap, &java, 7, (__u64)&blob, compilation_identity(&heap, (__u64)&blob, 7));
	if (!code_sent)
		return 0;
	if (!last.method)
		return 2;
	int is_placed = last.begin == 0x1000 && last.end == 0x1800;

	return is_placed && last.method == sent && last.pid == 7 && last.time_ns == looked_at;
}

static void print_code(void)
{
	__u64 first = compilation_identity(&heap, (__u64)&blob, 7);

	printf("%d %d ", is_named("nmethod", &method), is_named("native nmethod", &method));
	printf("%d %d ", is_named("RuntimeBlob", &method), is_named("nmethod", (void *)8)); /* stubs; no method */
	printf("%d ", is_named((const char *)8, &method)); /* not in memory yet */
	blob.number = 43; /* other code in its place */
	printf("%d %d\\n", compilation_identity(&heap, (__u64)&blob, 7) == first, compilation_identity(&heap, 8, 7) != 0);
}

int main(void)
{
	print_code();
	__u64 object = (__u64)&method, begin = (__u64)&constant + 72, elsewhere = (__u64)stack;

	printf("%d ", at(object, begin + 3, 0, 0, 72));               /* as of a caller */
	printf("%d ", at(object, elsewhere, begin + 4, 0, 80));       /* aarch64's from JDK 20 on */
	printf("%d ", at(object, begin + 3, 0, begin + 9, 72));       /* where the interpreter is */
	printf("%d ", at(object, begin + 3, 0, elsewhere, 72));       /* in another method's beginning or end */
	printf("%d ", at(object, elsewhere, 0, begin, 24));           /* its frame is being made */
	printf("%d ", at(object, begin + 3, 0, elsewhere, 56));
	printf("%d ", at(object, begin + 10, begin - 1, 0, 72));      /* not of this method */
	printf("%d ", at(object, 0, 0, 0, 72));
	printf("%d ", at(1, begin + 3, 0, 0, 72));                    /* no method */
	printf("%d\\n", at(~0ULL, begin + 3, 0, 0, 72));
	constant.code = 0; /* native */
	printf("%d ", at(object, 0, 0, elsewhere, 72));
	printf("%d ", at(object, elsewhere, 0, 0, 80));
	printf("%d\\n", at(object, elsewhere, elsewhere, 0, 80));
	constant.code = 10;
	at(object, begin, 0, 0, 72);
	__u64 before = sent;

	class_name.one.count = 9;
	at(object, begin, 0, 0, 72);
	printf("%d ", before == sent);
	class_name.one.hash = 0x2222; /* another class's name in its place */
	at(object, begin, 0, 0, 72);
	printf("%d %u %u\\n", before == sent, java.method.line_bytes, java.method.class_bytes);
	class_name.one.length = 65535;
	class_name.one.hash = 0x3333;
	constant.words = ~0U;
	at(object, begin, 0, 0, 72);
	printf("%d %u\\n", sent_bytes <= sizeof(java.method), java.method.class_bytes);
	return 0;
}
"""


@pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
def test_what_a_frame_says_has_to_fit_its_method(tmp_path: Path) -> None:
    (tmp_path / "walk.c").write_text(PROGRAM)
    subprocess.run(["gcc", f"-I{BPF}", "-o", tmp_path / "walk", tmp_path / "walk.c"], check=True)
    shown = subprocess.run([tmp_path / "walk"], check=True, capture_output=True, text=True).stdout
    assert shown.splitlines() == [
        "1 1 2 0 0 0 0",
        "3 4 9 3 0 -1 -1 -1 -1 -1",
        "0 0 -1",
        "1 0 38 5",
        "1 65535",
    ]
