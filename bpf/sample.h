/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* What sample.bpf.c and its readers (tdprof/decode/bpf_aggregates.py, recorder) share. Little-endian, no implicit
 * padding. */
#ifndef TDPROF_SAMPLE_H
#define TDPROF_SAMPLE_H

/* Of a user stack walked by tables. */
#define MAX_STACK_DEPTH 255
/* The kernel's default for perf_event_max_stack; a stack of its making that is this deep may have been cut. */
#define MAX_KERNEL_WALK_DEPTH 127

/* Beside a control group's id: of a hierarchy of version 1. The kernel gives ids below. */
#define CGROUP_OF_V1 (1U << 31)

/* How many control groups a recording can be of. */
#define MOST_CGROUPS 64

/* One aggregated row of an interval. */
struct sample_key {
	__u64 user_stack;   /* hash of the user call chain, 0: none */
	__u64 kernel_stack; /* hash of the kernel call chain, 0: none */
	__u32 pid;          /* thread group, as the recorder's pid namespace numbers it */
	__u32 tid;
	__u32 event;   /* index in the order of -e; SAMPLE_CPU_SHIFT and THREAD_STATE_SHIFT say what is above it */
	__u32 cgroup;  /* low bits of its id, which no other that exists has; CGROUP_OF_V1; 0: not asked for */
	char comm[16]; /* thread name when sampled: tells apart what ran before and after an exec */
};

struct sample_value {
	__u64 count;  /* overflows */
	__u64 weight; /* sum of the overflows' periods */
};

/* Who woke a thread. */
struct waker {
	__u64 identity;     /* hash of all that follows */
	__u64 user_stack;   /* as in sample_key; 0 also of threads that are not recorded */
	__u64 kernel_stack; /* from what the scheduler was called by on */
	__u32 pid;          /* 0: not a thread that the recorder's pid namespace sees, or none: the CPU was idle */
	__u32 tid;
	char comm[16];
};

/* To user space: a sleep and who ended it, which sample_key knows as one. */
struct waking {
	__u64 identity;     /* what sample_key has as its kernel_stack */
	__u64 kernel_stack; /* that of the sleep */
	struct waker waker;
};

/* Whoever woke a thread last. */
struct last_waker {
	__u64 left_ns; /* of thread_times, when the thread began to sleep */
	struct waker waker;
};

/*
 * A call chain on its way to user space, leaf first; sent once and again only after its cache slot was taken. All but
 * `hash` enters the hash.
 */
struct stack_record {
	__u64 hash;  /* what sample_key refers to it by */
	__u16 depth; /* addresses that follow */
	__u8 is_kernel;
	__u8 end;           /* enum unwind_end of bpf/unwind.h; 0 of the kernel's stacks */
	__u16 guessed_from; /* index of the first address found by a guess; 0: none was */
	__u16 by_table;     /* callers found by each way; their sum is at most depth */
	__u16 by_fp;
	__u16 by_lr;
	__u32 reserved; /* always 0 */
	__u64 address[MAX_STACK_DEPTH];
};

/* Of a user stack that is copied: as perf at most, out of so many pages; what ends before that is copied to its end. */
#define MOST_COPIED_BYTES 65536
#define MOST_COPIED_PAGES 64
#define COPIED_PAGE       4096    /* the smallest; larger ones are whole numbers of them */
#define PAGES_NOT_READ    (~0ULL) /* of a copy without memory: there was no room for it */
#define COPIED_REGISTERS  17

/*
 * A user stack as it lies in memory, on its way to user space, which walks it when the recording has ended: at the
 * sample the program's table or mapping was not there yet. Only the bytes of `stack` that are used are sent.
 */
struct stack_copy {
	__u64 identity;                    /* what sample_key refers to it by, instead of a hash */
	__u64 time_ns;                     /* CLOCK_MONOTONIC */
	__u32 pid;                         /* as in sample_key */
	__u32 stack_bytes;                 /* used of `stack` */
	__u64 pages;                       /* bit n: the n-th page from the stack pointer's on could be read */
	__u64 registers[COPIED_REGISTERS]; /* as profiler/native/unwind_api.h has them; those of aarch64 come first,
	                                      then 0 */
	__u8 stack[MOST_COPIED_BYTES];     /* from the stack pointer on, the pages that could be read */
};

