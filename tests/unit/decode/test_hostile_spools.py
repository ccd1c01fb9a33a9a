"""Spools of interrupted recordings that strangers made: all that makes sense in them is shown, the rest is counted."""

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import bpf_spool
from builders.captures import write_manifest
from builders.costly_spools import PID, one_row, write_spool
from tdprof.capture.manifest import Rung, read_manifest
from tdprof.cli.main import cli
from tdprof.decode.bpf_aggregates import read_rows
from tdprof.decode.python.records import read_stacks
from tdprof.decode.side_band import initial_tables
from tdprof.decode.spooled_files import SpoolDamage
from tdprof.errors import TdprofError

GOOD = b'{"pid": 7, "threads": {"8": "a"}, "maps": [[4096, 1, 0, "/a", ""]]}'


@pytest.mark.parametrize(
    "line",
    [
        b"[" * 100_000,
        b'{"pid": 1e999, "threads": {}, "maps": []}',
        b'{"pid": -1, "threads": {}, "maps": []}',
        b'{"pid": 4294967296, "threads": {}, "maps": []}',
        b'{"pid": 1, "threads": {"x": "a"}, "maps": []}',
        b'{"pid": 1, "threads": {}, "maps": [[18446744073709551616, 1, 0, "", ""]]}',
        b'{"pid": 1, "threads": {}, "maps": [[NaN, 1, 0, "", ""]]}',
        b'{"pid": 1, "threads": [], "maps": []}',
        b"{}",
        b"\xff",
    ],
)
def test_a_line_that_no_recorder_writes_is_damage(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "initial.jsonl"
    path.write_bytes(line + b"\n" + GOOD + b"\n")
    damage = SpoolDamage()
    mappings, processes = initial_tables(path, damage)
    assert (mappings["pid"].to_pylist(), processes["tid"].to_pylist(), damage.bytes) == ([7], [8], len(line))


def test_half_a_character_is_no_reason_to_give_up(tmp_path: Path) -> None:
    (tmp_path / "initial.jsonl").write_bytes(GOOD.replace(b'"/a"', rb'"/\ud800"'))
    damage = SpoolDamage()
    mappings, _ = initial_tables(tmp_path / "initial.jsonl", damage)
    assert (mappings["path"].to_pylist(), damage.bytes) == (["/?"], 0)


def test_frames_behind_what_only_begins_like_some(tmp_path: Path) -> None:
    """Each of the beginnings says that the rest of the file is its own."""
    path = tmp_path / "rows.bpf"
    false = (
        bpf_spool.rows_frame(1, [])[:4] + (1).to_bytes(4, "little") + bytes(8) + (60).to_bytes(4, "little") + bytes(4)
    )
    path.write_bytes(false * 20 + one_row())
    damage = SpoolDamage()
    assert [batch.keys["pid"].tolist() for batch in read_rows(path, damage)] == [[PID]]
    assert damage.bytes == 20 * len(false)


def test_rows_that_become_far_more_than_their_file_are_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "rows.bpf"
    frame = bpf_spool.rows_frame(5, [(1, 0, PID, PID, 0, b"app", 1, 1)] * 10_000)
    path.write_bytes(frame * 20)
    damage = SpoolDamage()
    rows = sum(len(batch.keys) for batch in read_rows(path, damage))
    assert 10_000 <= rows <= (32 * path.stat().st_size + (2 << 20)) // 64
    assert damage.bytes == path.stat().st_size - rows // 10_000 * len(frame) > 0


def test_files_with_other_names_than_a_recorders_are_left_alone(tmp_path: Path) -> None:
    write_spool(tmp_path, {"spe.0.x.perf": b"x", "spe.0.99999999999.perf": b"x"})
    assert CliRunner().invoke(cli, ["report", str(tmp_path)]).exit_code == 0


@pytest.mark.parametrize("number", [1 << 32, (1 << 64) - 1, -1])
def test_a_number_that_no_process_has_is_followed_nowhere(tmp_path: Path, number: int) -> None:
    write_spool(tmp_path, {"rows.bpf": one_row(), "stacks.bpf": bpf_spool.stack_record(1, [0x1010])})
    write_manifest(tmp_path, replace(read_manifest(tmp_path), followed=[number, PID]))
    result = CliRunner().invoke(cli, ["report", str(tmp_path)], catch_exceptions=False)
    assert result.exit_code == 0


def test_stacks_of_a_machine_that_is_not_known_are_an_error_in_words(tmp_path: Path) -> None:
    write_spool(tmp_path, {"copies.bpf": b"x"})
    manifest = tmp_path / "capture.json"
    manifest.write_text(manifest.read_text().replace('"machine": "', '"machine": "un'))
    result = CliRunner().invoke(cli, ["report", str(tmp_path)])
    assert isinstance(result.exception, TdprofError)
    assert "copies stacks of a machine that is not known" in result.exception.message


@pytest.mark.parametrize("rung", [Rung.BPF_SOFTWARE, Rung.RING_BUFFER])
def test_a_hole_in_a_spool_is_not_read_and_the_rest_is(
    tmp_path: Path, rung: Rung, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names = ["initial.jsonl", "cgroups.jsonl", "python.jsonl", "ring.0.perf", "spe.0.0.perf"]
    kinds = ("rows", "stacks", "copies", "codes", "python_stacks", "replaced", "ended", "alive", "wakings")
    names += [f"{kind}.bpf" for kind in kinds]
    files = {"rows.bpf": one_row(), "stacks.bpf": bpf_spool.stack_record(1, [0x1010]), "initial.jsonl": GOOD + b"\n"}
    for number, name in enumerate(names):
        capture = tmp_path / f"{number}.tdprof"
        capture.mkdir()
        write_spool(capture, files | {"python.jsonl": b"", "alive.bpf": bytes(8)}, rung=rung)
        manifest = read_manifest(capture)
        write_manifest(capture, replace(manifest, has_cgroups=True, has_thread_times=True, has_wakers=True))
        place = capture / "spool" / name
        place.touch()
        os.truncate(place, 1 << 42)
        result = CliRunner().invoke(cli, ["report", capture.name, "--json"], catch_exceptions=False)
        assert result.exit_code == 0, (name, result.output)
        notes = " ".join(json.loads(result.stdout)["notes"])
        assert f"1 file of the spool ({name}) with holes" in notes, name
        assert "bytes from there on were not read" in notes


def test_python_stacks_that_are_too_short_are_damage(tmp_path: Path) -> None:
    (tmp_path / "python_stacks.bpf").write_bytes(bytes(64) + bpf_spool.python_stack(5, 7, [(1, 1, 0)]))
    damage = SpoolDamage()
    assert (read_stacks(tmp_path, damage).stack.tolist(), damage.stacks) == ([5], 8)


def test_zeros_that_a_file_system_does_not_keep_are_read(tmp_path: Path) -> None:
    """One that compresses makes holes of them."""
    path = tmp_path / "rows.bpf"
    frames = one_row() * 60_000
    path.write_bytes(frames)
    with path.open("r+b") as file:
        file.seek(len(frames) + (1 << 20))
        file.write(one_row())
    damage = SpoolDamage()
    assert sum(len(batch.keys) for batch in read_rows(path, damage)) == 60_001
    assert (damage.bytes, list(damage.notes())) == (1 << 20, [])
