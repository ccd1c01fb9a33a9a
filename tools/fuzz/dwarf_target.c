// SPDX-License-Identifier: Apache-2.0
/* libFuzzer target: arbitrary bytes as debug sections, read whole, for some addresses, with a shared file and with a
 * split unit, from memory, from a file and from one that has become shorter; checks that the columns that come out are
 * in order and within bounds, and as many from a file as from memory. Run by tools/fuzz/symbols. */
#define _GNU_SOURCE
#include "dwarf_api.h"

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct dwarf_sizes check_columns(const struct dwarf_index *index)
{
	struct dwarf_sizes n;
	struct dwarf_columns c;

	tdprof_dwarf_sizes(index, &n);
	c.range_start = malloc(n.ranges * 8 + 1);
	c.range_node = malloc(n.ranges * 4 + 1);
	c.range_file = malloc(n.ranges * 4 + 1);
	c.range_line = malloc(n.ranges * 4 + 1);
	c.node_function = malloc(n.nodes * 4 + 1);
	c.node_file = malloc(n.nodes * 4 + 1);
	c.node_parent = malloc(n.nodes * 4 + 1);
	c.node_call_file = malloc(n.nodes * 4 + 1);
	c.node_call_line = malloc(n.nodes * 4 + 1);
	c.function_name = malloc(n.functions * 8 + 1);
	c.file_name = malloc(n.files * 8 + 1);
	c.function_text = malloc(n.function_bytes + 1);
	c.file_text = malloc(n.file_bytes + 1);
	tdprof_dwarf_copy(index, &c);
	for (uint64_t i = 0; i < n.ranges; i++) {
		assert(!i || c.range_start[i] > c.range_start[i - 1]);
		assert(c.range_node[i] == UINT32_MAX || c.range_node[i] < n.nodes);
		assert(c.range_file[i] == UINT32_MAX || c.range_file[i] < n.files);
	}
	for (uint64_t i = 0; i < n.nodes; i++) {
		assert(c.node_function[i] == UINT32_MAX || c.node_function[i] < n.functions);
		/* A parent stands before its calls, so chains end. */
		assert(c.node_parent[i] == UINT32_MAX || c.node_parent[i] < i);
		assert(c.node_call_file[i] == UINT32_MAX || c.node_call_file[i] < n.files);
		assert(c.node_file[i] == UINT32_MAX || c.node_file[i] < n.files);
	}
	for (uint64_t i = 0; i < n.functions; i++)
		assert(memchr(c.function_text + c.function_name[i], 0, n.function_bytes - c.function_name[i]));
	for (uint64_t i = 0; i < n.files; i++)
		assert(memchr(c.file_text + c.file_name[i], 0, n.file_bytes - c.file_name[i]));
	free(c.range_start), free(c.range_node), free(c.range_file), free(c.range_line);
	free(c.node_function), free(c.node_file), free(c.node_parent), free(c.node_call_file), free(c.node_call_line);
	free(c.function_name), free(c.file_name), free(c.function_text), free(c.file_text);
	return n;
}

static struct dwarf_sizes read_once(const struct dwarf_section *sections, const struct dwarf_section *shared, int split,
                                    const uint64_t *wanted, uint64_t wanted_count)
{
	struct dwarf_index *index = tdprof_dwarf_open(sections, shared, 1, (uint64_t)1 << 47, 0);
	struct dwarf_sizes sizes = { 0 };
	struct dwarf_skeleton rows[4];
	uint64_t count;

	if (!index)
		return sizes;
	count = tdprof_dwarf_skeletons(index, rows, 4);
	for (uint64_t i = 0; split && i < count && i < 4; i++)
		tdprof_dwarf_add_split(index, rows[i].unit, sections);
	if (!tdprof_dwarf_build(index, wanted, wanted_count, 1))
		sizes = check_columns(index);
	tdprof_dwarf_close(index);
	return sizes;
}

/* Read the large sections from a file, of which `bytes` are left. */
static struct dwarf_sizes read_file(const struct dwarf_section *sections, int fd, uint64_t bytes,
                                    const uint64_t *wanted, uint64_t wanted_count)
{
	static const int large[] = { SECTION_INFO, SECTION_LINE, SECTION_STR };
	struct dwarf_section unread[SECTION_COUNT];
	struct dwarf_sizes sizes;
	uint64_t offset = 0;

	memcpy(unread, sections, sizeof(unread));
	for (int i = 0; i < 3; i++) {
		struct dwarf_section *section = &unread[large[i]];

		if (pwrite(fd, section->data, section->size, (off_t)offset) != (ssize_t)section->size)
			abort();
		section->unread = calloc(section->size + 1, 1);
		section->data = section->unread;
		section->offset = offset;
		section->fd = fd;
		offset += section->size;
	}
	if (ftruncate(fd, (off_t)(bytes < offset ? bytes : offset)))
		abort();
	sizes = read_once(unread, NULL, 0, wanted, wanted_count);
	for (int i = 0; i < 3; i++)
		free(unread[large[i]].unread);
	return sizes;
}

/* Input: the size of each section as three bytes, then the sections. Each is copied to memory of exactly its size,
 * so that reading one byte too far is seen. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static int fd = -1;
	struct dwarf_section sections[SECTION_COUNT];
	struct dwarf_sizes from_memory, from_file;
	const uint8_t *sizes = data;
	uint64_t wanted[] = { 0x1010, 0x1100, 0x1180, 0x401150 };

	if (size < 3 * SECTION_COUNT)
		return 0;
	data += 3 * SECTION_COUNT;
	size -= 3 * SECTION_COUNT;
	for (int i = 0; i < SECTION_COUNT; i++) {
		uint64_t want = sizes[3 * i] | sizes[3 * i + 1] << 8 | (uint64_t)sizes[3 * i + 2] << 16;
		uint8_t *copy;

		want = want < size ? want : size;
		copy = malloc(want);
		memcpy(copy, data, want);
		sections[i] = (struct dwarf_section){ copy, want };
		data += want;
		size -= want;
	}
	if (fd < 0)
		fd = memfd_create("sections", MFD_CLOEXEC);
	from_memory = read_once(sections, NULL, 0, NULL, 0);
	from_file = read_file(sections, fd, UINT64_MAX, NULL, 0);
	assert(!memcmp(&from_memory, &from_file, sizeof(from_memory)));
	read_once(sections, sections, 1, wanted, sizeof(wanted) / sizeof(*wanted));
	read_file(sections, fd, sizes[0] * 64u, wanted, sizeof(wanted) / sizeof(*wanted));
	for (int i = 0; i < SECTION_COUNT; i++)
		free((void *)sections[i].data);
	return 0;
}
