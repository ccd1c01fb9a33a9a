"""Samples by control group."""
