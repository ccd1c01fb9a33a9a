"""Who calls whom."""
