/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
#ifndef TDPROF_BPF_PERF_EVENT_H
#define TDPROF_BPF_PERF_EVENT_H

#if defined(__x86_64__)
typedef struct pt_regs bpf_user_pt_regs_t;
#elif defined(__aarch64__)
typedef struct user_pt_regs bpf_user_pt_regs_t;
#endif

/* The context of a perf event program (user API, include/uapi/linux/bpf_perf_event.h). */
struct bpf_perf_event_data {
	bpf_user_pt_regs_t regs;
	__u64 sample_period;
	__u64 addr;
};

#endif
