// SPDX-License-Identifier: Apache-2.0
/* Go's stack switches of x86-64: systemstack, morestack, asmcgocall and cgocallback of runtime/asm_amd64.s, and what
 * reads clocks, of sys_linux_amd64.s and time_linux_amd64.s. What they keep where differs between versions, so it is
 * read from their instructions. */
#include "unwind_go.h"

#define ANY (-1) /* any byte */

/* Where a pattern ends behind `from`; 0: it is not there. */
static uint32_t find_end(const uint8_t *code, uint32_t size, uint32_t from, const int *pattern, uint32_t length)
{
	for (uint32_t at = from; at < size && size - at >= length; at++) {
		uint32_t same = 0;

		while (same < length && (pattern[same] == ANY || pattern[same] == code[at + same]))
			same++;
		if (same == length)
			return at + length;
	}
	return 0;
}

#define FIND(from, ...)                                                                                                \
	find_end(code, size, (from), (const int[]){ __VA_ARGS__ },                                                     \
	         (uint32_t)(sizeof((const int[]){ __VA_ARGS__ }) / sizeof(int)))

static uint32_t word_before(const uint8_t *code, uint32_t end)
{
	uint32_t word;

	memcpy(&word, code + end - sizeof(word), sizeof(word));
	return word;
}

static void add_part(struct go_parts *parts, uint32_t start, uint32_t end, packed_rule rule, bool adds_frame)
{
	parts->part[parts->count++] = (struct go_part){ start, end, rule, adds_frame };
}

/* The thread (struct m) is found from the goroutine in r14; `to` is where it says whose stack this continues on. */
static packed_rule switch_rule(uint32_t to, uint32_t current)
{
	return pack_rule(UNWIND_GO_SWITCH, UNWIND_RA_CFA, (int16_t)current, (int32_t)(to << 16));
}

/* From the goroutine's stack to the thread's and, behind the call, back by what the goroutine has kept. */
static bool find_systemstack(const uint8_t *code, uint32_t size, struct go_parts *parts)
{
	/* mov 0x30(%rax),%rbx; mov current(%rbx),%rax: the thread of the goroutine, and its current one */
	uint32_t back = FIND(0, 0x48, 0x8b, 0x58, 0x30, 0x48, 0x8b, 0x83, ANY, ANY, ANY, ANY);
	uint32_t away = FIND(0, 0x48, 0x89, 0xdc); /* mov %rbx,%rsp */

	if (!away)
		away = FIND(0, 0x48, 0x8b, 0x62, 0x38); /* mov 0x38(%rdx),%rsp */
	if (!back || !away || away > back)
		return false;
	uint32_t current = word_before(code, back), end = FIND(back, 0x48, 0x8b, 0x60, 0x38); /* mov 0x38(%rax),%rsp */

	if (!end || current > INT16_MAX)
		return false;
	parts->current = current;
	add_part(parts, away, end, switch_rule(current, current), true);
	return true;
}

/* For good: what it calls grows the goroutine's stack, which may move, and continues where the goroutine says. */
static bool find_morestack(const uint8_t *code, uint32_t size, struct go_parts *parts)
{
	uint32_t away = FIND(0, 0x48, 0x8b, 0x63, 0x38); /* mov 0x38(%rbx),%rsp */

	if (!away || !parts->current)
		return false;
	add_part(parts, away, size,
	         pack_rule(UNWIND_GO_SWITCH, UNWIND_RA_SLOT, (int16_t)parts->current, (int32_t)(parts->current << 16)),
	         false);
	return true;
}

/* From Go's stack to the thread's, on which the goroutine and how deep its stack was are kept. Where it is on that
 * stack already, the stack pointer itself is. */
