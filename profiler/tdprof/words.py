"""Lists in sentences."""

from collections.abc import Sequence


def few(names: Sequence[str], most: int = 6) -> str:
    """The names joined by commas; of more than fit one line only the first, and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"
