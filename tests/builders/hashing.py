"""How full an open-addressed table is where it is fullest."""

import numpy as np


def longest_run(is_taken: np.ndarray) -> int:
    """Neighbouring slots in use: as many a search may have to look at."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], is_taken, [False]]).astype(int)))
    return int((edges[1::2] - edges[::2]).max(initial=0))
