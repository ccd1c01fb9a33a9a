"""What `tdprof stat` counted."""
