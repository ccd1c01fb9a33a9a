/* SPDX-License-Identifier: GPL-2.0 */
/* Hashes of 64 bits, a word at a time. */
#ifndef TDPROF_MIX_H
#define TDPROF_MIX_H

/* `hash` is a constant or has been mixed: what differs in it and in the word by the same bits would not tell. */
static __always_inline __u64 mix(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * 0xff51afd7ed558ccdULL;
	return hash ^ hash >> 32;
}

#endif