static bool find_asmcgocall(const uint8_t *code, uint32_t size, struct go_parts *parts)
{
	/* push %rbp; mov %rsp,%rbp: since Go 1.21 */
	int16_t frame = FIND(0, 0x55, 0x48, 0x89, 0xe5) == 4 ? 16 : 8;
	uint32_t away = FIND(0, 0x48, 0x8b, 0x66, 0x38); /* mov 0x38(%rsi),%rsp */
	/* mov %rdi,goroutine(%rsp); mov 8(%rdi),%rdi; sub %rdx,%rdi */
	uint32_t kept = FIND(away, 0x48, 0x89, 0x7c, 0x24, ANY, 0x48, 0x8b, 0x7f, 0x08, 0x48, 0x29, 0xd7);

	if (!away || !kept || kept + 5 > size)
		return false;
	uint32_t goroutine = code[kept - 8], depth = 0, start = kept + 4;

	if (memcmp(code + kept, (const uint8_t[]){ 0x48, 0x89, 0x7c, 0x24 }, 4) == 0) /* mov %rdi,depth(%rsp) */
		depth = code[kept + 4], start = kept + 5;
	else if (memcmp(code + kept, (const uint8_t[]){ 0x48, 0x89, 0x3c, 0x24 }, 4) != 0) /* mov %rdi,(%rsp) */
		return false;
	uint32_t end = FIND(start, 0x48, 0x89, 0xf4);                 /* mov %rsi,%rsp */
	uint32_t same_away = FIND(end, 0x48, 0x83, 0xec, ANY);        /* sub …,%rsp */
	uint32_t same = FIND(same_away, 0x48, 0x89, 0x54, 0x24, ANY); /* mov %rdx,same(%rsp) */
	uint32_t same_end = FIND(same, 0x48, 0x89, 0xf4);

	if (!end || !same_away)
		return false;
	uint32_t same_at = same ? code[same - 1] : 0;

	if (!same) {
		same = FIND(same_away, 0x48, 0x89, 0x14, 0x24); /* mov %rdx,(%rsp) */
		same_end = FIND(same, 0x48, 0x89, 0xf4);
	}
	if (!same || !same_end)
		return false;
	add_part(parts, away, start, UNWIND_UNSUPPORTED, false);
	add_part(parts, start, end,
	         pack_rule(UNWIND_GO_CALL_OF_C, UNWIND_RA_CFA, frame, (int32_t)(goroutine << 8 | depth)), false);
	add_part(parts, same_away, same, UNWIND_UNSUPPORTED, false);
	add_part(parts, same, same_end,
	         pack_rule(UNWIND_CFA_SP_DEREF, UNWIND_RA_CFA, UNWIND_FP_SAME,
	                   (int32_t)(same_at << 8 | (uint32_t)frame)),
	         false);
	return true;
}

/* Called by C on the thread's stack, goes on on the goroutine's; the thread's keeps where it was. */
static bool find_cgocallback(const uint8_t *code, uint32_t size, struct go_parts *parts)
{
	uint32_t at = FIND(0, 0x48, 0x8b, 0xb3, ANY, ANY, ANY, ANY); /* mov current(%rbx),%rsi */
	uint32_t away = FIND(at, 0x48, 0x89, 0xfc);                  /* mov %rdi,%rsp */
	uint32_t back = FIND(away, 0x48, 0x8b, 0x66, 0x38);          /* mov 0x38(%rsi),%rsp */

	if (!at || !away || !back || word_before(code, at) > INT16_MAX)
		return false;
	add_part(parts, away, back, switch_rule(0, word_before(code, at)), true);
	return true;
}

