"""What tdprof needs of Linux below all stages: files that only their owner can have written."""
