"""CPython's frames, as the BPF programs found them: read, named, and put among the native ones."""