/* Calls the vDSO on the thread's stack, and leaves RBP where it has saved its caller's, below the return address. */
static bool find_clock(const uint8_t *code, uint32_t size, struct go_parts *parts)
{
	packed_rule rule = pack_rule(UNWIND_CFA_FP_LEFT, UNWIND_RA_CFA, -16, 16);
	uint32_t kept = FIND(0, 0x48, 0x8d, 0x6c, 0x24, ANY);                                /* lea …(%rsp),%rbp */
	uint32_t end = FIND(kept, 0x48, 0x8b, 0x6c, 0x24, ANY, 0x48, 0x83, 0xc4, ANY, 0xc3); /* mov, add, ret */
	uint32_t restored = end - 5;

	if (!kept) {                                                 /* since Go 1.21 */
		kept = FIND(0, 0x55, 0x48, 0x89, 0xe5);              /* push %rbp; mov %rsp,%rbp */
		end = FIND(kept, 0x48, 0x83, 0xc4, ANY, 0x5d, 0xc3); /* add …,%rsp; pop %rbp; ret */
		restored = end - 1;
	}
	if (!kept || !end)
		return false;
	add_part(parts, kept, restored, rule, false);
	add_part(parts, end, size, rule, false); /* where there is no vDSO */
	return true;
}

/* C calls Go by this, and may have frames by RBP. Older versions save it behind a part of their frame. */
static bool find_crosscall(const uint8_t *code, uint32_t size, struct go_parts *parts)
{
	uint32_t saved = FIND(0, 0x55, 0x48, 0x89, 0xe5), restored = FIND(saved, 0x5d, 0xc3) - 1;

	if (saved != 4) {
		/* sub frame,%rsp; mov %rbp,frame-8(%rsp); lea frame-8(%rsp),%rbp … mov frame-8(%rsp),%rbp */
		saved = FIND(0, 0x48, 0x83, 0xec, ANY, 0x48, 0x89, 0x6c, 0x24, ANY, 0x48, 0x8d, 0x6c, 0x24, ANY);
		restored = FIND(saved, 0x48, 0x8b, 0x6c, 0x24, ANY);
		if (saved != 14 || code[3] != code[8] + 8 || code[8] != code[13])
			return true; /* nothing is said of RBP */
	}
	if (restored > saved && restored < size)
		add_part(parts, saved, restored, pack_rule(UNWIND_CFA_SP, UNWIND_RA_CFA, -16, 0), true);
	return true;
}

bool find_go_parts(enum go_switch kind, const uint8_t *code, uint32_t size, struct go_parts *parts)
{
	parts->count = 0;
	switch (kind) {
	case GO_SYSTEMSTACK: return find_systemstack(code, size, parts);
	case GO_MORESTACK: return find_morestack(code, size, parts);
	case GO_ASMCGOCALL: return find_asmcgocall(code, size, parts);
	case GO_CGOCALLBACK: return find_cgocallback(code, size, parts);
	case GO_CLOCK: return find_clock(code, size, parts);
	case GO_CROSSCALL: return find_crosscall(code, size, parts);
	default: return false;
	}
}

packed_rule go_part_rule(const struct go_part *part, int32_t bytes)
{
	if (!part->adds_frame)
		return part->rule;
	return bytes >= 0 && bytes < 1 << 15 ? part->rule + ((packed_rule)(uint32_t)(bytes + 8) << 32)
	                                     : (packed_rule)UNWIND_UNSUPPORTED;
}

enum go_switch go_switch_named(const char *name)
{
	static const struct {
		const char *name;
		enum go_switch kind;
	} KNOWN[] = {
		{ "runtime.systemstack", GO_SYSTEMSTACK },
		{ "runtime.morestack", GO_MORESTACK },
		{ "runtime.asmcgocall", GO_ASMCGOCALL },
		{ "runtime.cgocallback", GO_CGOCALLBACK },
		{ "crosscall2", GO_CROSSCALL },
		{ "runtime.nanotime1", GO_CLOCK },
		{ "runtime.walltime", GO_CLOCK },
		{ "time.now", GO_CLOCK },
	};

	for (unsigned i = 0; i < sizeof(KNOWN) / sizeof(KNOWN[0]); i++)
		if (strcmp(name, KNOWN[i].name) == 0)
			return KNOWN[i].kind;
	return GO_SWITCHES_NOT;
}
