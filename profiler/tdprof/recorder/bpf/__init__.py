"""The BPF rung: its program compiled and kept, loaded, and its maps drained."""
