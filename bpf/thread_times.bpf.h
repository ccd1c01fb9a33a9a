/* SPDX-License-Identifier: GPL-2.0 */
/* Where threads' time goes: programs at the scheduler's tracepoints, and samples of the time off a CPU. A part of
 * sample.bpf.c. */

/* Begin with a thread that is in a state since then. */
static __always_inline struct thread_times *begin_times(__u64 task, __u32 state, __u64 since_ns)
{
	struct thread_times thread = { .first_ns = since_ns, .since_ns = since_ns, .state = state };

	if (state != THREAD_RUNNING)
		thread.left_ns = since_ns;
	thread.point_ns = random_point();
	if (times.update(&task, &thread)) {
		count(COUNTER_THREADS_NOT_TIMED);
		return 0;
	}
	return times.lookup(&task);
}

static __always_inline int is_of_cgroups(void)
{
	__u32 which = ACTIVE_FOLLOW;
	__u32 *is_filtered = active.lookup(&which);

	return is_filtered && *is_filtered == FILTER_CGROUPS;
}

/* Whether the time of the running thread is recorded; not of a CPU that idles, which is no thread, nor of one that has
 * no number here. */
static __always_inline int is_timed(void)
{
	__u32 pid, tid, which = ACTIVE_FOLLOW;
	__u32 *is_filtered = active.lookup(&which);

	if (!is_filtered || !(__u32)bpf_get_current_pid_tgid() || current_thread(&pid, &tid))
		return 0;
	if (*is_filtered == FILTER_THREADS)
		return is_followed();
	return *is_filtered == FILTER_NONE || is_in_chosen_cgroup();
}

/* Of the running thread. Not 0: it cannot be named. */
static __always_inline int name_thread(struct thread_times *thread)
{
	own_name(&thread->comm);
	return thread->pid ? 0 : current_thread(&thread->pid, &thread->tid);
}

static __always_inline __u64 since(__u32 which)
{
	__u64 *since_ns = times_since.lookup(&which);

	return since_ns ? *since_ns : 0;
}

static __always_inline __u64 recorded_since(void)
{
	return since(SINCE_RECORDED);
}

/* Of a thread: its own stays, and those of its process. */
struct both_visits {
	struct visit *alone;
	struct visit *with_all;
	__u32 is_first; /* whether it is its process's first thread */
};

static __always_inline struct both_visits visits_of(__u64 task)
{
	__u64 ids = kernel_word(task + SETTING(SETTING_TASK_PID));
	__u64 tid = (__u32)ids, pid = MOVED_PROCESS | ids >> 32;
	struct both_visits both = { visits.lookup(&tid), visits.lookup(&pid), tid == ids >> 32 };

	return both;
}

/* Whichever is later. */
static __always_inline struct stay last_stay(const struct both_visits *both)
{
	const struct visit *alone = both->alone, *with_all = both->with_all;
	struct stay stay = {};

	if (alone)
		stay = alone->last;
	if (with_all && with_all->last.came_ns > stay.came_ns) {
		stay.came_ns = with_all->last.came_ns;
		stay.state = both->is_first ? with_all->last.state : THREAD_RUNNING;
	}
	if (with_all && with_all->last.left_ns > stay.left_ns)
		stay.left_ns = with_all->last.left_ns;
	return stay;
}

/* As user space has found the running thread when time began to be recorded, an enum thread_state; 0: it did not. */
static __always_inline __u32 *standing_since(__u64 task, __u64 since_ns)
{
	__u32 pid, tid;

	if (kernel_word(task + SETTING(SETTING_TASK_START)) > since_ns) /* its number was another's before */
		return 0;
	return current_thread(&pid, &tid) ? 0 : standing.lookup(&tid);
}

/*
 * Begin with the running thread, which has not been seen, or not since it came into the groups: with what it has done
 * since it is recorded.
 */
