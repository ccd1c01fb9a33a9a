/* SPDX-License-Identifier: GPL-2.0 */
/* A sample on its way through the programs of sample.bpf.c. */
#ifndef TDPROF_WALK_STATE_H
#define TDPROF_WALK_STATE_H

#include "java_frames.h"
#include "python_frames.h"
#include "sample.h"
#include "unwind.h"

/* Of one program; then it calls itself. The kernel lets it do so 33 times. */
#define FRAMES_PER_PROGRAM 9
/* The same of what walks until the kernel has verified that. */
#define FIRST_FRAMES_PER_PROGRAM 2
/* The same of Python's. */
#define PYTHON_FRAMES_PER_PROGRAM 96
/* And those of its threads that are looked at for the sample's. */
#define PYTHON_THREADS_PER_PROGRAM 64
/* Frames of Java's that are named by one program, and of a stack, leaf first; a power of two. */
#define JAVA_FRAMES_PER_PROGRAM 32
#define JAVA_SLOTS              128
/* Of a sample: the kernel's limit. */
#define MOST_TAIL_CALLS 33
/* Stack bytes read at once: a frame needs two words of them, and each read costs as much as several frames. */
#define WINDOW_BYTES 2048

/*
 * Numbers on their way to becoming an index. What the verifier knows of a number it forgets when that is stored in a
 * map and loaded again; else it would follow every way on which the number can come about, hundreds of thousands of
 * them.
 */
struct unwind_tables {
	volatile __u32 index;
	volatile __u32 first, end;
};

/* Part of the stack, read in one go. */
struct unwind_memory {
	__u64 start;
	__u64 bytes;          /* that hold; 0: nothing was read yet */
	volatile __u64 index; /* as unwind_tables.index */
	__u64 unread;         /* what a guess returned to, where the code before could not be read; 0: all was */
	__u64 word[WINDOW_BYTES / 8];
};

/* Where code was met before: callers are the same from sample to sample. */
struct known_rule {
	__u64 address;    /* as looked up */
	__u32 generation; /* of the address space; 0: the slot is empty */
	__u32 otherwise;  /* of the mapping */
	struct unwind_rule rule;
};
#define KNOWN_RULES_SHIFT 9

/* A frame of a JVM's interpreter; or, where `depth` is JAVA_COMPILED, a CodeBlob and the code's identity. */
struct java_place {
	__u64 fp;
	__u64 sp;
	__u64 depth; /* in the stack */
};
#define JAVA_COMPILED (~0ULL)

/* Each CPU has one. */
struct walk {
	struct sample_key key;
	struct unwind_state state;
	struct sample_mapping mapping; /* the last one found: most callers are in the same */
	struct address_space space;
	__u32 if_lost;      /* enum unwind_end where the next address is in no mapping */
	__u32 is_called;    /* the last address is one that a file's code returns to */
	__u32 is_lost;      /* the walk led to where nothing is known to be mapped */
	__u64 copied;       /* identity of the stack's copy; 0: it was walked */
	__u64 interpreted;  /* hash of the interpreter's frames; 0: there are none */
	__u32 calls;        /* programs that have walked the stack */
	__u32 python_calls; /* and these */
	__u32 java_calls;
	__u32 java_heap;    /* the number of a code heap of the process */
	__u32 guessed_from; /* of the stack, where the frame that was interrupted is the interpreter's and whole */
	volatile __u32 java_count; /* of frames in them that are to be named */
	volatile __u32 java_done;  /* those of them that were looked at */
	__u32 due[THREAD_STATES];  /* of time off a CPU: samples to be stored, by state */
	__u32 unannounced;         /* bytes of copies since user space was last woken for them */
	__u64 period;              /* what a sample stands for */
	__u64 waking;              /* of a sleep: identity of the struct waking; 0: it is not known who ended it */
	__u64 woken;               /* the thread that is being woken, by the address that the kernel keeps it at */
	struct last_waker waker;   /* of that */
	struct unwind_tables tables;
	struct unwind_memory memory;
	struct stack_record stack;
	struct known_rule known[1 << KNOWN_RULES_SHIFT];
	struct java_place java[JAVA_SLOTS];
};

/* A method of the sample at hand: what calls itself has it often. At the next one its place may be another's. */
struct known_method {
	__u64 object;
	__u64 time_ns; /* of `java_walk` */
	__u64 identity;
	__u64 begin; /* of its code */
	__u64 bytes;
};
#define KNOWN_METHODS_SHIFT 4

/* Each CPU has one. */
struct java_walk {
	__u64 time_ns;      /* CLOCK_MONOTONIC, of the programs that name frames */
	__u64 constant[16]; /* JAVA_CONSTANT_BYTES of what never changes of a method */
	struct java_code code;
	volatile __u64 index; /* as unwind_tables.index */
	struct known_method known[1 << KNOWN_METHODS_SHIFT];
	struct java_method method;
};

/* Bytes of Python's frames read at once: those of callers are below a frame, most of them side by side. */
#define PYTHON_WINDOW_BYTES 2048

/* Where CPython has a thread. */
struct python_thread {
	__u64 thread;
	__u64 interpreter; /* the only one, as it was found */
};

/* Each CPU has one. */
struct python_walk {
	__u64 hash;    /* of all that `stack` has; 0: there are no frames */
	__u64 process; /* hash of its number, and of the program's that it executes */
	__u64 start;   /* of the window */
	__u64 bytes;   /* of it that hold; 0: nothing was read yet */
	__u64 offset;  /* of a frame in it */
	__u64 word[PYTHON_WINDOW_BYTES / 8];
	__u64 code[16];        /* PYTHON_CODE_BYTES of a code object */
	__u64 frame;           /* where the next one is; 0: there is none */
	__u64 interpreter;     /* whose threads are looked through; 0: that is done */
	__u64 thread;          /* the next of these */
	__u32 tid;             /* as the process numbers it */
	__u32 forked_by;       /* as python_runtime.forked_by, of a process's first thread; else 0 */
	__u32 is_alone;        /* there is one interpreter */
	__u32 subinterpreters; /* that have frames of the thread */
	volatile __u32 index;  /* as unwind_tables.index */
	volatile __u32 count;  /* of frames */
	struct python_stack stack;
};

#endif
