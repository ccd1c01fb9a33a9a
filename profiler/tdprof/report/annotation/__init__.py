"""One function beside its source and its instructions."""
