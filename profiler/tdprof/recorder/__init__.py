"""Recording: perf events, BPF, counting, the workload and the ladder of fallbacks."""
