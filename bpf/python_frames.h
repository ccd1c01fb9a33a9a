/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * What sample.bpf.c and its readers (tdprof/recorder/python_layouts.py, tdprof/decode/python) share of CPython's
 * frames. Little-endian, no implicit padding.
 */
#ifndef TDPROF_PYTHON_FRAMES_H
#define TDPROF_PYTHON_FRAMES_H

/* How a frame says that C code called it, so that one frame of the evaluation loop ends with it. */
enum python_entry {
	PYTHON_ENTRY_ALWAYS, /* up to 3.10: each Python frame is one of the loop */
	PYTHON_ENTRY_FLAG,   /* 3.11: a byte that is not 0 */
	PYTHON_ENTRY_OWNER,  /* from 3.12: a frame of its own follows, whose owner is the C stack or the interpreter */
};
#define PYTHON_OWNER_C 3 /* FRAME_OWNED_BY_CSTACK or _INTERPRETER: this and above */

/* How a frame says where it is. */
enum python_instruction {
	PYTHON_INSTRUCTION_ADDRESS,
	PYTHON_INSTRUCTION_INDEX, /* up to 3.10: a number of 32 bits */
};

/* What a capture's readers know of a process. */
enum python_told {
	PYTHON_UNTOLD,
	PYTHON_SENT, /* which program it executes, and where, since it may end before user space looks at it */
	PYTHON_TOLD, /* user space has */
};

#define PYTHON_NONE 0xffff

/*
 * A process may execute another CPython, which its readers have to tell from the one before: above the process's
 * number, of 22 bits (PID_MAX_LIMIT), stands one that tells them apart. User space counts; the programs, which cannot,
 * take the time, and mark it.
 */
#define PYTHON_PROCESS_BITS  22
#define PYTHON_OWN_EXECUTION 0x200

/* A process's CPython: where its state is, and offsets in its structures, in bytes. */
struct python_runtime {
	__u64 first_interpreter; /* where the pointer to it stands */
	__u64 pidns_device;      /* the pid namespace as which it numbers its threads */
	__u64 pidns_inode;       /* 0: as sample_key does */
	__u32 process; /* whom user space has told of, this one or who started it, and the execution, as above */
	__u16 next_interpreter;
	__u16 first_thread; /* of an interpreter */
	__u16 next_thread;
	__u16 thread_id;    /* of a thread: its number, or with `pthread_id` the pointer to what holds it */
	__u16 pthread_id;   /* of the C library's structure of a thread: its number; PYTHON_NONE: not needed */
	__u16 thread_frame; /* of a thread: its frame, or with `inner_frame` what points to it */
	__u16 inner_frame;  /* PYTHON_NONE: none */
	__u16 frame_code;   /* of a frame, each of these below PYTHON_FRAME_BYTES */
	__u16 frame_previous;
	__u16 frame_instruction;
	__u8 frame_entry; /* a byte */
	__u8 frame_top;   /* 32 bits: of its own stack, 0 or -1 while it runs; from 3.12 on any, not used */
	__u16 code_names; /* pointers to file name, name, from 3.11 on qualified name, and line table */
	__u16 code_line;  /* first line, 32 bits, less than PYTHON_LINE_DISTANCE before the names */
	__u16 code_instructions;
	__u8 entry;       /* enum python_entry */
	__u8 instruction; /* enum python_instruction */
	__u8 has_qualified_names;
	__u8 told;     /* enum python_told */
	__u32 program; /* of a process that the programs found themselves: as user space numbers it */
	/* Of a process that another started, until user space has told of it: which of that one's threads did. 0: none.
	 * Its structures say of its only thread that it is that one, until CPython has looked (3.11 on), if it ever
	 * does. */
	__u32 forked_by;
	__u32 reserved;
};

/* A program that has CPython in it. By these its python_runtime, whose `first_interpreter` is counted from where the
 * kernel says that the program's code begins. */
struct python_program {
	__u64 device; /* as the kernel numbers it */
	__u64 inode;
	__u64 bytes;
};

/* Where the kernel's structures have what tells which program was executed, and where; all 0: it is not looked yet. */
struct exec_places {
	__u32 binprm_file;
	__u32 file_inode;
	__u32 inode_number;
	__u32 inode_bytes;
	__u32 inode_super;
	__u32 super_device;
	__u32 task_mm;
	__u32 mm_code;
};

#define PYTHON_FRAME_BYTES 112
/* A code object is read from its first field on: so many bytes, its first line among them, and four words of names. */
#define PYTHON_LINE_DISTANCE 88
#define PYTHON_CODE_BYTES    (PYTHON_LINE_DISTANCE + 4 * 8)
#define MOST_PYTHON_FRAMES   192
#define PYTHON_SLOTS         256 /* room, so that any index is one */

#define PYTHON_HASH_IN_BYTES 24 /* of a bytes object */

/* Bits: C code called it; its own stack has a top, as where it waits for another that it called. */
#define PYTHON_CALL_ENTRY 1
#define PYTHON_CALL_WAITS 2

struct python_frame {
	__u64 code;        /* identity of the code object, of this process and of what it held when it was met */
	__u32 instruction; /* bytes from the beginning of its code on, as far as they fit; up to 3.10 as CPython counts
	                    */
	__u32 call;        /* PYTHON_CALL_… */
};

/* The Python frames of a stack on their way to user space, leaf first. */
struct python_stack {
	__u64 stack;   /* what sample_key refers to the whole stack by */
	__u32 process; /* that of its CPython */
	__u16 count;   /* frames that follow */
	__u16 is_cut;  /* there are more */
	struct python_frame frame[PYTHON_SLOTS];
};

/*
 * Or, by `stack` 0, of a process that user space has not looked at: its one frame has `first_interpreter` as the code,
 * and the program's number as the instruction.
 */

/* Bytes of an object's header and text, and of a line table. */
#define PYTHON_NAME_BYTES 256
#define PYTHON_PATH_BYTES 512
#define MOST_LINE_BYTES   4096

/* A code object on its way to user space, sent when it is first met. */
struct python_code {
	__u64 code;
	__u32 process; /* as above */
	__u32 first_line;
	__u32 line_bytes; /* of the line table, of which at most MOST_LINE_BYTES follow */
	__u16 name_bytes; /* that could be read of each object */
	__u16 path_bytes;
	__u8 name[PYTHON_NAME_BYTES];
	__u8 path[PYTHON_PATH_BYTES];
	__u8 lines[MOST_LINE_BYTES];
};

#endif
