# SPDX-License-Identifier: Apache-2.0
"""Records a command as `tdprof record --topdown` would, with seven software events a group standing in for a PMU's.

turns.py GROUPS OUTPUT COMMAND…

The kernel never makes software events take turns, so here every group but one is stopped and they are changed over
every four milliseconds, as the kernel does with groups that do not fit the counters together. This costs the recorded
program more than the kernel's own turns: each change interrupts its CPU twice, from outside.
"""

import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tdprof.capture.output_folder import OutputFolder
from tdprof.cli.record_topdown import DEFAULT_HZ
from tdprof.model.events import SampledGroup, TopdownInfo
from tdprof.pipeline.finish import finish_capture
from tdprof.recorder import opening, session
from tdprof.recorder import perf_event as pe
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.events import parse_event
from tdprof.recorder.options import RecordOptions
from tdprof.recorder.targets import Rate, SamplingTarget

EVENTS = 7
TURN_S = 0.004  # perf_event_mux_interval_ms


class TakingTurns(AttachedEvents):
    """Events of which one group counts at a time."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self._over = threading.Event()
        self._turns = threading.Thread(target=self._take_turns)
        self._turns.start()

    def _open_group(self, rows: Sequence[int], places: Sequence[tuple[int, int]]) -> None:
        super()._open_group(rows, places)
        # The first group starts at exec, the others in their turn.
        self._wanted = replace(self._wanted, target=SamplingTarget(self._wanted.target.tasks))

    def _take_turns(self) -> None:
        present = 0
        while len(self._leaders) > 1 and not self._over.wait(TURN_S):
            pe.disable(self._leaders[present])
            present = (present + 1) % len(self._leaders)
            pe.enable(self._leaders[present])

    def disable(self) -> None:
        self._over.set()
        self._turns.join()
        super().disable()


def main() -> None:
    groups, output, command = int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    opening.AttachedEvents = TakingTurns  # type: ignore[misc]
    names = ["cpu-clock"] * EVENTS
    rows = [list(range(EVENTS * group, EVENTS * (group + 1))) for group in range(groups)]
    options = RecordOptions(
        events=[parse_event(name) for name in names * groups],
        rate=Rate(frequency_hz=DEFAULT_HZ),
        command=command,
        topdown=TopdownInfo("stand-in", [SampledGroup(group, names, []) for group in rows]),
    )
    with OutputFolder(output) as made:
        outcome = session.record(options, made)
        if outcome.failure:
            raise outcome.failure
        with outcome.held:
            finish_capture(made.folder, outcome.held)
    sys.exit(outcome.manifest.exit_status)


main()