/* Executable memory of a process; an address space is a run of these, sorted, that do not overlap. */
struct sample_mapping {
	__u64 start; /* with a table: a multiple of 256 */
	__u64 bytes;
	__u32 first_bucket; /* of the one that holds `start`; without a table, 0, OF_V8, or the number of its code heap,
	                       from 1 on */
	__u32 otherwise;    /* 0: there is a table; else none, and the end where frame pointers lead nowhere */
};

/* In a process that has V8 in it: what that compiles keeps frame pointers. */
#define OF_V8 0xffffffff

/* Code heaps of all processes. */
#define MOST_CODE_HEAPS 256

/* Offsets in a JVM's structures, in bytes: `Method`, `ConstMethod`, `ConstantPool`, `Klass` and `Symbol` of HotSpot. */
struct java_layout {
	__u16 constant; /* of a method: where what never changes of it is; 0: not known, nor is anything else */
	__u16 pool;     /* of that, each below JAVA_CONSTANT_BYTES - 8: its class's constants */
	__u16 bytes;    /* in words */
	__u16 code_bytes;
	__u16 name; /* indices of constants */
	__u16 signature;
	__u16 constant_bytes; /* its own size; the code is behind it, then the table of lines if there is one */
	__u16 flags;
	__u16 holder;     /* of the constants: the class */
	__u16 file;       /* index of its file's name; 0: none */
	__u16 pool_bytes; /* constants are behind it, 8 bytes each */
	__u16 class_name;
	__u16 text_length; /* of a symbol */
	__u16 text;
	__u16 lowest_byte; /* of numbers in tables of lines: 0 up to JDK 19, then 1 */
	__u16 reserved;    /* always 0 */
};
#define JAVA_CONSTANT_BYTES 72

/* Where a process keeps code that its JVM (HotSpot) has compiled. Fields are those of HotSpot's `CodeHeap`, `HeapBlock`
 * and `CodeBlob`, which it describes. */
struct code_heap {
	__u64 low;         /* where its code begins */
	__u64 segments;    /* its map: of each segment how many back its block begins, 0: here */
	__u64 interpreter; /* where the interpreter's code is */
	__u64 call_return; /* where Java returns to what the JVM called it by */
	__u32 interpreter_bytes;
	struct java_layout methods; /* of what it interprets, and has compiled */
	__u16 header_bytes;         /* of a block, before the CodeBlob */
	__u16 frame_size;           /* where a CodeBlob has its frames' size in words, the return address counted */
	__u16 frame_complete;       /* and how far from its code's beginning that holds */
	__u16 code_begin;           /* and where its code begins: an address, or as far from the CodeBlob */
	__u16 code_end;             /* and ends, likewise */
	__u16 kind;                 /* and what it calls itself; 0: not known, nor is what follows */
	__u16 compilation;          /* of a compiled method: its number in the JVM */
	__u16 compiled;             /* and the method */
	__u8 segment_shift;         /* of a segment's size */
	__u8 complete_bytes;        /* of frame_complete: 2 or 4 */
	__u8 code_begin_bytes;      /* 8: an address, 4: a distance */
	__u8 reserved;
};

/* Which mappings a process has. */
struct address_space {
	__u32 first;
	__u32 count;
	__u32 is_asked;    /* user space was told that a mapping is missing, and has not answered */
	__u32 copies_left; /* stacks that may be copied until user space has something new to say of the process */
	__u32 generation;  /* another number, not 0, whenever any process's mappings or their tables change */
	__u32 retaken;     /* as `retaken` had it before the mappings were read; they hold until that changes */
};

/* Of the array `retaken`; a power of two. */
#define RETAKEN_SLOTS 1024

/* To user space, which then reads the process's mappings again. */
struct missing_mapping {
	__u32 pid;
	__u32 reserved; /* always 0 */
};

/* What a process that asks begins with; user space gives it as many when it has something new to say, else a few. */
#define MOST_COPIES 1024

