/* SPDX-License-Identifier: Apache-2.0 */
/* A sample's call chain into its user and kernel part. */
#ifndef TDPROF_PERF_SPLIT_H
#define TDPROF_PERF_SPLIT_H

#include <linux/perf_event.h>

#include "perf_cursor.h"

#define INLINE                static inline __attribute__((always_inline))
#define CONTEXT_USER_DEFERRED ((uint64_t) - 640) /* PERF_CONTEXT_USER_DEFERRED, Linux 6.19 */
#define RECORD_WORDS          (UINT16_MAX / sizeof(uint64_t))

/* A sample's call chain by mode. The frames stay in the record where they can, else they stand in `copied`. */
struct split_chain {
	const uint64_t *user, *kernel;
	uint64_t users, kernels, guests, unknown, deferred;
	uint64_t copied_user[RECORD_WORDS], copied_kernel[RECORD_WORDS];
};

static inline bool is_kernel_mode(uint16_t cpu_mode)
{
	return cpu_mode == PERF_RECORD_MISC_KERNEL || cpu_mode == PERF_RECORD_MISC_HYPERVISOR;
}

/* Frames in front of the first marker belong to the mode in which the sample was taken. */
static inline uint64_t first_context(uint16_t cpu_mode)
{
	if (cpu_mode == PERF_RECORD_MISC_USER)
		return PERF_CONTEXT_USER;
	return is_kernel_mode(cpu_mode) ? PERF_CONTEXT_KERNEL : PERF_CONTEXT_GUEST;
}

/* A chain as nearly all are: kernel frames in one piece, user frames in one piece, nothing else. False: it is not. */
INLINE bool split_in_place(const uint64_t *words, uint64_t count, uint16_t cpu_mode, struct split_chain *chain)
{
	uint64_t context = first_context(cpu_mode), at = 0;
	while (at < count) {
		uint64_t first = at;
		while (at < count && words[at] < (uint64_t)PERF_CONTEXT_MAX)
			at++;
		if (at > first) {
			if (context == (uint64_t)PERF_CONTEXT_USER && chain->users == 0) {
				chain->user = words + first;
				chain->users = at - first;
			} else if (context == (uint64_t)PERF_CONTEXT_KERNEL && chain->kernels == 0) {
				chain->kernel = words + first;
				chain->kernels = at - first;
			} else
				return false;
		}
		if (at < count && (context = words[at++]) == CONTEXT_USER_DEFERRED)
			return false;
	}
	return true;
}

static void split_by_copying(struct cursor *c, uint64_t count, uint16_t cpu_mode, struct split_chain *chain)
{
	uint64_t context = first_context(cpu_mode);
	chain->users = chain->kernels = 0;
	chain->user = chain->copied_user;
	chain->kernel = chain->copied_kernel;
	for (uint64_t i = 0; i < count; i++) {
		const uint64_t word = take64(c);
		if (word >= (uint64_t)PERF_CONTEXT_MAX) {
			context = word;
			if (word == CONTEXT_USER_DEFERRED && ++i < count) {
				take64(c); /* the cookie that a later record repeats */
				chain->deferred++;
			}
			continue;
		}
		switch (context) {
		case (uint64_t)PERF_CONTEXT_USER: chain->copied_user[chain->users++] = word; break;
		case (uint64_t)PERF_CONTEXT_KERNEL:
		case (uint64_t)PERF_CONTEXT_HV: chain->copied_kernel[chain->kernels++] = word; break;
		case (uint64_t)PERF_CONTEXT_GUEST:
		case (uint64_t)PERF_CONTEXT_GUEST_KERNEL:
		case (uint64_t)PERF_CONTEXT_GUEST_USER: chain->guests++; break;
		default: chain->unknown++;
		}
	}
}

INLINE void take_chain(struct cursor *c, uint64_t count, uint16_t cpu_mode, struct split_chain *chain)
{
	const bool is_aligned = (uintptr_t)c->at % sizeof(uint64_t) == 0;
	if (!c->swap && is_aligned && split_in_place((const uint64_t *)(const void *)c->at, count, cpu_mode, chain))
		take(c, count * 8);
	else
		split_by_copying(c, count, cpu_mode, chain);
	/* The return address of the outermost frame-pointer frame is 0: an end mark, no frame. */
	while (chain->users > 0 && chain->user[chain->users - 1] == 0)
		chain->users--;
}

#endif
