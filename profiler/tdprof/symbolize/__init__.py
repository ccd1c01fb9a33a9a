"""Build-id and file offset to function, inlined frames, file and line."""
