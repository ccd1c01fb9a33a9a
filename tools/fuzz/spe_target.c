// SPDX-License-Identifier: Apache-2.0
/* libFuzzer target: arbitrary bytes as a span of AUX data, decoded in batches of two sizes and dumped. Checks that both
 * give the same records, that every byte is accounted for, and that each call makes progress. Run by tools/fuzz_spe. */
#include <assert.h>
#include <stdlib.h>

#include "record.h"

#define LARGE 512
#define SMALL 3
#define OTHERS (SPE_MAX_RECORD / 2)

/* struct spe_dumper of text.c */
struct spe_dumper {
    uint64_t position, piece_end, is_unparsed;
    struct spe_sync sync;
};

uint64_t spe_dump(const uint8_t *, uint64_t, uint64_t, struct spe_dumper *, char *, uint64_t);
void spe_validity(const uint32_t *, uint64_t, uint32_t *const[SPE_END]);

/* Columns in blocks of their own, so that the sanitizer sees a step beyond any of them. */
static struct spe_columns allocate(uint64_t rows)
{
    static const uint8_t widths[] = {8, 8, 8, 8, 8, 8, 8, 8, 4, 4, 4, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1};
    struct spe_columns c = {.capacity = rows, .other_capacity = OTHERS};
    void **pointer = (void **)&c.offset;

    for (size_t i = 0; i < sizeof widths; i++)
        pointer[i] = malloc(rows * widths[i]);
    c.other_record = malloc(OTHERS * sizeof *c.other_record);
    c.other_header = malloc(OTHERS * sizeof *c.other_header);
    c.other_payload = malloc(OTHERS * sizeof *c.other_payload);
    return c;
}

static void release(struct spe_columns *c)
{
    for (void **pointer = (void **)&c->offset; pointer <= (void **)&c->other_payload; pointer++)
        free(*pointer);
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    return (hash ^ value) * 0x9e3779b97f4a7c15u + (hash >> 29);
}

static uint64_t decode_all(const uint8_t *data, uint64_t size, uint64_t rows, struct spe_decoder *d)
{
    struct spe_columns c = allocate(rows);
    uint64_t hash = 0, other_hash = 0, last_end = 0;

    while (d->position < size) {
        uint64_t before = d->position, others, n = spe_decode(data, size, d, &c, &others);

        assert(n <= rows && others <= OTHERS && d->position <= size);
        assert(d->position > before);
        for (uint64_t i = 0; i < n; i++) {
            assert(c.offset[i] >= last_end && c.offset[i] < d->position);
            last_end = c.offset[i] + 1;
            assert(c.present[i] & 1u << SPE_PC);
            hash = mix(mix(mix(hash, c.offset[i]), c.present[i]), c.pc[i]);
            hash = mix(mix(mix(hash, c.events[i]), c.va[i]), c.branch_target[i]);
            hash = mix(mix(mix(hash, c.timestamp[i]), c.total_latency[i]), c.data_source[i]);
            hash = mix(mix(mix(hash, c.issue_latency[i]), c.translation_latency[i]), c.alt_issue_latency[i]);
            hash = mix(mix(mix(hash, c.op[i]), c.op_class[i]), c.pc_top[i]);
            hash = mix(mix(mix(hash, c.pa[i]), c.context_el1[i]), c.context_el2[i]);
        }
        for (uint64_t i = 0; i < others; i++) {
            assert(c.other_record[i] < n);
            other_hash = mix(mix(other_hash, c.other_header[i]), c.other_payload[i]);
        }
    }
    assert(d->record_bytes + d->padding_bytes + d->damaged_bytes + d->open_bytes == size);
    release(&c);
    return mix(hash, other_hash);
}

int LLVMFuzzerTestOneInput(const uint8_t *input, size_t size)
{
    uint8_t *data = malloc(size ? size : 1);
    char *text = malloc(4096);
    struct spe_decoder large = {0}, small = {0};
    struct spe_dumper dumper = {0};

    memcpy(data, input, size);
    assert(decode_all(data, size, LARGE, &large) == decode_all(data, size, SMALL, &small));
    assert(!memcmp(&large, &small, sizeof large));
    while (dumper.position < size) {
        uint64_t before = dumper.position, bytes = spe_dump(data, size, 0, &dumper, text, 4096);

        assert(bytes <= 4096 && dumper.position > before && dumper.position <= size);
    }
    free(text);
    free(data);
    return 0;
}
