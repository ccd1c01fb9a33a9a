"""perf's records and perf.data into columns."""
