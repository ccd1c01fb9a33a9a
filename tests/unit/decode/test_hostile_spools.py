"""Spools of interrupted recordings that strangers made: all that makes sense in them is shown, the rest is counted."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import bpf_spool
from builders.costly_spools import PID, one_row, write_spool
from tdprof.cli.main import cli
from tdprof.decode.bpf_aggregates import SpoolDamage, read_rows
from tdprof.decode.side_band import initial_tables
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
    mappings, processes, damaged_bytes = initial_tables(path)
    assert (mappings["pid"].to_pylist(), processes["tid"].to_pylist(), damaged_bytes) == ([7], [8], len(line))


def test_half_a_character_is_no_reason_to_give_up(tmp_path: Path) -> None:
    (tmp_path / "initial.jsonl").write_bytes(GOOD.replace(b'"/a"', rb'"/\ud800"'))
    mappings, _, damaged_bytes = initial_tables(tmp_path / "initial.jsonl")
    assert (mappings["path"].to_pylist(), damaged_bytes) == (["/?"], 0)


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


def test_stacks_of_a_machine_that_is_not_known_are_an_error_in_words(tmp_path: Path) -> None:
    write_spool(tmp_path, {"copies.bpf": b"x"})
    manifest = tmp_path / "capture.json"
    manifest.write_text(manifest.read_text().replace('"machine": "', '"machine": "un'))
    result = CliRunner().invoke(cli, ["report", str(tmp_path)])
    assert isinstance(result.exception, TdprofError)
    assert "copies stacks of a machine that is not known" in result.exception.message
