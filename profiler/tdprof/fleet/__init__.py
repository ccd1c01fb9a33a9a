"""Many captures of many hosts: a store of roll-ups, an engine that makes them, and what they tell of a fleet."""
