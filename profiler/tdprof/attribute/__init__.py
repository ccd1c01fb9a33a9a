"""Samples to process, mapping and file offset."""
