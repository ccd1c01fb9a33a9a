"""Raw bytes (perf records, BPF aggregates, SPE AUX data) into a capture's columns."""
