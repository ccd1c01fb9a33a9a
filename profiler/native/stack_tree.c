/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks merged into a tree of calls, its order, and sums along it; no depth costs more than its frames. */
#include "stacks.h"

#include "hash.h"

static uint64_t home(const struct call_merge *m, uint64_t parent, uint32_t function)
{
	return hash_end(hash_pair(m->seed, parent, function, m->seed));
}

/* The node of a function that `parent` calls; a new one behind all others where there is none. */
static uint64_t call(struct call_merge *m, uint64_t parent, int32_t function)
{
	const uint64_t hash = home(m, parent, (uint32_t)function);
	uint64_t slot = hash & m->slot_mask;
	for (uint64_t entry; (entry = m->slots[slot]) != 0; slot = (slot + 1) & m->slot_mask) {
		const uint64_t node = (uint32_t)entry;
		if (entry >> 32 == hash && (uint64_t)m->parent[node] == parent && m->node_function[node] == function)
			return node;
	}
	const uint64_t node = m->nodes++;
	m->parent[node] = (int64_t)parent;
	m->node_function[node] = function;
	m->slots[slot] = hash << 32 | node;
	return node;
}

/* Merge stack[first ..] from their roots on; nodes are numbered as they appear, 0 is the root and there already.
 * Returns the first stack that there was not enough room for, or `stacks`. */
EXPORT uint64_t tdprof_merge_calls(struct call_merge *m, uint64_t first)
{
	for (uint64_t i = first; i < m->stacks; i++) {
		const uint64_t frames = (uint64_t)(m->start[i + 1] - m->start[i]);
		if (m->capacity - m->nodes < frames)
			return i;
		uint64_t node = 0;
		for (int64_t at = m->start[i + 1]; at > m->start[i]; at--)
			node = call(m, node, m->function[at - 1]);
		m->node_of_stack[i] = (int64_t)node;
	}
	return m->stacks;
}

/* Fill the zeroed slots with all nodes. */
EXPORT void tdprof_rehash_calls(struct call_merge *m)
{
	for (uint64_t node = 1; node < m->nodes; node++) {
		const uint64_t hash = home(m, (uint64_t)m->parent[node], (uint32_t)m->node_function[node]);
		uint64_t slot = hash & m->slot_mask;
		while (m->slots[slot] != 0)
			slot = (slot + 1) & m->slot_mask;
		m->slots[slot] = hash << 32 | node;
	}
}

/* Level by level, callees of one caller together.
 * callee: [nodes - 1] nodes by caller, those of node i are callee[first[i] .. first[i + 1]].
 * node, parent: [nodes] filled with what stands in each place, and with the place of its caller. */
EXPORT void tdprof_order_calls(const int64_t *callee, const int64_t *first, uint64_t nodes, int64_t *node,
                               int64_t *parent)
{
	uint64_t end = 1;
	node[0] = 0;
	parent[0] = -1;
	for (uint64_t place = 0; place < end && end <= nodes; place++)
		for (int64_t at = first[node[place]]; at < first[node[place] + 1]; at++) {
			parent[end] = (int64_t)place;
			node[end++] = callee[at];
		}
}

/* Add to each node what its callees have; parents stand before their callees. */
EXPORT void tdprof_add_callees(const int64_t *parent, uint64_t nodes, int64_t *value)
{
	for (uint64_t i = nodes; i-- > 1;)
		value[parent[i]] = (int64_t)((uint64_t)value[parent[i]] + (uint64_t)value[i]);
}

/* Add to each node what its caller has then, and `own`. */
EXPORT void tdprof_add_caller(const int64_t *parent, uint64_t nodes, int64_t own, int64_t *value)
{
	for (uint64_t i = 1; i < nodes; i++)
		value[i] = (int64_t)((uint64_t)value[i] + (uint64_t)value[parent[i]] + (uint64_t)own);
}