static __always_inline struct thread_times *begin_unseen(__u64 task, __u32 has_waited)
{
	__u32 state = has_waited ? THREAD_INTERRUPTIBLE : THREAD_RUNNING;
	__u64 since_ns = recorded_since(), start_ns = kernel_word(task + SETTING(SETTING_TASK_START));
	__u32 *stood = standing_since(task, since_ns);
	__u64 *woken_ns = has_waited ? early_wakes.lookup(&task) : 0;

	if (start_ns > since_ns) {
		since_ns = start_ns;
		if (has_waited)
			state = THREAD_RUNNABLE;
	} else if (has_waited && !stood && !woken_ns && !since(SINCE_ALL_STAND)) {
		state = THREAD_RUNNABLE; /* nobody has looked at it yet, and nobody has woken it */
	}
	if (stood && has_waited && !(woken_ns && *stood < THREAD_INTERRUPTIBLE))
		state = *stood;
	if (is_of_cgroups()) {
		struct both_visits both = visits_of(task);
		struct stay stay = last_stay(&both);
		/* The kernel has changed its group, and has not told of it yet: of one that has left, or that never
		 * stood. */
		__u32 is_coming = stay.left_ns > stay.came_ns ||
		                  (!stay.came_ns && !stood && start_ns < recorded_since() && since(SINCE_ALL_STAND));
		__u64 came_ns = is_coming ? bpf_ktime_get_ns() : stay.came_ns;

		if (came_ns > since_ns) {
			since_ns = came_ns;
			if (has_waited)
				state = is_coming ? THREAD_RUNNABLE : stay.state ? stay.state : THREAD_INTERRUPTIBLE;
		}
	}
	struct thread_times *thread = begin_times(task, state, since_ns);

	if (thread && woken_ns && *woken_ns > since_ns && state >= THREAD_INTERRUPTIBLE) {
		pass_time(thread, *woken_ns);
		thread->state = THREAD_RUNNABLE;
	}
	return thread;
}

/* Of a thread that has ended, or whose stay in the groups has. */
static __always_inline void tell_times(struct thread_times *thread)
{
	__u32 zero = 0;
	__u64 *run_time_ns = ended_run_time.lookup(&zero);

	if (run_time_ns)
		*run_time_ns += thread->spent_ns[THREAD_RUNNING];
	if (ended.ringbuf_output(thread, sizeof(*thread), BPF_RB_NO_WAKEUP))
		count(COUNTER_THREADS_NOT_TIMED);
}

/* Of a thread of which no more is recorded. */
static __always_inline void end_times(__u64 task)
{
	times.delete(&task);
	if (SETTING(SETTING_WAKERS))
		last_wakers.delete(&task);
}

/* Whether anybody came into another control group since; only of recordings of some. */
static __always_inline int is_move_since(__u64 since_ns)
{
	__u32 zero = 0;
	__u64 *last_ns = last_move.lookup(&zero);

	return last_ns && *last_ns && *last_ns >= since_ns;
}

/* Begin anew with a thread that has come into the groups since its last switch. */
static __always_inline void begin_stay(struct thread_times *thread, const struct stay *stay)
{
	thread->first_ns = stay->came_ns;
	thread->since_ns = stay->came_ns;
	thread->left_ns = stay->came_ns;
	for (__u32 state = 0; state < THREAD_STATES; state++) {
		thread->spent_ns[state] = 0;
		thread->due[state] = 0;
	}
	thread->waits = 0;
	if (thread->state != THREAD_RUNNING && stay->state)
		thread->state = stay->state & 3;
}

/* Tell of a stay that is over, as far as a thread's times have it. `is_in`: it was in the groups when these began. */
static __always_inline void tell_stay(struct thread_times *thread, const struct stay *stay, __u32 is_in)
{
	if (stay->left_ns <= thread->first_ns || (!is_in && stay->came_ns <= thread->first_ns))
		return;
	if (stay->came_ns > thread->since_ns)
		begin_stay(thread, stay);
	pass_time(thread, stay->left_ns);
	tell_times(thread);
	thread->first_ns = stay->left_ns;
}

/* Those before the last one, the oldest first. */
static __always_inline void tell_earlier_stays(struct thread_times *thread, const struct visit *visit, __u32 is_in,
                                               __u32 knows_state)
{
	if (visit->forgotten_ns > thread->first_ns) {
		count(COUNTER_THREADS_NOT_TIMED);
		if (is_in && thread->since_ns > thread->first_ns)
			tell_times(thread); /* what is before its last switch */
		thread->first_ns = visit->forgotten_ns;
	}
#pragma clang loop unroll(disable)
	for (__u32 before = MOST_STAYS; before > 0; before--) {
		struct stay stay = visit->earlier[before - 1];

		if (!knows_state)
			stay.state = THREAD_RUNNING;
		tell_stay(thread, &stay, is_in);
	}
}

