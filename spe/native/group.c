/* SPDX-License-Identifier: Apache-2.0 */
/* Numbering pairs of keys in the order of their first appearance, and adding records up by such numbers. */
#include "record.h"

/* Open addressing; memory is the caller's. */
struct spe_groups {
    uint64_t slots;     /* a power of two, above `capacity` */
    uint64_t capacity;  /* groups that fit */
    uint64_t count;     /* groups so far */
    uint32_t *slot;     /* 0: free; else 1 + group */
    uint64_t *first, *second; /* keys by group */
    uint64_t *hits;     /* rows by group */
};

/* Rows ahead whose memory is asked for: tables are larger than the caches, and rows fall anywhere in them. */
#define AHEAD 12

static inline uint64_t slot_of(const struct spe_groups *g, uint64_t first, uint64_t second)
{
    uint64_t hash = (first ^ (second << 32 | second >> 32)) * 0x9e3779b97f4a7c15u;

    return (hash ^ hash >> 29) & (g->slots - 1);
}

/* 1 + the group of a pair, a new one if need be; 0 if the table is full. */
static inline uint32_t find_group(struct spe_groups *g, uint64_t first, uint64_t second)
{
    uint64_t at = slot_of(g, first, second);
    uint32_t found;

    while ((found = g->slot[at]) && (g->first[found - 1] != first || g->second[found - 1] != second))
        at = (at + 1) & (g->slots - 1);
    if (found)
        return found;
    if (g->count == g->capacity)
        return 0;
    g->first[g->count] = first;
    g->second[g->count] = second;
    g->hits[g->count] = 0;
    return g->slot[at] = (uint32_t)++g->count;
}

/* The group of each row; new pairs become new groups. Returns the rows done: fewer than n if the table is full. */
SPE_EXPORT uint64_t spe_group(const uint64_t *first, const uint64_t *second, uint64_t n, struct spe_groups *g,
                              uint32_t *group)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t found;

        if (i + AHEAD < n)
            __builtin_prefetch(&g->slot[slot_of(g, first[i + AHEAD], second[i + AHEAD])]);
        found = find_group(g, first[i], second[i]);
        if (!found)
            return i;
        g->hits[found - 1]++;
        group[i] = found - 1;
    }
    return n;
}

/* Counts the latencies of retired operations: a row of the report, row_of[group[i]], none if negative, times three plus
 * the kind of latency (total, issue, translation) is the first key, the cycles are the second. Starts at record `from`;
 * returns the records done: fewer than n if the table has no room for three more. */
SPE_EXPORT uint64_t spe_count_latencies(const struct spe_columns *c, uint64_t from, uint64_t n, const uint32_t *group,
                                        const int64_t *row_of, struct spe_groups *g)
{
    static const uint32_t kinds[3] = {1u << SPE_TOT, 1u << SPE_ISSUE, 1u << SPE_XLAT};
    const uint16_t *const latencies[3] = {c->total_latency, c->issue_latency, c->translation_latency};

    for (uint64_t i = from; i < n; i++) {
        int64_t row = row_of[group[i]];

        if (i + AHEAD < n && row_of[group[i + AHEAD]] >= 0)
            for (uint64_t kind = 0; kind < 3; kind++)
                __builtin_prefetch(&g->slot[slot_of(g, (uint64_t)row_of[group[i + AHEAD]] * 3 + kind,
                                                    latencies[kind][i + AHEAD])]);
        if (row < 0 || !(c->events[i] & 2))
            continue;
        if (g->capacity - g->count < 3)
            return i;
        for (uint64_t kind = 0; kind < 3; kind++)
            if (c->present[i] & kinds[kind])
                g->hits[find_group(g, (uint64_t)row * 3 + kind, latencies[kind][i]) - 1]++;
    }
    return n;
}

