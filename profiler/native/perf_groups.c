/* SPDX-License-Identifier: Apache-2.0 */
/* Adds up samples that differ in nothing a capture keeps: event, process, thread, call chains, and interval. */
#include "perf_records.h"

#include <stdbool.h>
#include <string.h>

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

/* Add samples from row `first` on; returns the first row there was no room for, or s->rows. */
EXPORT uint64_t tdprof_perf_group(struct perf_groups *g, const struct perf_samples *s, uint64_t first) {
    struct span span = {.known = false};
    for (uint64_t i = first; i < s->rows; i++) {
        const uint32_t event = s->event[i] < g->events ? g->event_number[s->event[i]] : NO_EVENT;
        if (event == NO_EVENT)
            continue;
        if (!span.known || span.pid != s->pid[i] || s->time_ns[i] < span.start_ns || s->time_ns[i] > span.end_ns)
            span = span_of(g, s->pid[i], s->time_ns[i]);
        const struct perf_group group = {
            .time_ns = span.end_ns,
            .event = event,
            .pid = s->pid[i],
            .tid = s->tid[i],
            .user_chain = s->user_chain[i],
            .kernel_chain = s->kernel_chain[i],
        };
        const uint64_t key[] = {
            group.time_ns,
            (uint64_t)group.event << 32 | group.pid,
            (uint64_t)group.tid << 32 | (uint32_t)group.user_chain,
            (uint32_t)group.kernel_chain,
        };
        const uint64_t hash = perf_hash(key, sizeof(key) / sizeof(*key), g->seed);
        uint64_t slot = hash & g->slot_mask;
        struct perf_group *found = NULL;
        for (uint64_t entry; found == NULL && (entry = g->slots[slot]) != 0; slot = (slot + 1) & g->slot_mask) {
            struct perf_group *row = &g->rows[(uint32_t)entry - 1];
            if (entry >> 32 == hash && row->time_ns == group.time_ns && row->event == group.event &&
                row->pid == group.pid && row->tid == group.tid && row->user_chain == group.user_chain &&
                row->kernel_chain == group.kernel_chain)
                found = row;
        }
        if (found == NULL) {
            if (g->count >= g->capacity)
                return i;
            found = &g->rows[g->count++];
            *found = group;
            g->slots[slot] = hash << 32 | (uint32_t)g->count;
        }
        found->count++;
        found->weight += s->period[i];
    }
    return s->rows;
}
