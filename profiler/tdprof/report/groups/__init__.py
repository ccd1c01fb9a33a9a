"""Samples by process, thread, command, module, control group or language."""
