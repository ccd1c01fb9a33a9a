"""Samples by process, thread, command or module."""
