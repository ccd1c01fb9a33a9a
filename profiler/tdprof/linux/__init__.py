"""What tdprof needs of Linux below all stages: perf's numbers, ELF, and files that only their owner can write."""
