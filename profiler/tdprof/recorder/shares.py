"""What the files of several users may take together, so that no user can use up what others need."""

import os
from collections import Counter
from dataclasses import field

from tdprof.values import dataclass


@dataclass(slots=True)
class Shares:
    """Whoever is neither root nor our user takes at most as much as he leaves to all others.

    Attributes:
        left: of what there was at first, in bytes or files.
    """

    left: int
    _taken: Counter[int] = field(default_factory=Counter)

    def left_for(self, uid: int) -> int:
        """What files of this user may still take."""
        return self.left if uid in (0, os.geteuid()) else max(self.left - self._taken[uid], 0) // 2

    def take(self, uid: int, amount: int = 1) -> None:
        """Count what a user's file takes; it may be more than was left for him."""
        self.left -= amount
        self._taken[uid] += amount

    def give_back(self, uid: int, amount: int = 1) -> None:
        """Of what he took."""
        self.take(uid, -amount)
