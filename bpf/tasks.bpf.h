/* SPDX-License-Identifier: GPL-2.0 */
/* Whose samples are taken, and whose they are: threads and control groups. A part of sample.bpf.c. */

/* Of control groups above each other. */
#define MOST_LEVELS 32

/* In thread_times.bpf.h. */
static __always_inline struct thread_times *begin_times(__u64 task, __u32 state, __u64 since_ns);

/* The thread as the recorder's pid namespace numbers it; not 0: that does not see it. */
static __always_inline int current_thread(__u32 *pid, __u32 *tid)
{
	if (SETTING(SETTING_PIDNS_INODE)) {
		struct bpf_pidns_info ids = {};

		if (bpf_get_ns_current_pid_tgid(SETTING(SETTING_PIDNS_DEVICE), SETTING(SETTING_PIDNS_INODE), &ids,
		                                sizeof(ids)))
			return 1;
		*pid = ids.tgid;
		*tid = ids.pid;
	} else {
		__u64 ids = bpf_get_current_pid_tgid();

		*pid = ids >> 32;
		*tid = (__u32)ids;
	}
	return 0;
}

/* How user space names a thread of a process. A number that is left over, of a thread that has that of its process's
 * first one since it executed a file, means nobody in another process. */
static __always_inline __u64 named_as(__u32 pid, __u32 from)
{
	return (__u64)pid << 32 | from;
}

/* Events of whole CPUs are taken of some processes and all that they start; of this thread? */
static __always_inline __u32 is_followed(void)
{
	__u64 task = bpf_get_current_task();
	__u32 *state = followed.lookup(&task);
	__u32 pid, tid;

	if (state)
		return *state;
	if (current_thread(&pid, &tid))
		return FOLLOWED_NOT;
	__u64 *name = named.lookup(&tid);

	return name && *name == named_as(pid, FOLLOW_NOW) ? FOLLOWED_ALIVE : FOLLOWED_NOT;
}

static __always_inline void follow(__u64 task, __u32 state)
{
	if (followed.update(&task, &state))
		count(COUNTER_THREADS_NOT_FOLLOWED);
}

/* A thread starts another, which has not run yet: also the kernel's own for a process, which sched_process_fork leaves
 * out. */
int follow_new(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];

	if (is_followed())
		follow(task, FOLLOWED_ALIVE);
	else
		followed.delete(&task); /* of who had its address before, if nobody was told that it is free */
	return 0;
}

/* A command begins: what executes a file has its name from then on, and keeps the kernel busy before it runs. */
int follow_exec(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid;

	if (current_thread(&pid, &tid))
		return 0;
	__u64 *name = named.lookup(&tid);

	if (name && *name == named_as(pid, FOLLOW_FROM_EXEC)) {
		follow(bpf_get_current_task(), FOLLOWED_ALIVE);
		named.delete(&tid);
		if (SETTING(SETTING_OFF_CPU_PERIOD))
			begin_times(bpf_get_current_task(), THREAD_RUNNING, bpf_ktime_get_ns());
	}
	return 0;
}

/*
 * A thread ends, and its number will be another's; what the kernel still does for it is its own. Its events are taken
 * off it next (Linux 6.16, perf_event_exit_task before exit_mm; earlier ones count exit_mm and take the tracepoint
 * after it).
 */
int follow_exit(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid;

	if (is_followed())
		follow(bpf_get_current_task(), FOLLOWED_ENDING);
	if (current_thread(&pid, &tid))
		return 0;
	__u64 *name = named.lookup(&tid);

	if (name && *name == named_as(pid, FOLLOW_NOW) && pid == tid)
		*name = named_as(pid, FOLLOW_SUCCESSOR);
	else
		named.delete(&tid);
	return 0;
}

/* A thread has executed a file; if it was not its process's first one, it has the number of that since. */
int follow_successor(struct bpf_raw_tracepoint_args *ctx)
{
	__u32 pid, tid, before = ctx->args[1];

	if (before == (__u32)bpf_get_current_pid_tgid() || current_thread(&pid, &tid))
		return 0;
	if (!SETTING(SETTING_PIDNS_INODE)) /* or it is not the number that user space knew */
		named.delete(&before);
	__u64 *name = named.lookup(&tid);

	if (name && *name == named_as(pid, FOLLOW_SUCCESSOR)) {
		follow(bpf_get_current_task(), FOLLOWED_ALIVE);
		named.delete(&tid);
	}
	return 0;
}