/*
 * Tell of the stays that are over of the running thread, the last of them until then. Not 0: it is back since, and
 * timed from there on.
 */
static __always_inline int leave_groups(__u64 task, struct thread_times *thread, __u64 left_ns, __u32 is_in)
{
	__u64 tid = (__u32)kernel_word(task + SETTING(SETTING_TASK_PID));
	struct both_visits both = visits_of(task);
	struct stay last = last_stay(&both);
	int is_back = last.came_ns >= left_ns;

	if (both.alone) {
		struct stay own = both.alone->last;

		tell_earlier_stays(thread, both.alone, is_in, 1);
		/* Its process has come since, of which its first thread's stays are noted. */
		if (own.came_ns < own.left_ns && own.left_ns <= last.came_ns)
			tell_stay(thread, &own, is_in);
	}
	if (both.with_all)
		tell_earlier_stays(thread, both.with_all, is_in, both.is_first);
	if (is_back) {
		begin_stay(thread, &last);
	} else {
		last.left_ns = left_ns;
		tell_stay(thread, &last, is_in);
		end_times(task);
	}
	told_visits.update(&tid, &left_ns);
	return is_back;
}

/* Tell of the stays that are over of the running thread, which has not been seen; its times, if it is back since. */
static __always_inline struct thread_times *tell_stays(__u64 task, __u32 has_waited)
{
	if (!is_move_since(1) || !is_of_cgroups() || !(__u32)bpf_get_current_pid_tgid())
		return 0;
	struct both_visits both = visits_of(task);
	struct stay last = last_stay(&both);
	__u64 tid = (__u32)kernel_word(task + SETTING(SETTING_TASK_PID)), *told_ns = told_visits.lookup(&tid);
	__u32 *stood = told_ns ? 0 : standing_since(task, recorded_since());
	__u64 start_ns = kernel_word(task + SETTING(SETTING_TASK_START));
	__u64 since_ns = told_ns ? *told_ns : stood ? recorded_since() : start_ns;

	/* Nothing is over since; it may have been told as it left, a moment before the kernel did. */
	if (last.left_ns <= since_ns || (last.came_ns < last.left_ns && last.came_ns < since_ns && !stood))
		return 0;
	struct thread_times *thread =
		begin_times(task, has_waited ? (stood ? *stood : THREAD_INTERRUPTIBLE) : THREAD_RUNNING, since_ns);

	if (!thread)
		return 0;
	if (!name_thread(thread))
		return leave_groups(task, thread, last.left_ns, stood != 0) ? thread : 0;
	times.delete(&task);
	return 0;
}

/* Whether the running thread is in the groups no more; of stays that are over is told. */
static __always_inline int has_left_groups(__u64 task, struct thread_times *thread, __u64 since_ns)
{
	if ((thread->waits && !is_move_since(since_ns)) || !is_of_cgroups())
		return 0;
	struct both_visits both = visits_of(task);
	__u64 left_ns = last_stay(&both).left_ns;

	if (left_ns < thread->first_ns) {
		if (is_in_chosen_cgroup())
			return 0;
		/* It is just leaving: the kernel has not told of it yet. That may also have put a new thread into
		 * another group than its parent's, which is no move. */
		left_ns = thread->waits ? bpf_ktime_get_ns() : 0;
	}
	if (left_ns && (thread->pid || !name_thread(thread)))
		return !leave_groups(task, thread, left_ns, 1);
	times.delete(&task);
	return 1;
}

/* Whether a thread's time is recorded, or user space has found it in the groups. */
static __always_inline int is_known(__u64 task, __u32 tid)
{
	return times.lookup(&task) || (!SETTING(SETTING_PIDNS_INODE) && standing.lookup(&tid));
}

