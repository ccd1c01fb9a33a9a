/* SPDX-License-Identifier: Apache-2.0 */
/* Go's functions that change to another stack: where in them that has happened, and what leads back. */
#ifndef TDPROF_UNWIND_GO_H
#define TDPROF_UNWIND_GO_H

#include "unwind_build.h"

enum { MOST_GO_PARTS = 4 };

/* Bytes of a function in which its stack is another one. */
struct go_part {
	uint32_t start, end; /* from the function's first byte on */
	packed_rule rule;
	bool adds_frame; /* the bytes that the frame has there belong into the rule */
};

struct go_parts {
	struct go_part part[MOST_GO_PARTS];
	unsigned count;
	bool is_put_in;   /* the function is called by a signal handler, as if by what the signal interrupted */
	uint32_t current; /* offset in struct m of its current goroutine, once a function has told it; 0 */
};

enum go_switch { GO_SWITCHES_NOT, GO_SYSTEMSTACK, GO_MORESTACK, GO_ASMCGOCALL, GO_CGOCALLBACK, GO_CLOCK, GO_CROSSCALL };

/* Which of the functions that are known to change stacks has this name. */
enum go_switch go_switch_named(const char *name);
/* The parts of such a function of x86-64, by its instructions; false if they are not what is known of any version. */
bool find_go_parts(enum go_switch kind, const uint8_t *code, uint32_t size, struct go_parts *parts);
/* The same of aarch64. */
bool find_go_arm_parts(enum go_switch kind, const uint8_t *bytes, uint32_t size, struct go_parts *parts);
/* The rule of a part in which the frame has so many bytes without the return address. */
packed_rule go_part_rule(const struct go_part *part, int32_t bytes);

#endif
