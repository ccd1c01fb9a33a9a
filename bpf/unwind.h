/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Unwind tables and how a stack can end: what the builder (profiler/native/unwind_*.c), the walkers (in BPF and on the
 * host) and the recorder share. Little-endian, no implicit padding.
 *
 * A table says for each address of a file's executable segments which rule leads from there to the caller. All files of
 * a session lie one after the other in three arrays:
 *
 *   rows     u32, by address: low byte of the address where the rule begins to hold | rule number << 16
 *   buckets  u32, one per 256 bytes of text: the number of its first row; each segment's buckets are followed by one
 *            more, which ends the last
 *   rules    struct unwind_rule, shared by all files
 *
 * Where an address lies before the first row of its bucket, the row before that one holds; so each segment begins with
 * a row of its own. A file on disk numbers its rows from 0 and has its own rules; unwind_place() translates both.
 */
#ifndef TDPROF_UNWIND_H
#define TDPROF_UNWIND_H

#include <linux/types.h>

#define UNWIND_INLINE static inline __attribute__((always_inline))

#define UNWIND_BUCKET_SHIFT   8
#define UNWIND_ROW_LOW(row)   ((row) & 0xff)
#define UNWIND_ROW_RULE(row)  ((row) >> 16)
#define UNWIND_ROW(low, rule) ((__u32)(low) | (__u32)(rule) << 16)
#define UNWIND_MOST_RULES     65536 /* in a session */

/* Where the canonical frame address (CFA: the stack pointer at the call) is, or what else to do. */
enum unwind_cfa {
	UNWIND_CFA_SP,       /* sp + offset */
	UNWIND_CFA_FP,       /* fp + offset */
	UNWIND_CFA_SP_DEREF, /* word at sp + (offset >> 8), plus (offset & 0xff): OpenSSL's assembly */
	UNWIND_CFA_FP_DEREF, /* the same by fp: functions that realign the stack */
	UNWIND_CFA_PLT,      /* x86-64: sp + 8, plus 8 where (pc & 15) >= offset: a lazy PLT entry pushes once */
	/* Commands, which use no other field. */
	UNWIND_NONE,        /* nothing is known of this code */
	UNWIND_STOP,        /* the outermost frame: no caller */
	UNWIND_SIGNAL,      /* a signal handler returns to here; the interrupted registers lie on the stack */
	UNWIND_FP_RECORD,   /* code known to keep frame pointers (Go) */
	UNWIND_FP_GUESS,    /* code without unwind information that probably keeps frame pointers */
	UNWIND_UNSUPPORTED, /* there is a rule, of a form that is not followed */
	/* Back to the stack that Go has left; the caller's sp is below or above. */
	/* to where the thread of r14 (aarch64: x28) keeps the sp of another goroutine, plus (offset & 0xffff) */
	UNWIND_GO_SWITCH,
	UNWIND_GO_CALL_OF_C, /* the sp is as far from a goroutine's stack's end as the stack says, + fp */
	UNWIND_CFA_FP_LEFT,  /* fp + offset, on a stack that the function has left; below sp or above */
	/* x86-64: + DWARF number of the register that the CFA is relative to; known in the topmost frame, else a guess.
	 */
	UNWIND_CFA_REGISTER = 32,
	UNWIND_CFA_REGISTER_DEREF = 48, /* the same with a word read, as UNWIND_CFA_SP_DEREF */
	UNWIND_CFA_INDEXED_DEREF =
		64, /* word at sp + 8 * register + (offset >> 8), plus (offset & 0xff): bn_mul_mont */
	/* Set beside the others: found from the instructions, so a guess that holds only if a call precedes the return
	 * address. Where it does not, the frame pointer is tried. */
	UNWIND_INFERRED = 128,
};

