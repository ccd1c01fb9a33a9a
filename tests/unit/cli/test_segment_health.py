"""What a recorder says of itself, read as Prometheus reads it; and the units that run it."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

import tdprof
from builders.fleet import make_host_capture
from tdprof.capture.manifest import read_manifest
from tdprof.cli.segment_health import SegmentHealth
from tdprof.cli.segments import SegmentWriter
from tdprof.model.losses import Losses

UNITS = Path(tdprof.__path__[0]) / "systemd"
_LABEL = r'[a-z]+="(?:[^"\\\n]|\\.)*"'
_LINE = re.compile(rf"([a-z_]+)(\{{{_LABEL}(?:,{_LABEL})*\}})? (-?[0-9.e+-]+)\n")


def parsed(path: Path) -> dict[str, float]:
    """Metrics by name and labels; each has to have its type, once, before it."""
    found: dict[str, float] = {}
    typed: list[str] = []
    for line in path.read_text().splitlines(keepends=True):
        if line.startswith("# TYPE "):
            typed.append(line.split()[2])
        elif not line.startswith("# HELP "):
            match = _LINE.fullmatch(line)
            assert match, line
            assert match[1] == typed[-1]
            found[match[1].removeprefix("tdprof_recorder_") + (match[2] or "")] = float(match[3])
    assert len(typed) == len(set(typed))
    return found


def test_what_was_recorded_lost_and_removed(tmp_path: Path) -> None:
    manifest = read_manifest(make_host_capture(tmp_path / "capture", "a", {"work": 60}))
    losses = Losses(throttled=3, by_reason={'an "odd"\nreason\\': 2})
    health = SegmentHealth(tmp_path / "tdprof.prom")
    for _ in range(2):
        health.recorded(replace(manifest, samples_counted=60, losses=losses), 7)
    health.removed()
    health.failed()
    health.write(4096, 2)
    told = parsed(tmp_path / "tdprof.prom")
    assert (told["segments_total"], told["samples_total"], told["recorded_seconds_total"]) == (2, 120, 20)
    assert told['losses_total{reason="throttled"}'] == 6
    assert told['losses_total{reason="an \\"odd\\"\\nreason\\\\"}'] == 4
    assert (told["segments_removed_total"], told["segments_failed_total"], told["segments_bytes"]) == (1, 1, 4096)
    assert told["programs_not_held"] == 7
    assert told["cpu_seconds_total"] > 0
    assert told["resident_bytes"] > 1 << 20
    assert (tmp_path / "tdprof.prom").stat().st_mode & 0o777 == 0o644
    health.removed()
    health.write(0, 0)
    assert parsed(tmp_path / "tdprof.prom") == told  # not yet time
    health.write(0, 0, is_due=True)
    assert parsed(tmp_path / "tdprof.prom")["segments_removed_total"] == 2


def test_before_the_first_segment_none_has_ended(tmp_path: Path) -> None:
    health = SegmentHealth(tmp_path / "prom")
    health.write(0, 0)
    told = parsed(tmp_path / "prom")
    assert told["segments_total"] == 0
    assert "last_segment_time_seconds" not in told
    health.recorded(read_manifest(make_host_capture(tmp_path / "capture", "a", {"work": 60})), 0)
    health.write(0, 0, is_due=True)
    assert parsed(tmp_path / "prom")["last_segment_time_seconds"] >= told["start_time_seconds"]


def test_the_writer_of_segments_tells_it(tmp_path: Path) -> None:
    folder = tmp_path / "segments"
    folder.mkdir(mode=0o700)
    for number in range(4):
        (folder / f"20260101T00{number:02}00.000Z").mkdir()
        (folder / f"20260101T00{number:02}00.000Z" / "capture.json").write_text("{}")
    with SegmentWriter(folder, None, 2, health=SegmentHealth(tmp_path / "prom"), quiet=True) as segments:
        segments.tick()
    assert parsed(tmp_path / "prom")["segments_removed_total"] == 2


def test_what_cannot_be_written_is_said_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    health = SegmentHealth(tmp_path / "missing" / "prom")
    for _ in range(2):
        health.write(0, 0, is_due=True)
    assert capsys.readouterr().err.count("cannot write") == 1


def test_only_the_recorder_has_capabilities_and_only_the_push_a_network() -> None:
    record, push = ((UNITS / f"tdprof-{name}.service").read_text() for name in ("record", "push"))
    assert "PrivateNetwork=yes" in record
    assert "\nCapabilityBoundingSet=\n" in push
    assert "PrivateNetwork" not in push


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze here")
def test_systemd_takes_the_units() -> None:
    units = sorted(UNITS.iterdir())
    assert len(units) == 3
    ran = subprocess.run(["systemd-analyze", "verify", "--man=no", *units], capture_output=True, text=True, check=False)
    assert not [line for line in ran.stderr.splitlines() if "tdprof" in line], ran.stderr