/* A process, or a thread alone, is moved to another control group. */
int move_thread(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[2], ids = kernel_word(task + SETTING(SETTING_TASK_PID)), now_ns = bpf_ktime_get_ns();
	__u64 number = ctx->args[3] & 1 ? MOVED_PROCESS | ids >> 32 : (__u32)ids;
	__u32 zero = 0;

	if (!recorded_since())
		return 0;
	struct both_visits both = visits_of(task);
	struct stay last = last_stay(&both);
	int was_in = last.came_ns > last.left_ns, is_in = is_task_in_chosen_cgroup(task);

	/* From one of them into another, or in another hierarchy; also of one that has been in them ever since. */
	if (last.came_ns != last.left_ns ? was_in == is_in : is_in && is_known(task, ids))
		return 0;
	struct visit visit = {};

	if (both.with_all && (!both.alone || both.alone->last.came_ns < both.with_all->last.came_ns))
		visit = *both.with_all;
	else if (both.alone)
		visit = *both.alone;
	if (is_in) {
		if (last.left_ns) {
			if (visit.earlier[MOST_STAYS - 1].left_ns)
				visit.forgotten_ns = visit.earlier[MOST_STAYS - 1].left_ns;
			for (__u32 before = MOST_STAYS - 1; before > 0; before--)
				visit.earlier[before] = visit.earlier[before - 1];
			visit.earlier[0] = last;
		}
		last.came_ns = now_ns;
		last.state = waiting_state(kernel_word(task + SETTING(SETTING_TASK_STATE)), 0);
	} else {
		last.left_ns = now_ns;
	}
	visit.last = last;
	visits.update(&number, &visit);
	last_move.update(&zero, &now_ns);
	return 0;
}

/* The `__state` of the thread that leaves its CPU; a helper takes several times as long to read it. */
static __always_inline __u32 state_at_switch(struct bpf_raw_tracepoint_args *ctx)
{
	/* As the context has it: what a helper was given a place of is no address any more (seen in Linux 6.1). */
	__u64 place = ctx->args[1] + SETTING(SETTING_TASK_STATE);
	__u32 state;

	if (!SETTING(SETTING_TYPED_SWITCH))
		return kernel_word(place);
	asm volatile("%0 = *(u32 *)(%1 + 0)" : "=r"(state) : "r"(place));
	return state;
}

/* Likewise how long a thread has ever waited for a CPU, without the wait that this switch ends. */
static __always_inline __u64 queued_at_switch(__u64 task)
{
	__u64 place = task + SETTING(SETTING_TASK_QUEUED), queued_ns;

	if (!SETTING(SETTING_TASK_QUEUED))
		return 0;
	if (!SETTING(SETTING_TYPED_SWITCH))
		return kernel_word(place);
	asm volatile("%0 = *(u64 *)(%1 + 0)" : "=r"(queued_ns) : "r"(place));
	return queued_ns;
}

/* The same of the running thread, with that wait. */
static __always_inline __u64 queued_after_switch(__u64 task)
{
	return SETTING(SETTING_TASK_QUEUED) ? kernel_word(task + SETTING(SETTING_TASK_QUEUED)) : 0;
}

/* Of the running thread, which has not been seen. */
static __always_inline struct thread_times *begin_if_timed(__u64 task, __u32 has_waited)
{
	struct thread_times *thread = tell_stays(task, has_waited);

	return thread ? thread : is_timed() ? begin_unseen(task, has_waited) : 0;
}

/* The running thread leaves its CPU. */
static __always_inline void leave(struct bpf_raw_tracepoint_args *ctx, __u64 now_ns)
{
	__u64 task = ctx->args[1];

	if (!(__u32)bpf_get_current_pid_tgid()) /* a CPU that idles, which is no thread */
		return;
	struct thread_times *thread = times.lookup(&task);

	if (thread && has_left_groups(task, thread, thread->since_ns))
		thread = 0;
	/* One that has not been seen has run ever since. */
	if (!thread)
		thread = begin_if_timed(task, 0);
	if (!thread)
		return;
	__u32 kernel_state = state_at_switch(ctx);

	pass_time(thread, now_ns);
	thread->left_ns = now_ns;
	thread->queued_ns = queued_at_switch(task);
	/* It was new, and came to its CPU by another way than back from where it left one. */
	for (__u32 state = THREAD_RUNNABLE; state < THREAD_STATES; state++) {
		if (!thread->due[state])
			continue;
		count_all(COUNTER_WAITS_NOT_SAMPLED, thread->due[state]);
		thread->due[state] = 0;
	}
	thread->waits += 1;
	thread->state = waiting_state(kernel_state, ctx->args[0] & 1);
	if ((!thread->pid || kernel_state & TASK_DEAD) && name_thread(thread)) {
		times.delete(&task); /* nobody here knows it by any number */
		return;
	}
	if (kernel_state & TASK_DEAD) {
		thread->state = THREAD_RUNNING;
		tell_times(thread);
		end_times(task);
	}
}

