"""What is known of each core: events, metrics, groups and methodology trees."""
