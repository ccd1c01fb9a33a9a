"""Aligned columns of plain text, which read the same on a terminal and in a pipe."""

from collections.abc import Sequence


def format_columns(rows: Sequence[Sequence[str]], *, right: Sequence[int] = (), indent: str = "") -> list[str]:
    """Lines in which every column but the last is as wide as its widest cell.

    Args:
        right: the columns to align to the right, from 0.
    """
    if not rows:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [
            cell.rjust(width) if column in right else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append((indent + "  ".join(cells)).rstrip())
    return lines