/* Where the return address is. */
enum unwind_ra {
	UNWIND_RA_CFA,  /* x86-64: in the word below the CFA */
	UNWIND_RA_LR,   /* aarch64: still in LR; exact frames only */
	UNWIND_RA_SLOT, /* in the slot that `fp` says, and FP is the caller's already */
	/* In the slot that `fp` says, where libgcc keeps it while it writes over its own frame; FP is where the CFA is
	 * counted from. */
	UNWIND_RA_KEPT,
	/* aarch64: as UNWIND_RA_SLOT, or in LR with UNWIND_FP_SAME, but who is returned to made no such call: its x30
	 * is 16 bytes below the CFA. Of UNWIND_GO_SWITCH: the goroutine has its pc, and its x30 at (offset & 0xffff),
	 * which does not count for the CFA. */
	UNWIND_RA_INTERRUPTED,
	UNWIND_RA_REGISTER = 32, /* x86-64: + DWARF number; exact frames only (vfork) */
	UNWIND_RA_NEAR = 192,    /* + n, -64 <= n < 64: n words above the slot of FP; n = 1 is aarch64's frame record */
};

/* Special values of unwind_rule.fp. Else it is the distance of the slot from the CFA, a multiple of 8 … */
#define UNWIND_FP_SAME 0x7fff /* FP is the caller's already */
/* … or, with one of these bits set, from FP itself (stack realignment) or SP (frames of aarch64 larger than 32 KiB). */
#define UNWIND_FP_BY_FP 1
#define UNWIND_FP_BY_SP 2

/* libgcc's struct _Unwind_Context: where each register is saved, by its DWARF number, the CFA, the return address … Of
 * UNWIND_RA_KEPT it is the frame's own; that of the handler's function lies behind it. */
#define UNWIND_X86_64_CONTEXT_RA     152
#define UNWIND_X86_64_CONTEXT_BYTES  240
#define UNWIND_AARCH64_CONTEXT_RA    792
#define UNWIND_AARCH64_CONTEXT_BYTES 960

/* From a frame to its caller's. 0 in all fields is CFA = sp, which no call site has. */
struct unwind_rule {
	__u8 cfa;     /* enum unwind_cfa */
	__u8 ra;      /* enum unwind_ra */
	__s16 fp;     /* slot of the saved FP, or of the return address: see above */
	__s32 offset; /* of the CFA */
};

/* Every table's and every session's rule 0 is UNWIND_NONE. */
#define UNWIND_RULE_NONE 0

/*
 * Why a stack ended: X(name, word in reports and exports, what it means). Only the first is a whole stack. The numbers
 * are stored in captures: append only.
 */
#define UNWIND_ENDS(X)                                                                                                 \
	X(COMPLETE, "complete", "the outermost frame was reached")                                                     \
	X(BAD_SP, "bad-sp", "the caller's stack pointer is not above the callee's, or not aligned")                    \
	X(UNREADABLE, "unreadable", "the stack, or the code that a guess is checked by, was not in memory")            \
	X(UNSUPPORTED_RULE, "unsupported-rule", "the unwind information has a form that is not followed")              \
	X(LR_MID_STACK, "lr-mid-stack", "the return address would be in a register that is not known any more")        \
	X(NO_UNWIND_INFO, "no-unwind-info", "code without unwind information and without frame pointers")              \
	X(JIT, "jit", "code generated at run time, without frame pointers")                                            \
	X(NO_TABLE, "no-table", "the file's table was not there yet, or there was no room for it")                     \
	X(TOO_DEEP, "too-deep", "more frames than are taken")                                                          \
	X(NO_MAPPING, "no-mapping", "the return address is in no executable mapping")                                  \
	X(COPY_ENDED, "copy-ended", "the copied bytes of the stack ended before the stack did")                        \
	X(NO_REGISTERS, "no-registers", "the thread's user registers could not be had")                                \
	X(FRAME_POINTERS_ONLY, "frame-pointers-only", "walked by the kernel along frame pointers: no telling")

enum unwind_end {
	UNWIND_NOT_ENDED, /* the state is that of the caller now */
#define UNWIND_END_NAME(name, word, meaning) UNWIND_END_##name,
	UNWIND_ENDS(UNWIND_END_NAME)
#undef UNWIND_END_NAME
		UNWIND_ENDS_COUNT
};

