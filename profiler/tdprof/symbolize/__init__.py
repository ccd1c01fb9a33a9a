"""Build-id and file offset to frames: kernel, ELF, DWARF, run-time code."""
