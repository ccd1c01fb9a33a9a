"""The hotspots of a profile."""
