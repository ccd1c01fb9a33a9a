"""Arm Statistical Profiling Extension: bytes to packets to records."""
