"""Metrics of the program, of functions and lines: a Topdown recording, or SPE records beside samples."""
