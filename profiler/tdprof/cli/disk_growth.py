"""How fast that grows which is being written to the disk."""

from collections import deque

_LOOKS = 60


class DiskGrowth:
    """From one look to the next, of which there is one about each second."""

    def __init__(self) -> None:
        self._seen = 0
        self._grown = deque([0], _LOOKS)

    def begin(self, taken_bytes: int) -> None:
        """Something else is written from now on, which takes so much already."""
        self._seen = taken_bytes

    def saw(self, taken_bytes: int) -> None:
        """It takes so much now."""
        self._grown.append(max(taken_bytes - self._seen, 0))
        self._seen = taken_bytes

    @property
    def most_bytes(self) -> int:
        """That came between two of the last sixty looks."""
        return max(self._grown)
