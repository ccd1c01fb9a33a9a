"""Captures that were cut or changed: whatever is left is read, or one line says what is wrong."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders.opened import profile_of
from builders.waiting import PATIENCE_S, wait_until
from live.recording import TDPROF, has_spooled, record, start_record
from tdprof.errors import TdprofError

pytestmark = [pytest.mark.needs_perf, pytest.mark.beside_others]


@pytest.fixture(scope="module")
def finished(build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A whole capture."""
    folder = tmp_path_factory.mktemp("whole") / "capture"
    return record("-F", "1999", "--", build("split.c"), "0.2", folder=folder).folder


@pytest.fixture(scope="module", params=["bpf", "ring"])
def interrupted(
    build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Path:
    """A capture whose recorder was killed: it has a spool and no tables."""
    folder = tmp_path_factory.mktemp("cut") / "capture"
    options = ["--no-bpf"] if request.param == "ring" else []
    recorder = start_record("-F", "1999", *options, "--", build("split.c"), "3", folder=folder)
    wait_until(lambda: has_spooled(folder) or any((folder / "spool").glob("ring.*.perf")), recorder)
    recorder.kill()
    recorder.communicate(timeout=PATIENCE_S)
    return folder


def copy(source: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    return Path(shutil.copytree(source, target))


def report(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*TDPROF, "report", "--json", str(folder)], capture_output=True, text=True, check=False, timeout=PATIENCE_S
    )


def assert_refused(folder: Path, *words: str) -> None:
    """`tdprof report` says in one line what is wrong."""
    result = report(folder)
    assert result.returncode == 1, result.stdout
    assert result.stderr.startswith("tdprof: ")
    assert len(result.stderr.splitlines()) <= 2, result.stderr
    for word in words:
        assert word in result.stderr


def test_every_table_cut_anywhere(finished: Path, tmp_path: Path) -> None:
    """Without samples there is nothing to say; every other table costs what it holds, and is named."""
    for name in ("samples", "stacks", "mappings", "processes", "kernel_symbols"):
        path = finished / f"{name}.parquet"
        data = path.read_bytes()
        for size in (0, 1, 4, len(data) // 2, len(data) - 9, len(data) - 8, len(data) - 4, len(data) - 1):
            damaged = copy(finished, tmp_path / "damaged")
            (damaged / path.name).write_bytes(data[:size])
            if name == "samples":
                with pytest.raises(TdprofError, match=path.name):
                    profile_of(damaged)
            else:
                profile = profile_of(damaged)
                assert any(path.name in note for note in profile.notes)
                assert profile.total_samples().sum() > 0


def test_a_cut_table_is_one_line(finished: Path, tmp_path: Path) -> None:
    damaged = copy(finished, tmp_path / "damaged")
    data = (damaged / "samples.parquet").read_bytes()
    (damaged / "samples.parquet").write_bytes(data[: len(data) // 2])
    assert_refused(damaged, "samples.parquet")


def test_a_missing_table_is_one_line(finished: Path, tmp_path: Path) -> None:
    damaged = copy(finished, tmp_path / "damaged")
    (damaged / "samples.parquet").unlink()
    assert_refused(damaged, "samples.parquet: it is missing")
    (finished / "stacks.parquet").rename(tmp_path / "stacks.parquet")
    try:
        shown = report(finished)
    finally:
        (tmp_path / "stacks.parquet").rename(finished / "stacks.parquet")
    assert shown.returncode == 0
    assert "stacks.parquet: it is missing" in shown.stdout


def rewrite_samples(folder: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    path = folder / "samples.parquet"
    pq.write_table(change(pq.read_table(path)), path)


def test_samples_that_are_not_those_that_were_recorded(finished: Path, tmp_path: Path) -> None:
    whole = profile_of(finished)
    assert not any("samples.parquet" in note for note in whole.notes)
    damaged = copy(finished, tmp_path / "damaged")
    rewrite_samples(damaged, lambda table: table.slice(1))
    if whole.rung == "ring-buffer":
        pytest.skip("only BPF counts its samples by itself")
    assert any("samples.parquet holds" in note for note in profile_of(damaged).notes)


@pytest.mark.parametrize("column", ["count", "weight"])
def test_counts_that_no_machine_can_have(finished: Path, tmp_path: Path, column: str) -> None:
    damaged = copy(finished, tmp_path / "damaged")

    def overflow(table: pa.Table) -> pa.Table:
        huge = pa.array([1 << 63] * len(table), pa.uint64())
        return table.set_column(table.column_names.index(column), column, huge)

    rewrite_samples(damaged, overflow)
    assert_refused(damaged, f"the column {column} of its samples adds up to more than can be")


def test_the_manifest_cut_anywhere(finished: Path, tmp_path: Path) -> None:
    damaged = copy(finished, tmp_path / "damaged")
    text = (finished / "capture.json").read_bytes()
    for size in range(0, len(text) - 2, 37):
        (damaged / "capture.json").write_bytes(text[:size])
        with pytest.raises(TdprofError, match=r"capture\.json"):
            profile_of(damaged)


def test_a_newer_schema_is_refused_by_name(finished: Path, tmp_path: Path) -> None:
    newer = copy(finished, tmp_path / "newer")
    manifest = json.loads((newer / "capture.json").read_text())
    manifest |= {"schema_version": manifest["schema_version"] + 1, "tdprof_version": "99.0"}
    (newer / "capture.json").write_text(json.dumps(manifest))
    assert_refused(newer, "capture schema", "tdprof 99.0", "pip install --upgrade tdprof")


def test_keys_of_the_future_are_ignored(finished: Path, tmp_path: Path) -> None:
    newer = copy(finished, tmp_path / "newer")
    manifest = json.loads((newer / "capture.json").read_text())
    (newer / "capture.json").write_text(json.dumps(manifest | {"mood": "good"}))
    assert report(newer).returncode == 0


def test_what_is_no_capture(tmp_path: Path) -> None:
    assert_refused(tmp_path / "nothing", "no capture at")
    assert_refused(tmp_path, "is not a capture")


@settings(deadline=None, max_examples=12, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_spool_is_read_as_far_as_it_is_whole(interrupted: Path, tmp_path: Path, data: st.DataObject) -> None:
    """Any bit flipped and any file of the spool cut: what is left loads, and holds no more samples than before."""
    damaged = copy(interrupted, tmp_path / "damaged")
    paths = [path for path in sorted((damaged / "spool").iterdir()) if path.stat().st_size]
    path = data.draw(st.sampled_from(paths))
    content = bytearray(path.read_bytes())
    if data.draw(st.booleans()):
        content[data.draw(st.integers(0, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    else:
        del content[data.draw(st.integers(0, len(content))) :]
    path.write_bytes(content)
    kept = int(profile_of(damaged).samples.count.sum())
    assert kept <= int(profile_of(interrupted).samples.count.sum())
