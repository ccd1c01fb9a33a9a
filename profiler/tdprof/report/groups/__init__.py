"""Samples by process, thread, command, module, control group, language, second, phase or state."""
