"""Two captures beside each other."""
