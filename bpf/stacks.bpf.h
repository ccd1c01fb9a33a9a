/* SPDX-License-Identifier: GPL-2.0 */
/* Call chains: as the kernel walks them, sent to user space once, and copies of stacks. A part of sample.bpf.c. */

static __always_inline void count_all(__u32 which, __u64 number)
{
	__u64 *value = counters.lookup(&which);

	if (value)
		*value += number;
}

static __always_inline void count(__u32 which)
{
	count_all(which, 1);
}

/* What a slot of sent_stacks or sent_codes holds of a hash: each segment of a recording is sent what it needs anew. */
static __always_inline __u64 in_segment(__u64 hash)
{
	__u32 which = ACTIVE_SEGMENT;
	__u32 *segment = active.lookup(&which);

	return segment ? hash ^ (__u64)*segment << 32 : hash;
}

/*
 * Multiply and fold each word; 64 bits make an accidental match less likely than a memory error. `most`: there are no
 * more, for the verifier, which goes through the loop so often.
 */
static __always_inline __u64 hash_stack(const struct stack_record *stack, __u32 most)
{
	const __u64 *header = (const __u64 *)stack;
	__u64 hash = mix(mix(0x9e3779b97f4a7c15ULL, header[1]), header[2]);

	for (__u32 i = 0; i < most; i++) {
		if (i >= stack->depth)
			break;
		hash = mix(hash, stack->address[i]);
	}
	return hash ? hash : 1;
}

/* The hash of a call chain and, unless 0, of the interpreter's frames beside it. */
static __always_inline __u64 identity_of(const struct stack_record *stack, __u64 interpreted)
{
	__u64 hash = hash_stack(stack, MAX_STACK_DEPTH);

	return interpreted ? mix(hash, interpreted) | 1 : hash;
}

/* Returns `hash`, which is the call chain's, and sends that if it was not sent lately. */
static __always_inline __u64 send_stack(struct stack_record *stack, __u64 hash)
{
	__u32 slot = hash & (STACK_SLOTS - 1);
	__u64 *sent = sent_stacks.lookup(&slot);

	if (!sent || *sent == in_segment(hash))
		return hash;
	stack->hash = hash;
	__u64 size = sizeof(*stack) - sizeof(stack->address) + stack->depth * sizeof(stack->address[0]);

	/*
	 * For the verifier, which does not know the bound on `depth`. The compiler must not see where `size` comes
	 * from: clang 19 and later then check one register and pass another.
	 */
	asm volatile("" : "+r"(size));
	if (size > sizeof(*stack))
		return hash;
	/* No wake-up: user space comes by itself, and waking it from an NMI costs the sampled program. */
	if (stacks.ringbuf_output(stack, size, BPF_RB_NO_WAKEUP) == 0) {
		*sent = in_segment(hash);
		count(COUNTER_STACKS_SENT);
	} else {
		count(COUNTER_STACKS_NOT_SENT);
	}
	return hash;
}

static __always_inline void begin_stack(struct stack_record *stack, __u32 is_kernel)
{
	stack->depth = 0;
	stack->is_kernel = is_kernel;
	stack->end = 0;
	stack->guessed_from = 0;
	stack->by_table = 0;
	stack->by_fp = 0;
	stack->by_lr = 0;
}

/* Where a thread waits, or wakes another, every call chain begins alike; returns how many addresses that are. */
static __always_inline __u32 scheduler_depth(struct bpf_perf_event_data *ctx, struct stack_record *stack)
{
	long bytes = bpf_get_stack(ctx, stack->address, MOST_SCHEDULER_DEPTH * sizeof(__u64), 0);

	return SETTING(SETTING_SCHEDULE_BYTES) ? scheduler_addresses(stack->address, bytes) : 0;
}

/*
 * Returns the hash of the current call chain as the kernel walks it, 0 if there is none. `flags`: of bpf_get_stack();
 * `end`: of a user stack, 0 of the kernel's own.
 */
static __always_inline __u64 take_stack(struct bpf_perf_event_data *ctx, struct stack_record *stack, __u64 flags,
                                        __u32 end)
{
	__u32 most = SETTING(SETTING_LEAF_ONLY) ? 1 : MAX_KERNEL_WALK_DEPTH;
	__u32 is_kernel = !(flags & BPF_F_USER_STACK);
	long bytes = bpf_get_stack(ctx, stack->address, most * sizeof(__u64), flags);

	if (bytes < 0) {
		count(is_kernel ? COUNTER_KERNEL_STACKS_UNREADABLE : COUNTER_USER_STACKS_UNREADABLE);
		return 0;
	}
	if (bytes == 0)
		return 0;
	begin_stack(stack, is_kernel);
	stack->depth = (__u32)bytes / sizeof(__u64);
	stack->end = end;
	if (end == UNWIND_END_NO_TABLE && stack->depth > 1)
		stack->guessed_from = 1; /* the code may keep no frame pointers */
	/* A walk along frame pointers that has run into zeros is long, but not cut. */
	if (most > 1 && stack->depth >= MAX_KERNEL_WALK_DEPTH && stack->address[MAX_KERNEL_WALK_DEPTH - 1])
		count(COUNTER_STACKS_TRUNCATED);
	return send_stack(stack, hash_stack(stack, MAX_KERNEL_WALK_DEPTH));
}

/* The same of the kernel's own call chain. */
static __always_inline __u64 take_kernel_stack(struct bpf_perf_event_data *ctx, struct stack_record *stack)
{
	return take_stack(ctx, stack, SETTING(SETTING_SAMPLED_AT) == AT_OVERFLOW ? 0 : scheduler_depth(ctx, stack), 0);
}

/* Flags for one more copy. User space comes by itself, but the ring may be full before it does: copies are large. */
static __always_inline __u64 copies_wakeup(const struct walk *walk)
{
	return walk->unannounced < SETTING(SETTING_COPIES_WAKEUP) ? BPF_RB_NO_WAKEUP : BPF_RB_FORCE_WAKEUP;
}

/* The stack's memory with what there is of the copy; whether there was room. */
static __always_inline int send_copy(struct walk *walk, struct stack_copy *copy)
{
	copy_stack(copy, walk->state.sp);
	__u64 size = sizeof(*copy) - sizeof(copy->stack) + copy->stack_bytes;

	asm volatile("" : "+r"(size)); /* as in send_stack() */
	__u64 wakeup = copies_wakeup(walk);

	if (size > sizeof(*copy) || copies.ringbuf_output(copy, size, wakeup))
		return 0;
	walk->unannounced = wakeup == BPF_RB_NO_WAKEUP ? walk->unannounced + size : 0;
	count(COUNTER_STACKS_COPIED);
	return 1;
}

/* As a copy of which no memory was read: it has the time of its leaf. */
static __always_inline int send_leaf(struct stack_copy *copy)
{
	copy->pages = PAGES_NOT_READ;
	copy->stack_bytes = 0;
	return !leaves.ringbuf_output(copy, sizeof(*copy) - sizeof(copy->stack), BPF_RB_NO_WAKEUP);
}
