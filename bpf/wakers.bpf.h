/* SPDX-License-Identifier: GPL-2.0 */
/* Who ends the sleeps that have a sample: kept when a thread is woken, told with its sample. A part of sample.bpf.c. */

/* Of the call chains that a waker was found with: the thread that it woke will have it when it is back on a CPU. */
static __always_inline void keep_waker(struct walk *walk)
{
	struct waker *waker = &walk->waker.waker;
	const __u64 *name = (const __u64 *)walk->key.comm;
	__u64 hash = mix(mix(0x9e3779b97f4a7c15ULL, walk->key.user_stack), walk->key.kernel_stack);

	hash = mix(mix(mix(hash, (__u64)walk->key.pid << 32 | walk->key.tid), name[0]), name[1]);
	waker->identity = hash | 1;
	waker->user_stack = walk->key.user_stack;
	waker->kernel_stack = walk->key.kernel_stack;
	waker->pid = walk->key.pid;
	waker->tid = walk->key.tid;
	__builtin_memcpy(waker->comm, walk->key.comm, sizeof(waker->comm));
	if (last_wakers.update(&walk->woken, &walk->waker))
		count(COUNTER_WAKERS_NOT_KEPT);
}

/* Of a thread that is back on a CPU since a sleep: the struct waking of that, sent if it was not lately; 0: not known.
 */
static __always_inline __u64 take_waking(__u64 task, __u64 left_ns, __u64 kernel_stack)
{
	struct last_waker *last = last_wakers.lookup(&task);

	if (!last)
		return 0;
	struct waking waking = { .kernel_stack = kernel_stack, .waker = last->waker };
	__u32 is_of_this = last->left_ns == left_ns;

	last_wakers.delete(&task);
	if (!is_of_this)
		return 0;
	waking.identity = mix(waking.waker.identity, kernel_stack) | 1;
	__u32 slot = waking.identity & (STACK_SLOTS - 1);
	__u64 *sent = sent_stacks.lookup(&slot);

	if (!sent || *sent == in_segment(waking.identity))
		return sent ? waking.identity : 0;
	if (wakings.ringbuf_output(&waking, sizeof(waking), BPF_RB_NO_WAKEUP)) {
		count(COUNTER_WAKERS_NOT_KEPT);
		return 0;
	}
	*sent = in_segment(waking.identity);
	return waking.identity;
}