/* The running thread has another number, that of its process's first one: it counts as another thread. */
static __always_inline void renumber_thread(struct thread_times *thread, __u32 tid)
{
	struct stay stay = { .came_ns = bpf_ktime_get_ns() };

	pass_time(thread, stay.came_ns);
	tell_times(thread);
	begin_stay(thread, &stay);
	thread->tid = tid;
}

/* A thread is to have another name; also of a program that it executes, under the number that it has then. */
int rename_thread(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];
	struct thread_times *thread = times.lookup(&task);
	__u32 pid, tid;

	if (!thread || !recorded_since())
		return 0;
	if (task == bpf_get_current_task() && thread->pid && !current_thread(&pid, &tid) && tid != thread->tid)
		renumber_thread(thread, tid);
	__builtin_memset(thread->comm, 0, sizeof(thread->comm));
	bpf_probe_read_kernel_str(thread->comm, sizeof(thread->comm), (void *)ctx->args[1]);
	return 0;
}

/* A thread takes the CPU; not 0: that is all. */
static __always_inline __u32 take_cpu(struct thread_times *thread, __u64 now_ns)
{
	pass_time(thread, now_ns);
	thread->state = THREAD_RUNNING;
	return !thread->due[THREAD_RUNNABLE] && !thread->due[THREAD_INTERRUPTIBLE] &&
	       !thread->due[THREAD_UNINTERRUPTIBLE];
}

/* At the tracepoint sched_switch: whether the thread is preempted, itself, and the next one. */
int switch_threads(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 now_ns = bpf_ktime_get_ns();
	__u64 next = ctx->args[2];
	__u32 zero = 0;
	struct last_switch *last = last_switches.lookup(&zero);

	if (!last || !recorded_since())
		return 0;
	leave(ctx, now_ns);
	struct thread_times *thread = times.lookup(&next);

	/* What groups a thread is in is asked in itself, and when it woke that nobody was seen to wake. */
	last->is_settled = thread && thread->state < THREAD_INTERRUPTIBLE && !is_move_since(thread->left_ns) &&
	                   take_cpu(thread, now_ns);
	last->task = next;
	last->at_ns = now_ns;
	last->queued_ns = queued_at_switch(next);
	return 0;
}

/* Add up the sleep of a thread that is woken. 0: it did not sleep, or that is recorded no more. */
static __always_inline int pass_sleep(struct thread_times *thread)
{
	/* Where it may have left its groups meanwhile the rest of the wait counts alike. */
	if (thread->state < THREAD_INTERRUPTIBLE || is_move_since(thread->left_ns))
		return 0;
	__u64 now_ns = bpf_ktime_get_ns(); /* before it is asked whether that is still recorded */

	if (!recorded_since())
		return 0;
	pass_time(thread, now_ns);
	return 1;
}

/* A thread that slept has what it waited for, and waits for a CPU. */
int wake_thread(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];
	struct thread_times *thread = times.lookup(&task);

	if (thread) {
		if (pass_sleep(thread))
			thread->state = THREAD_RUNNABLE;
	} else if (recorded_since() && !since(SINCE_ALL_STAND)) {
		__u64 now_ns = bpf_ktime_get_ns();

		early_wakes.update(&task, &now_ns);
	}
	return 0;
}

