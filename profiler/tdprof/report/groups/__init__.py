"""Samples by process, thread, command, module, control group, language or second."""
