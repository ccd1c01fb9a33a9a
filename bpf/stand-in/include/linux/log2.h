/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* For bcc's table macros: constants only. */
#define roundup_pow_of_two(n) (1UL << (64 - __builtin_clzl((n) - 1)))
