// SPDX-License-Identifier: Apache-2.0
/* Exceptions through libgcc alone: thrown to a handler, through functions that clean up, with an end that a function
 * sets (as of a cancelled thread), and thrown again. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

#define NOINLINE __attribute__((noinline))
#define STAY     __asm__ volatile("" ::: "memory")

static struct _Unwind_Exception thrown;
static volatile int cleaned, is_forced;

static void clean(volatile int *at)
{
	cleaned += *at;
}

static _Unwind_Reason_Code forced_end(int version, _Unwind_Action action, _Unwind_Exception_Class class,
                                      struct _Unwind_Exception *exception, struct _Unwind_Context *context, void *to);

NOINLINE static int throws(int x)
{
	volatile char room[200];

	memset((void *)room, x, sizeof(room));
	memset(&thrown, 0, sizeof(thrown));
	if (is_forced)
		return _Unwind_ForcedUnwind(&thrown, forced_end, NULL) + room[x];
	return _Unwind_RaiseException(&thrown) + room[x];
}

NOINLINE static int cleans(int x)
{
	__attribute__((cleanup(clean))) volatile int at = x;
	int y = throws(x + at);

	STAY;
	return y + at;
}

NOINLINE __attribute__((used)) int cleans_more(int x)
{
	volatile int room[x + 3];
	__attribute__((cleanup(clean))) volatile int at = x;

	room[x] = cleans(at);
	STAY;
	return room[x];
}

NOINLINE __attribute__((used)) int throws_again(void)
{
	return _Unwind_Resume_or_Rethrow(&thrown);
}

/* Functions with handlers: `call` after `frame`, and where it lands `then`. */
#if defined(__x86_64__)
#define FRAME "push %rbp\n.cfi_def_cfa_offset 16\n.cfi_offset %rbp, -16\nmov %rsp, %rbp\n.cfi_def_cfa_register %rbp\n"
#define CALL  "call "
#define LEAVE "pop %rbp\n.cfi_def_cfa %rsp, 8\nret\n"
#else
#define FRAME                                                                                                          \
	"stp x29, x30, [sp, -32]!\n.cfi_def_cfa_offset 32\n.cfi_offset 29, -32\n.cfi_offset 30, -24\n"                 \
	"mov x29, sp\n.cfi_def_cfa_register 29\n"
#define CALL  "bl "
#define LEAVE "ldp x29, x30, [sp], 32\n.cfi_def_cfa 31, 0\n.cfi_restore 29\n.cfi_restore 30\nret\n"
#endif
#define HANDLER(name, called)                                                                                          \
	__asm__(".type " #name ", %function\n" #name                                                                   \
	        ":\n.cfi_startproc\n.cfi_personality 0x1b, lands\n" FRAME CALL #called "\n.globl " #name               \
	        "_lands\n" #name "_lands:\n" LEAVE ".cfi_endproc\n.size " #name ", .-" #name "\n")
int catches(int x), catches_again(int x);
extern const char catches_lands[], catches_again_lands[];
__asm__(".text\n");
HANDLER(catches, cleans_more);
HANDLER(catches_again, throws_again);

__attribute__((used)) _Unwind_Reason_Code lands(int version, _Unwind_Action action, _Unwind_Exception_Class class,
                                                struct _Unwind_Exception *exception, struct _Unwind_Context *context)
{
	uintptr_t in = _Unwind_GetIP(context);

	(void)version, (void)class, (void)exception;
	if (action & _UA_SEARCH_PHASE)
		return _URC_HANDLER_FOUND;
	_Unwind_SetIP(context,
	              in == (uintptr_t)catches_lands ? (uintptr_t)catches_lands : (uintptr_t)catches_again_lands);
	return _URC_INSTALL_CONTEXT;
}

static _Unwind_Reason_Code forced_end(int version, _Unwind_Action action, _Unwind_Exception_Class class,
                                      struct _Unwind_Exception *exception, struct _Unwind_Context *context, void *to)
{
	(void)version, (void)action, (void)class, (void)exception, (void)context, (void)to;
	return _URC_NO_REASON;
}

NOINLINE static int outer(int x)
{
	int y = catches(x);

	STAY;
	return y + 1;
}

int main(void)
{
	outer(3);
	is_forced = 1;
	outer(5);
	catches_again(0);
	exit(cleaned == 16 ? 0 : 1);
}