/* Where a thread is. */
enum thread_state { THREAD_RUNNING, THREAD_RUNNABLE, THREAD_INTERRUPTIBLE, THREAD_UNINTERRUPTIBLE, THREAD_STATES };

/* Above an event's index, where it is asked for: the CPU's number and one; 0 of time off a CPU. */
#define SAMPLE_CPU_SHIFT 10

/* And above that: in which state the thread was; 0 of what it did on a CPU. */
#define THREAD_STATE_SHIFT 24

/* Where a thread's time went while it was recorded. To user space when it ends, or when the recording does. */
struct thread_times {
	__u64 first_ns; /* CLOCK_MONOTONIC: known since then */
	__u64 since_ns; /* in `state` since then; of a thread that has ended: when that was */
	__u64 left_ns;  /* when it left its CPU last; 0: it never did */
	__u64 spent_ns[THREAD_STATES];
	__u64 queued_ns; /* how long it had ever waited for a CPU when it left one last, as the kernel counts it */
	__u32 pid;       /* as in sample_key; 0: not known yet */
	__u32 tid;
	__u32 state;              /* enum thread_state */
	__u32 position_ns;        /* of its time off a CPU, in the current period */
	__u32 point_ns;           /* where in that the sample is */
	__u32 due[THREAD_STATES]; /* samples that are not taken yet */
	__u32 waits;              /* times it left its CPU */
	char comm[16];
};

/* Indices of the array of switches. */
enum active {
	ACTIVE_ROWS,    /* 1: the table rows_b, 0: rows_a */
	ACTIVE_WALK,    /* 1: user stacks are walked by tables */
	ACTIVE_COPY,    /* 1: those that no table leads through yet are copied */
	ACTIVE_FOLLOW,  /* enum filter */
	ACTIVE_PYTHON,  /* 1: some process runs CPython */
	ACTIVE_SEGMENT, /* of the recording, counted from 0 */
	ACTIVE
};

/* Indices of the array of programs. */
enum step { STEP_SAMPLE, STEP_WALK, STEP_COPY, STEP_STORE, STEP_PYTHON, STEP_JAVA, STEP_BY_KERNEL, STEPS };

/* Indices of the per-CPU counters. */
enum counter {
	COUNTER_SAMPLES, /* overflows seen, in the map or not */
	COUNTER_SAMPLES_MAP_FULL,
	COUNTER_SAMPLES_OUTSIDE_NAMESPACE,
	COUNTER_USER_STACKS_UNREADABLE,
	COUNTER_KERNEL_STACKS_UNREADABLE,
	COUNTER_STACKS_TRUNCATED,
	COUNTER_STACKS_NOT_SENT, /* ring buffer full or busy; sent again at the stack's next sample */
	COUNTER_STACKS_SENT,
	COUNTER_STACKS_COPIED,
	COUNTER_STACKS_NOT_COPIED,    /* though no table led through them: no room, or too many of one process */
	COUNTER_THREADS_NOT_FOLLOWED, /* no room for them: their samples and their children's are missing */
	COUNTER_WAITS_NOT_SAMPLED,    /* samples of time off a CPU, of threads that never came back to one */
	COUNTER_THREADS_NOT_TIMED,    /* no room for where their time went */
	COUNTER_WAKERS_NOT_KEPT,      /* no room for them: samples of sleep that do not say who ended it */
	COUNTERS
};

/* Whose samples are taken. */
enum filter {
	FILTER_NONE,    /* of all that run */
	FILTER_THREADS, /* of those that are followed */
	FILTER_CGROUPS  /* of those in a control group that is chosen, or below one */
};

/* From when on a thread that user space has named is followed, and all that it starts; or that it has ended, and
 * whoever has its number next by execve() is followed. */
enum follow { FOLLOW_NOW, FOLLOW_FROM_EXEC, FOLLOW_SUCCESSOR };

/* What is known of a thread. */
enum followed {
	FOLLOWED_NOT,
	FOLLOWED_ALIVE,
	FOLLOWED_ENDING /* the kernel counts no more for it, and works on */
};

#endif