/* The running thread has started another, which waits for its first CPU. */
int start_thread(struct bpf_raw_tracepoint_args *ctx)
{
	__u64 task = ctx->args[0];
	__u32 which = ACTIVE_FOLLOW;
	__u32 *is_filtered = active.lookup(&which);

	if (!is_filtered || !recorded_since())
		return 0;
	if (*is_filtered == FILTER_THREADS ? !followed.lookup(&task) : !is_timed())
		return 0;
	struct thread_times *thread = begin_times(task, THREAD_RUNNABLE, bpf_ktime_get_ns());

	if (!thread)
		return 0;
	own_name(&thread->comm); /* which a new one has, too */
	if (!SETTING(SETTING_PIDNS_INODE)) {
		__u64 ids = kernel_word(task + SETTING(SETTING_TASK_PID));

		thread->tid = ids;
		thread->pid = ids >> 32;
	}
	return 0;
}

/*
 * After a switch, in the thread that has come back to a CPU: its user stack is as it was when it left, and its
 * kernel's shows what it waited for. Some kernels run no program at the switch from some threads.
 */
int end_wait(struct bpf_perf_event_data *ctx)
{
	__u64 task = bpf_get_current_task();
	__u32 zero = 0;
	struct last_switch *last = last_switches.lookup(&zero);

	/* A thread that asks for the scheduler, and keeps its CPU, has not waited. */
	if (SETTING(SETTING_TELLS_SWITCH) && !(((struct bpf_raw_tracepoint_args *)ctx)->args[0] & 1))
		return 0;
	/* So it is after most switches. */
	if (!last || (last->task == task && last->is_settled))
		return 0;
	struct walk *walk = walks.lookup(&zero);
	__u64 queued_ns = queued_after_switch(task), before_ns = queued_ns, now_ns = bpf_ktime_get_ns();

	if (!walk || !recorded_since())
		return 0;
	struct thread_times *thread = times.lookup(&task);

	if (last->task == task) {
		before_ns = last->queued_ns;
		now_ns = last->at_ns;
	}
	last->task = task;
	last->is_settled = 1;
	if (thread && has_left_groups(task, thread, thread->left_ns))
		thread = 0;
	if (!thread) {
		thread = begin_if_timed(task, 1);
		if (!thread)
			return 0;
		thread->queued_ns = before_ns;
	}
	if (thread->state != THREAD_RUNNING) {
		pass_unseen_sleep(thread, queued_ns, now_ns);
		take_cpu(thread, now_ns);
	}
	__u32 samples = 0;

	for (__u32 state = THREAD_RUNNABLE; state < THREAD_STATES; state++) {
		walk->due[state] = thread->due[state];
		samples += thread->due[state];
		thread->due[state] = 0;
	}
	if (!samples)
		return 0;
	count_all(COUNTER_SAMPLES, samples);
	if (name_thread(thread) || name_sample(&walk->key)) {
		count_all(COUNTER_SAMPLES_OUTSIDE_NAMESPACE, samples);
		return 0;
	}
	walk->key.kernel_stack = take_kernel_stack(ctx, &walk->stack);
	if (SETTING(SETTING_WAKERS))
		walk->waking = take_waking(task, thread->left_ns, walk->key.kernel_stack);
	return take_user_stack(ctx, walk);
}

/*
 * At the tracepoint sched_waking, in whoever wakes a thread: its call chains, if a sample is due of the sleep that this
 * ends. sched_wakeup comes later, and mostly on the CPU of the woken.
 */
int take_waker(struct bpf_perf_event_data *ctx)
{
	__u64 task = ((struct bpf_raw_tracepoint_args *)ctx)->args[0];
	struct thread_times *thread = times.lookup(&task);
	__u32 zero = 0;

	if (!thread || !pass_sleep(thread))
		return 0;
	if (!thread->due[THREAD_INTERRUPTIBLE] && !thread->due[THREAD_UNINTERRUPTIBLE])
		return 0;
	struct walk *walk = walks.lookup(&zero);

	if (!walk)
		return 0;
	walk->woken = task;
	walk->waker.left_ns = thread->left_ns;
	if (name_sample(&walk->key)) {
		walk->key.pid = 0;
		walk->key.tid = 0;
		own_name(&walk->key.comm);
	}
	walk->key.kernel_stack = take_kernel_stack(ctx, &walk->stack);
	/* Of others nobody knows the mappings. */
	if (is_timed())
		return take_user_stack(ctx, walk);
	walk->key.user_stack = 0;
	keep_waker(walk);
	return 0;
}
