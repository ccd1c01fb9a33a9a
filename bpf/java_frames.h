/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What sample.bpf.c and its reader (tdprof/decode/java_frames.py) share of methods that a JVM interprets or has
 * compiled. Little-endian, no implicit padding.
 */
#ifndef TDPROF_JAVA_FRAMES_H
#define TDPROF_JAVA_FRAMES_H

/*
 * What a user stack has in place of an address in the interpreter: this bit, which no user address has set, 46 bits
 * that are the method's identity, and the bytecode's index in 16 bits.
 */
#define JAVA_FRAME         (1ULL << 62)
#define JAVA_IDENTITY_BITS 46
#define JAVA_INDEX_BITS    16

/* Texts are cut there; longer ones than the first two are rare. */
#define JAVA_CLASS_BYTES     256
#define JAVA_NAME_BYTES      128
#define JAVA_SIGNATURE_BYTES 512
#define JAVA_FILE_BYTES      64
#define MOST_JAVA_LINE_BYTES 4096

/* A method on its way to user space, sent when it is first met. */
struct java_method {
	__u64 identity; /* of this process and of what it held when it was met; as stacks have it */
	__u32 pid;
	__u16 class_bytes; /* as they are, whether or not so many follow */
	__u16 name_bytes;
	__u16 signature_bytes;
	__u16 file_bytes;
	__u16 line_bytes;  /* of the table of lines and what is behind it, that follow */
	__u16 lowest_byte; /* of its numbers, as struct java_layout has it */
	__u8 class_name[JAVA_CLASS_BYTES];
	__u8 name[JAVA_NAME_BYTES];
	__u8 signature[JAVA_SIGNATURE_BYTES];
	__u8 file[JAVA_FILE_BYTES];
	__u8 lines[MOST_JAVA_LINE_BYTES];
};

/* What one was compiled to, in the same ring: sent when it is first met in a stack. Each is shorter than any method. */
struct java_code {
	__u64 method; /* its identity; it is sent before */
	__u64 begin;  /* run-time addresses */
	__u64 end;
	__u64 time_ns; /* CLOCK_MONOTONIC, of that stack */
	__u32 pid;
	__u32 reserved; /* always 0 */
};

#endif
