"""Arithmetic on a profile: its stacks as frames, sums by function and line, what to doubt, what changed."""
