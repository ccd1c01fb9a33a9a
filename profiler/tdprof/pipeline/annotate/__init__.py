"""A function of a capture beside its source and its instructions: finds both, and adds the samples up."""
