# SPDX-License-Identifier: Apache-2.0
"""Holds measured ratios against those that are wanted; a benchmark fails if one is missed by more than noise."""

import statistics
import sys
from collections.abc import Sequence


class Goals:
    """The goals of one run of a benchmark."""

    def __init__(self) -> None:
        self._missed = 0

    def hold(
        self, name: str, over: Sequence[float], under: Sequence[float], *, least: float = 0, most: float = float("inf")
    ) -> None:
        """Say whether a ratio is as wanted. It is missed if even the round that is kindest to it misses it.

        Args:
            name: what is compared.
            over, under: of each round, in which both were measured.
            least, most: what is wanted of ``over / under``.
        """
        ratios = sorted(each / other for each, other in zip(over, under, strict=True))
        middle = statistics.median(ratios)
        wanted = f"at least {least}" if least else f"at most {most}"
        if least <= middle <= most:
            word = "reached"
        elif ratios[0] <= most and ratios[-1] >= least:
            word = "not reached, within what rounds differ by"
        else:
            word, self._missed = "MISSED", self._missed + 1
        print(f"goal: {name:46} {middle:6.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f}), {wanted}: {word}")

    def end(self) -> None:
        """End the program.

        Raises:
            SystemExit: with status 1 if a goal was missed.
        """
        if self._missed:
            sys.exit(f"{self._missed} of the goals missed by more than noise")
