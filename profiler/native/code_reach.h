/* SPDX-License-Identifier: Apache-2.0 */
/* How far code reaches of which it is only known where it begins. */
#ifndef TDPROF_CODE_REACH_H
#define TDPROF_CODE_REACH_H

#include <stdbool.h>
#include <stdint.h>

/* Where each stretch of code ends: behind the first instruction after which nothing goes on and past which no branch
 * before it led. 0: there is none before its limit, or its instructions do not tell it (a jump to where a register
 * says, or what is no instruction). code: x86-64's, or aarch64's, at an address. start, limit: addresses in it, each
 * limit at or below the next start, so that nothing is read twice. */
void tdprof_code_reach(const uint8_t *code, uint64_t size, uint64_t address, bool is_aarch64, const uint64_t *start,
                       const uint64_t *limit, uint64_t count, uint64_t *end);

#endif
