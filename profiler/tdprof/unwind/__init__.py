"""Unwind tables: what leads from each address of a program to its caller; built from the file, cached, and walked."""
