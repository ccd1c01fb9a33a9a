/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up samples that differ in nothing a capture keeps: event, process, thread, call chains, and interval. */
#include "perf_records.h"

#include <stdbool.h>

#include "hash.h"

/* A stretch of one process's time in which nothing changed; what falls into it gets the time `end_ns`. */
struct span {
    uint64_t start_ns, end_ns;
    uint32_t pid;
    bool known;
};

/* First change of `pid` after `time_ns`, as an index. */
static uint64_t next_change(const struct perf_groups *g, uint32_t pid, uint64_t time_ns) {
    uint64_t low = 0, high = g->changes;
    while (low < high) {
        const uint64_t middle = low + (high - low) / 2;
        if (g->change_pid[middle] < pid || (g->change_pid[middle] == pid && g->change_ns[middle] <= time_ns))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static struct span span_of(const struct perf_groups *g, uint32_t pid, uint64_t time_ns) {
    const uint64_t start = time_ns - time_ns % g->interval_ns;
    struct span span = {start, start + (g->interval_ns - 1), pid, true};
    if (span.end_ns < start)
        span.end_ns = UINT64_MAX;
    const uint64_t change = next_change(g, pid, time_ns);
    if (change < g->changes && g->change_pid[change] == pid && g->change_ns[change] - 1 < span.end_ns)
        span.end_ns = g->change_ns[change] - 1;
    if (change > 0 && g->change_pid[change - 1] == pid && g->change_ns[change - 1] > span.start_ns)
        span.start_ns = g->change_ns[change - 1];
    return span;
}

/* A sample on its way into the table; `event` is NO_EVENT if it is not wanted there. */
struct waiting {
    uint64_t hash;
    uint64_t end_ns; /* of its interval */
    uint32_t event;
};

static inline struct waiting prepare(const struct perf_groups *g, const struct perf_samples *s, uint64_t i,
                                     struct span *span) {
    struct waiting w = {.event = s->event[i] < g->events ? g->event_number[s->event[i]] : NO_EVENT};
    if (w.event == NO_EVENT)
        return w;
    if (!span->known || span->pid != s->pid[i] || s->time_ns[i] < span->start_ns || s->time_ns[i] > span->end_ns)
        *span = span_of(g, s->pid[i], s->time_ns[i]);
    w.end_ns = span->end_ns;
    uint64_t hash = hash_pair(g->seed, w.end_ns, (uint64_t)w.event << 32 | s->pid[i], g->seed);
    hash = hash_pair(hash, (uint64_t)s->tid[i] << 32 | (uint32_t)s->user_chain[i], (uint32_t)s->kernel_chain[i],
                     g->seed);
    w.hash = hash_end(hash);
    __builtin_prefetch(&g->slots[w.hash & g->slot_mask]);
    return w;
}

/* The row that the sample will most likely join. */
static inline void prefetch_row(const struct perf_groups *g, const struct waiting *w) {
    const uint64_t entry = w->event != NO_EVENT ? g->slots[w->hash & g->slot_mask] : 0;
    if (entry != 0)
        __builtin_prefetch(&g->rows[(uint32_t)entry - 1]);
}

/* False: the table is full. */
static inline bool add(struct perf_groups *g, const struct waiting *w, const struct perf_samples *s, uint64_t i) {
    if (w->event == NO_EVENT)
        return true;
    uint64_t slot = w->hash & g->slot_mask;
    for (uint64_t entry; (entry = g->slots[slot]) != 0; slot = (slot + 1) & g->slot_mask) {
        struct perf_group *row = &g->rows[(uint32_t)entry - 1];
        if (entry >> 32 == w->hash && row->time_ns == w->end_ns && row->event == w->event && row->pid == s->pid[i] &&
            row->tid == s->tid[i] && row->user_chain == s->user_chain[i] && row->kernel_chain == s->kernel_chain[i]) {
            row->count++;
            row->weight += s->period[i];
            return true;
        }
    }
    if (g->count >= g->capacity)
        return false;
    g->rows[g->count++] = (struct perf_group){
        .time_ns = w->end_ns,
        .count = 1,
        .weight = s->period[i],
        .event = w->event,
        .pid = s->pid[i],
        .tid = s->tid[i],
        .user_chain = s->user_chain[i],
        .kernel_chain = s->kernel_chain[i],
    };
    g->slots[slot] = w->hash << 32 | g->count;
    return true;
}

/* Add samples from row `first` on; returns the first row there was no room for, or s->rows. The table can be larger than
 * caches: some samples are under way at once, so that they wait for memory together. */
EXPORT uint64_t tdprof_perf_group(struct perf_groups *g, const struct perf_samples *s, uint64_t first) {
    enum { UNDER_WAY = 16, AT_SLOT = 8 };
    struct waiting ring[UNDER_WAY];
    struct span span = {.known = false};
    const uint64_t count = s->rows - first;
    for (uint64_t i = 0; i < count + UNDER_WAY; i++) {
        if (i >= UNDER_WAY && i - UNDER_WAY < count && !add(g, &ring[i % UNDER_WAY], s, first + i - UNDER_WAY))
            return first + i - UNDER_WAY;
        if (i < count)
            ring[i % UNDER_WAY] = prepare(g, s, first + i, &span);
        if (i >= AT_SLOT && i - AT_SLOT < count)
            prefetch_row(g, &ring[(i - AT_SLOT) % UNDER_WAY]);
    }
    return s->rows;
}
