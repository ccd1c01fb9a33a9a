"""What a store of many hosts' captures tells."""
