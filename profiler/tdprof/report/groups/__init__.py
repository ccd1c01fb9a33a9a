"""Samples by process, thread, command, module or control group."""