/* Sums of a group. arm_spe/stats.py names them in the same order. */
enum spe_sum {
    SUM_OPERATIONS,  /* all records */
    SUM_RETIRED,     /* executed by the program; all sums from here to SUM_LOADS_BY_LEVEL are of these */
    SUM_LOADS,
    SUM_STORES,
    SUM_BRANCHES,
    SUM_OTHERS,
    SUM_MISPREDICTED, /* branches */
    SUM_NOT_TAKEN,    /* branches */
    SUM_L1D_ACCESS,   /* loads, as all of the caches: stores may leave the bits unset */
    SUM_L1D_REFILL,
    SUM_LLC_ACCESS,
    SUM_LLC_REFILL,
    SUM_TLB_ACCESS,   /* loads and stores */
    SUM_TLB_WALK,
    SUM_VECTOR,       /* SVE and SME operations */
    SUM_PARTIAL_PREDICATE,
    SUM_EMPTY_PREDICATE,
    SUM_SNOOPED,      /* loads */
    SUM_TOTAL_CYCLES,
    SUM_TOTAL_COUNT,
    SUM_ISSUE_CYCLES,
    SUM_ISSUE_COUNT,
    SUM_TRANSLATION_CYCLES,
    SUM_TRANSLATION_COUNT,
    SUM_LOADS_BY_LEVEL,
    SUMS = SUM_LOADS_BY_LEVEL + 8,
};

/* What an operation is, from a table of the caller's indexed by class << 8 | payload. */
#define TRAIT_LOAD 1
#define TRAIT_STORE 2
#define TRAIT_BRANCH 4
#define TRAIT_OTHER 8
#define TRAIT_VECTOR 16

/* Adds n records to sums[group[i]]. `level` is each load's place in the memory hierarchy, bit 7 set if it was snooped;
 * ignored for others. */
SPE_EXPORT void spe_add_up(const struct spe_columns *c, uint64_t n, const uint32_t *group, const uint8_t *level,
                           const uint8_t traits[1024], uint64_t (*sums)[SUMS])
{
    for (uint64_t i = 0; i < n; i++) {
        uint64_t *sum = sums[group[i]], events = c->events[i];
        uint32_t present = c->present[i];
        uint8_t trait = traits[(c->op_class[i] & 3) << 8 | c->op[i]];
        uint64_t load = trait & 1, store = trait >> 1 & 1, branch = trait >> 2 & 1, vector = trait >> 4 & 1;

        if (i + AHEAD < n)
            for (unsigned line = 0; line < sizeof *sums; line += 64)
                __builtin_prefetch((const char *)sums[group[i + AHEAD]] + line, 1);
        sum[SUM_OPERATIONS]++;
        if (!(events & 2))
            continue;
        sum[SUM_RETIRED]++;
        sum[SUM_LOADS] += load;
        sum[SUM_STORES] += store;
        sum[SUM_BRANCHES] += branch;
        sum[SUM_OTHERS] += trait >> 3 & 1;
        sum[SUM_MISPREDICTED] += branch & events >> 7;
        sum[SUM_NOT_TAKEN] += branch & events >> 6;
        sum[SUM_L1D_ACCESS] += load & events >> 2;
        sum[SUM_L1D_REFILL] += load & events >> 2 & events >> 3;
        sum[SUM_LLC_ACCESS] += load & events >> 8;
        sum[SUM_LLC_REFILL] += load & events >> 8 & events >> 9;
        sum[SUM_TLB_ACCESS] += (load | store) & events >> 4;
        sum[SUM_TLB_WALK] += (load | store) & events >> 4 & events >> 5;
        sum[SUM_VECTOR] += vector;
        sum[SUM_PARTIAL_PREDICATE] += vector & events >> 17;
        sum[SUM_EMPTY_PREDICATE] += vector & events >> 18;
        sum[SUM_SNOOPED] += load & level[i] >> 7;
        sum[SUM_TOTAL_CYCLES] += c->total_latency[i];
        sum[SUM_TOTAL_COUNT] += present >> SPE_TOT & 1;
        sum[SUM_ISSUE_CYCLES] += c->issue_latency[i];
        sum[SUM_ISSUE_COUNT] += present >> SPE_ISSUE & 1;
        sum[SUM_TRANSLATION_CYCLES] += c->translation_latency[i];
        sum[SUM_TRANSLATION_COUNT] += present >> SPE_XLAT & 1;
        sum[SUM_LOADS_BY_LEVEL + (level[i] & 7)] += load;
    }
}
