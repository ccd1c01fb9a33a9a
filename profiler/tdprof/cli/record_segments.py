"""`tdprof record --switch-output` and what goes with it: a recording without end, in segments."""

import gc
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tdprof.cli.option_groups import adding
from tdprof.errors import TdprofError
from tdprof.values import dataclass

if TYPE_CHECKING:
    from tdprof.cli.segments import SegmentWriter
    from tdprof.recorder.rotation import SegmentLength

DEFAULT_FOLDER = "tdprof.segments"
# What a busy machine writes until a segment is cut and its tables are made has to fit in.
_LEAST_MEGABYTES = 64
_FILES_OF_ALL = 16  # a segment may take an eighth
_EXAMPLE = "tdprof record -a -F 99 --switch-output=5m --max-size 2G"


@dataclass(frozen=True, slots=True)
class SegmentOptions:
    """As they were typed; see ``segment_options``."""

    switch_output: str | None
    switch_max_files: int | None
    max_size: str | None
    health: Path | None

    def check(self, *, has_spe: bool, has_off_cpu: bool, has_passes: bool, with_symbols: bool) -> None:
        """Raises TdprofError: they do not go with each other, or with the rest."""
        if self.switch_output is None:
            alone = (
                (self.max_size, "--max-size bounds"),
                (self.switch_max_files, "--switch-max-files bounds"),
                (self.health, "--health tells of"),
            )
            for value, words in alone:
                if value is not None:
                    raise TdprofError(f"{words} segments: give --switch-output, too", hint=_EXAMPLE, status=2)
            return
        with_whole = (
            (has_spe, "SPE"),
            (has_off_cpu, "--off-cpu"),
            (has_passes, "--passes"),
            (with_symbols, "--with-symbols"),
        )
        for is_given, what in with_whole:
            if is_given:
                hint = f"record {what} without --switch-output"
                hint += ", or for a part of the time: --duty spe=1s/10m" if what == "SPE" else ""
                raise TdprofError(f"{what} cannot be cut into segments", hint=hint, status=2)
        self.length()

    @property
    def is_wanted(self) -> bool:
        """Whether the recording is to be cut."""
        return self.switch_output is not None

    def length(self) -> "SegmentLength":
        """Of a segment: what was asked for, and no more than its part of what all may take."""
        from dataclasses import replace

        from tdprof.cli.segments import OF_ALL
        from tdprof.recorder.rotation import parse_segment_length

        length, most = parse_segment_length(self.switch_output or ""), self.most_bytes()
        if most is None:
            return length
        return replace(length, bytes=min(length.bytes or most, max(1, most // OF_ALL)))

    def most_bytes(self) -> int | None:
        """That all segments may take.

        Raises:
            TdprofError: it is no size, or one that could not be kept.
        """
        from tdprof.recorder.rotation import parse_size

        if self.max_size is None:
            return None
        size = parse_size(self.max_size, "--max-size")
        if size < _LEAST_MEGABYTES << 20:
            raise TdprofError(
                f"--max-size {self.max_size} is too little: a few seconds of a busy machine take tens of megabytes "
                "until they are one segment and its tables are made",
                hint=f"--max-size {_LEAST_MEGABYTES}M or more",
                status=2,
            )
        return size

    def most_bytes_of_files(self) -> int | None:
        """That files of the recorded processes (perf maps, deleted programs) may take in a segment."""
        most = self.most_bytes()
        return None if most is None else most // _FILES_OF_ALL

    def writer(self, output: Path | None, *, quiet: bool) -> "SegmentWriter":
        """Where segments go."""
        from tdprof.cli.segment_health import SegmentHealth
        from tdprof.cli.segments import SegmentWriter

        health = SegmentHealth(self.health) if self.health else None
        folder = output or Path(DEFAULT_FOLDER)
        return SegmentWriter(folder, self.most_bytes(), self.switch_max_files, health=health, quiet=quiet)


def stay_small() -> None:
    """For this process, before it has threads: what is freed goes back to the system, however long it runs."""
    from tdprof.linux.heap import map_large_blocks, share_one_heap

    share_one_heap()
    map_large_blocks()
    # What is loaded stays. Collections of garbage then look at the rest only.
    gc.freeze()


segment_options = adding(
    click.option(
        "--switch-output",
        metavar="TIME|SIZE",
        help=f"Record on and on, in segments of this time (30s, 5m, 1h) or size (100M): each is a capture of "
        f"its own in the folder of -o ({DEFAULT_FOLDER}), named by when it began. No sample is lost between "
        "them. Needs BPF.",
    ),
    click.option("--switch-max-files", type=click.IntRange(2), metavar="N", help="Keep the newest N segments."),
    click.option(
        "--max-size",
        metavar="SIZE",
        help=f"Remove the oldest segments so that all take no more (500M, 2G; {_LEAST_MEGABYTES}M at least).",
    ),
    click.option(
        "--health",
        metavar="FILE",
        type=click.Path(path_type=Path, dir_okay=False),
        help="With --switch-output: write how recording is doing into this file, as Prometheus' text.",
    ),
)