/* How the step from a frame to its caller was made. */
enum unwind_method {
	UNWIND_BY_TABLE,
	UNWIND_BY_FP, /* a guess, unless the rule was UNWIND_FP_RECORD */
	UNWIND_BY_LR, /* aarch64: the caller of a leaf, or of a prologue or epilogue */
	UNWIND_METHODS
};

/* unwind_state.flags */
#define UNWIND_EXACT     1  /* pc is where the thread stands: topmost frame, or interrupted by a signal; lr holds */
#define UNWIND_REGISTERS 2  /* `leaf` is of the topmost frame, and no signal frame lies between */
#define UNWIND_GUESSED   4  /* some frame above was found by a guess */
#define UNWIND_TRY_FP    8  /* the frame's rule led nowhere: once more, along frame pointers */
#define UNWIND_SWITCHED  16 /* r14 has led back to the goroutine by UNWIND_GO_SWITCH, which it does once */
#define UNWIND_SP_LOW    64 /* aarch64: along a frame record, which may be anywhere in its frame: sp is at least this */

/* A frame on its way to the bottom. */
struct unwind_state {
	__u64 pc; /* without pointer authentication */
	__u64 sp;
	__u64 fp;       /* rbp, x29 */
	__u64 lr;       /* x30; holds in exact frames */
	__u64 callback; /* where C's stack was that Go's lies behind, see unwind_callback() */
	__u64 leaf[16]; /* x86-64, by DWARF number: rax rdx rcx rbx rsi rdi rbp rsp r8 … r15; aarch64: 13 is x22, 14 x28
	                 */
	__u32 flags;
	__u32 recent;                      /* methods of the steps so far, two bits each, the last one's lowest */
	__u32 methods[UNWIND_METHODS + 1]; /* callers found by each method; the last is padding */
};

/*
 * --- A table on disk: header, segments, rules, buckets, rows, calls, beginnings, each without a gap after the other.
 * ---
 *
 * calls: of x86-64's files with rules by a general register, u32: where execution returns to (unwind_calls.h),
 * ascending, as bucket number × 256 + offset; for walks that have no code at hand.
 *
 * beginnings: the same of where functions begin behind no call, so that execution does not return to there.
 */

#define UNWIND_MAGIC         0x6e697775666f7264ULL /* any file of another kind differs */
#define UNWIND_VERSION       29
#define UNWIND_MOST_SEGMENTS 16

/* unwind_header.sources */
#define UNWIND_FROM_EH_FRAME    1
#define UNWIND_FROM_DEBUG_FRAME 2
#define UNWIND_FROM_GO          4
#define UNWIND_FROM_PLT         8
#define UNWIND_FROM_V8          16 /* its builtins are in the file, so code that it makes is in its processes */

struct unwind_header {
	__u64 magic;
	__u32 version;
	__u32 crc;          /* CRC-32 of this header with 0 here */
	__u16 machine;      /* EM_X86_64 or EM_AARCH64 */
	__u8 identity_size; /* bytes of `identity` */
	__u8 sources;       /* UNWIND_FROM_* */
	__u32 segments;
	__u32 rules;
	__u32 buckets;
	__u32 rows;
	__u32 entries;     /* FDEs read */
	__u32 bad_entries; /* FDEs that break a rule of the format: their code has rule UNWIND_NONE */
	__u32 unsupported_rows;
	__u32 guessed_gaps; /* stretches with rule UNWIND_FP_GUESS */
	__u32 calls;        /* 0: not known */
	__u32 beginnings;
	__u32 reserved;
	__u8 identity[64]; /* file_identity() of tdprof/unwind/sections.py */
};

/* An executable segment. Its first bucket holds elf_address. */
struct unwind_segment {
	__u64 elf_address;
	__u64 file_offset;
	__u32 bytes;
	__u32 first_bucket;
};

#endif
