/* SPDX-License-Identifier: Apache-2.0 */
/* A table of distinct call chains: equal chains get one number, so memory follows the distinct ones only. */
#include "perf_records.h"

#include <stdbool.h>
#include <string.h>

#include "hash.h"

#define SHORT_CHAIN 8 /* words, up to which a call of memcmp() costs more than it saves */

/* 32 bits; the seed is the caller's secret, so that no file can be made to collide on purpose. */
uint64_t perf_hash(const uint64_t *words, uint64_t count, uint64_t seed) {
    uint64_t hash = seed ^ count, i = 0;
    for (; i + 1 < count; i += 2)
        hash = hash_pair(hash, words[i], words[i + 1], seed);
    if (i < count)
        hash = hash_pair(hash, words[i], 0, seed);
    return hash_end(hash);
}

static inline bool is_equal(const uint64_t *a, const uint64_t *b, uint64_t count) {
    if (count > SHORT_CHAIN)
        return memcmp(a, b, count * sizeof(*a)) == 0;
    uint64_t differs = 0;
    for (uint64_t i = 0; i < count; i++)
        differs |= a[i] ^ b[i];
    return differs == 0;
}

/* Find or add the chain. Fails with STOP_CHAINS or STOP_FRAMES, having changed nothing. */
enum perf_stop perf_intern(struct perf_chains *chains, const uint64_t *words, uint64_t count, int32_t *chain) {
    const uint64_t hash = perf_hash(words, count, chains->seed);
    uint64_t slot = hash & chains->slot_mask;
    for (uint64_t entry; (entry = chains->slots[slot]) != 0; slot = (slot + 1) & chains->slot_mask) {
        if (entry >> 32 != hash)
            continue;
        const uint64_t index = (uint32_t)entry - 1;
        const uint64_t start = chains->offsets[index];
        if (chains->offsets[index + 1] - start == count && is_equal(chains->frames + start, words, count)) {
            *chain = (int32_t)index;
            return STOP_END;
        }
    }
    const uint64_t end = chains->offsets[chains->rows];
    if (chains->rows >= chains->capacity || chains->rows >= INT32_MAX ||
        (chains->rows + 1) * 4 > (chains->slot_mask + 1) * 3)
        return STOP_CHAINS;
    if (count > chains->frame_capacity - end)
        return STOP_FRAMES;
    memcpy(chains->frames + end, words, count * sizeof(*words));
    *chain = (int32_t)chains->rows++;
    chains->offsets[chains->rows] = end + count;
    chains->slots[slot] = hash << 32 | (uint32_t)chains->rows;
    return STOP_END;
}

/* Move every entry of `old` (old_count slots) into the new, zeroed slots of `chains`. */
EXPORT void tdprof_perf_rehash(struct perf_chains *chains, const uint64_t *old, uint64_t old_count) {
    for (uint64_t i = 0; i < old_count; i++) {
        if (old[i] == 0)
            continue;
        uint64_t slot = (old[i] >> 32) & chains->slot_mask;
        while (chains->slots[slot] != 0)
            slot = (slot + 1) & chains->slot_mask;
        chains->slots[slot] = old[i];
    }
}
