"""The values that flow between stages, and nothing else."""