/* The address of a thread that has ended may become another's. */
int follow_no_more(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];

	followed.delete(&task);
	return 0;
}

static __always_inline __u64 kernel_word(__u64 address)
{
	__u64 word = 0;

	bpf_probe_read_kernel(&word, sizeof(word), (void *)address);
	return word;
}

/* Where the code of the current process's program begins; 0 before the kernel has loaded that, or without memory. */
static __always_inline __u64 code_start(const struct exec_places *places)
{
	return kernel_word(kernel_word(bpf_get_current_task() + places->task_mm) + places->mm_code);
}

static __always_inline int has_left_its_stack(void)
{
	__u32 zero = 0;
	const struct exec_places *places = exec_places.lookup(&zero);

	return places && places->mm_code && !code_start(places);
}

/* Of the thread's process; one that ends is none any more. */
static __always_inline __u32 living_threads(void)
{
	return kernel_word(kernel_word(bpf_get_current_task() + SETTING(SETTING_TASK_SIGNAL)) +
	                   SETTING(SETTING_SIGNAL_LIVE));
}

/* A thread's struct cgroup_subsys_state in the hierarchy that is asked for, and the id of the group that it is of. */
static __always_inline __u64 group_state(__u64 task)
{
	return kernel_word(kernel_word(task + SETTING(SETTING_TASK_CSS_SET)) + SETTING(SETTING_CSS_SET_STATE));
}

static __always_inline __u64 group_id(__u64 state)
{
	__u64 cgroup = kernel_word(state + SETTING(SETTING_CSS_CGROUP));

	return kernel_word(kernel_word(cgroup + SETTING(SETTING_CGROUP_KERNFS)) + SETTING(SETTING_KERNFS_ID));
}

/* Of sample_key. */
static __always_inline __u32 current_cgroup(void)
{
	__u64 id = 0;

	if (SETTING(SETTING_CGROUPS) == CGROUPS_V2)
		return bpf_get_current_cgroup_id();
	if (SETTING(SETTING_CGROUPS) == CGROUPS_V2_ELSE_V1) {
		id = bpf_get_current_cgroup_id();
		if (id != 1) /* the root of a hierarchy is its first file */
			return id;
	}
	if (SETTING(SETTING_CGROUPS) == CGROUPS_NONE)
		return 0;
	return group_id(group_state(bpf_get_current_task())) | CGROUP_OF_V1;
}

/* Whether a thread is in one of the chosen groups, or below one, as the kernel's structures have it. */
static __always_inline int is_task_in_chosen_cgroup(__u64 task)
{
	__u64 state = group_state(task);

	for (int level = 0; level < MOST_LEVELS; level++) {
		__u64 id = group_id(state);

		if (chosen_ids.lookup(&id))
			return 1;
		state = kernel_word(state + SETTING(SETTING_CSS_PARENT));
		if (!state)
			break;
	}
	return 0;
}

static __always_inline int is_in_chosen_cgroup(void)
{
	if (SETTING(SETTING_CGROUPS) == CGROUPS_V1)
		return is_task_in_chosen_cgroup(bpf_get_current_task());
	for (int number = 0; number < MOST_CGROUPS; number++) {
		long is_below = chosen_v2.check_current_task(number);

		if (is_below > 0)
			return 1;
		if (is_below < 0) /* no more are chosen */
			break;
	}
	return 0;
}

/* The running thread's name, and nothing behind it, where some kernels (seen: 6.1) leave what was there before. */
static __always_inline void own_name(char (*name)[16])
{
	__builtin_memset(*name, 0, sizeof(*name));
	bpf_get_current_comm(*name, sizeof(*name));
}

/* What tells the thread's samples apart from others'. */
static __always_inline int name_sample(struct sample_key *key)
{
	if (current_thread(&key->pid, &key->tid))
		return 1;
	key->cgroup = current_cgroup();
	own_name(&key->comm);
	return 0;
}
