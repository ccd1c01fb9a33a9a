"""Branch stacks."""
