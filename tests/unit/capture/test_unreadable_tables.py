"""Captures that have lost a table: every command says which, what is therefore unknown, and shows the rest."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import click
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from builders import spe
from builders.captures import write_manifest
from builders.costly_captures import write_capture
from builders.spe_capture import records, write_spe_capture
from builders.spe_perf_data import perf_data
from tdprof.capture.manifest import State, read_manifest
from tdprof.capture.tables import read_table
from tdprof.cli.main import cli
from tdprof.errors import TdprofError
from tdprof.pipeline import spe_lines

UNKNOWN = {
    "stacks": "no sample has a function or callers",
    "mappings": "functions in user space have no names and no callers",
    "processes": "names of processes and threads may be missing, and what forked processes had mapped",
    "kernel_symbols": "the kernel's functions have no names",
    "symbols": "its own symbols are not used, only those of this machine's files",
}


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cast(click.Command, cli), [*map(str, arguments)], catch_exceptions=False)


def remove(path: Path) -> str:
    path.unlink()
    return "it is missing"


def damage(path: Path) -> str:
    path.write_bytes(path.read_bytes()[:-20])
    return "it is damaged (Parquet magic bytes not found in footer)"


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return write_spe_capture(tmp_path / "app.capture")


def test_a_whole_capture_has_nothing_unreadable(capture: Path) -> None:
    assert "cannot read" not in run("report", capture).output
    assert run("export", capture, "--to", "folded").stderr == ""


def test_a_table_that_was_there_once_is_missed(capture: Path) -> None:
    write_manifest(capture, replace(read_manifest(capture), tables=["interpreted", "samples", "wakers"]))
    gone = {
        "interpreted": "functions of interpreted languages have no names",
        "wakers": "who ended sleeps is not known",
    }
    told = [f"cannot read {capture / name}.parquet: it is missing; {unknown}" for name, unknown in gone.items()]
    assert run("report", capture).stdout.splitlines().count(told[0]) == 1
    assert [*run("export", capture, "--to", "folded").stderr.splitlines()] == [f"tdprof: {line}" for line in told]


def test_archived_symbols_are_missed(capture: Path) -> None:
    run("archive", capture)
    (capture / "symbols.parquet").unlink()
    told = f"cannot read {capture / 'symbols.parquet'}: it is missing; {UNKNOWN['symbols']}"
    assert told in run("report", capture).stdout.splitlines()
    run("archive", capture)
    assert "cannot read" not in run("report", capture).stdout


@pytest.mark.parametrize("command", ["report --csv", "report --by thread --csv", "export --to folded", "annotate"])
def test_losses_are_said_where_the_output_has_no_place_for_them(capture: Path, command: str) -> None:
    manifest = read_manifest(capture)
    write_manifest(capture, replace(manifest, losses=replace(manifest.losses, bytes_damaged=77)))
    name, *options = command.split()
    function = ["work"] * (name == "annotate")
    result = CliRunner().invoke(cast(click.Command, cli), [name, str(capture), *function, *options])
    assert "tdprof: 77 bytes of the capture could not be read" in result.stderr.splitlines()


@pytest.mark.parametrize("view", ["--by=thread", "--tree"])
def test_every_json_counts_losses(capture: Path, view: str) -> None:
    manifest = read_manifest(capture)
    write_manifest(capture, replace(manifest, losses=replace(manifest.losses, bytes_damaged=77)))
    assert json.loads(run("report", capture, view, "--json").stdout)["losses"]["bytes_damaged"] == 77


@pytest.mark.parametrize(
    ("name", "lose"),
    # A capture need not have symbols of its own.
    [(name, lose) for name in UNKNOWN for lose in (remove, damage) if name != "symbols" or lose is damage],
)
def test_reports_and_exports_name_it_and_go_on(capture: Path, name: str, lose: Callable[[Path], str]) -> None:
    path = capture / f"{name}.parquet"
    told = f"cannot read {path}: {lose(path)}; {UNKNOWN[name]}"
    text = run("report", capture).stdout
    assert text.splitlines().count(told) == 1
    assert "400.0 ms" in text  # the samples are still there
    assert "-fno-omit-frame-pointer" not in text  # which has nothing to do with it
    assert told in json.loads(run("report", capture, "--json").stdout)["notes"]
    exported = run("export", capture, "--to", "folded")
    assert exported.stderr.splitlines() == [f"tdprof: {told}"]
    assert exported.stdout.startswith("app;")


def test_a_damaged_table_that_few_captures_have_is_no_end(capture: Path) -> None:
    path = capture / "namespaces.parquet"
    path.write_bytes(b"no table, though of some length")
    told = f"cannot read {path}: {damage(path)}; files of containers are not told from this machine's"
    assert told in run("report", capture).stdout.splitlines()
    assert run("export", capture, "--to", "folded").stderr == f"tdprof: {told}\n"


@pytest.mark.parametrize("name", ["mappings", "processes", "kernel_symbols"])
def test_a_report_of_spe_goes_on_too(capture: Path, name: str) -> None:
    path = capture / f"{name}.parquet"
    told = f"cannot read {path}: {remove(path)}; {UNKNOWN[name]}"
    for arguments in (("report", "--spe", capture), ("spe", "report", capture)):
        text = run(*arguments).stdout
        assert f"note: {told}" in text.splitlines()
        assert "1500 operations" in text


@pytest.mark.parametrize("lose", [remove, damage])
def test_spe_records_that_no_table_places_are_left_out_once(capture: Path, lose: Callable[[Path], str]) -> None:
    path = capture / "spe_spans.parquet"
    told = f"SPE records are left out: cannot read {path}: {lose(path)} (copy the capture again, whole)"
    assert run("report", capture).stdout.splitlines().count(told) == 1
    assert f"note: {told}" in run("annotate", capture, "work").stdout.splitlines()
    for form in ("pprof", "html"):
        exported = run("export", capture, "--to", form, "-o", capture / "out")
        assert exported.stderr.splitlines().count(f"tdprof: {told}") == 1
    with pytest.raises(TdprofError, match=r"spe_spans\.parquet: it is"):
        run("report", "--spe", capture)


def test_spe_records_that_memory_does_not_suffice_for_are_left_out(
    capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def count_records(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr(spe_lines, "count_records", count_records)
    told = "SPE records are left out: reading them takes more memory than there is"
    text = run("report", capture).stdout
    assert text.splitlines().count(told) == 1
    assert "400.0 ms" in text
    assert f"note: {told}" in run("annotate", capture, "work").stdout.splitlines()
    for form in ("pprof", "html"):
        exported = run("export", capture, "--to", form, "-o", capture / "out")
        assert exported.stderr.splitlines().count(f"tdprof: {told}") == 1


@pytest.mark.parametrize("step", ["perf_input.spe_input_of", "kernel_addresses.kernel_addresses", "capture.store_spe"])
def test_perf_data_whose_spe_records_memory_does_not_suffice_for_is_imported_without(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise MemoryError

    stream, _ = spe.write_stream(records(), spe.packed_record)
    source = perf_data(tmp_path / "perf.data", [(0, stream)], [0x410FD400])
    monkeypatch.setattr(f"tdprof.decode.spe.{step}", fail)
    imported = tmp_path / "imported"
    assert run("import", source, "-o", imported).exit_code == 0
    manifest = read_manifest(imported)
    assert manifest.spe is None
    assert manifest.notes.count("SPE records are left out: reading them takes more memory than there is") == 1
    assert not (imported / "spe").exists()


def test_spe_bytes_that_are_gone_are_not_called_none(capture: Path) -> None:
    (capture / "spe/cpu0.0.aux").unlink()
    cut = "1 spans of AUX bytes are cut off by the end of their file, or it is missing"
    assert cut in run("report", "--spe", capture).stdout
    assert f"SPE: {cut}" in run("report", capture).stdout.splitlines()
    assert run("export", capture, "--to", "pprof", "-o", capture / "out").stderr.startswith(f"tdprof: SPE: {cut}\n")
    (capture / "spe").rmdir()
    assert f"SPE records are left out: cannot read {capture / 'spe'}: it is missing" in run("report", capture).stdout
    with pytest.raises(TdprofError, match="spe: it is missing"):
        run("report", "--spe", capture)


def test_an_interrupted_recording_says_how_to_see_its_spe_records(capture: Path) -> None:
    write_manifest(capture, replace(read_manifest(capture), state=State.RECORDING))
    with pytest.raises(TdprofError, match="was interrupted before") as raised:
        run("report", "--spe", capture)
    assert raised.value.hint == f"tdprof archive {capture} makes it"


def test_a_difference_is_not_judged_by_a_capture_with_gaps(capture: Path, tmp_path: Path) -> None:
    whole = write_spe_capture(tmp_path / "whole.capture")
    remove(capture / "mappings.parquet")
    assert f"note: not all of {capture} could be read" in run("diff", whole, capture).stdout
    with pytest.raises(TdprofError, match="cannot judge --fail-on: not all of"):
        run("diff", whole, capture, "--fail-on", "total>5%")


def test_nothing_is_loaded_within_the_limit_of_memory(capture: Path) -> None:
    """pandas is large; that it is loaded there once had good captures refused."""
    code = (
        "import sys, contextlib, pathlib; from tdprof.capture import tables\n"
        "@contextlib.contextmanager\n"
        "def limit(most):\n    before = set(sys.modules); yield\n"
        "    assert not {n for n in set(sys.modules) - before if n.startswith('pandas')}\n"
        "tables.memory_limit = limit\n"
        f"assert len(tables.read_table(pathlib.Path({str(capture)!r}), 'samples'))\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_columns_that_no_table_has(tmp_path: Path) -> None:
    """Gaps within a list, and a name that stands twice."""
    write_capture(tmp_path)
    chains = pa.array([[None, 5]], pa.list_(pa.uint64()))
    pq.write_table(
        pa.table({"stack": pa.array([1], pa.uint64()), "is_kernel": [False], "addresses": chains}),
        tmp_path / "stacks.parquet",
    )
    with pytest.raises(TdprofError, match="its column addresses has gaps"):
        read_table(tmp_path, "stacks")
    samples = pq.read_table(tmp_path / "samples.parquet")
    pq.write_table(samples.append_column("pid", samples["pid"]), tmp_path / "samples.parquet")
    with pytest.raises(TdprofError, match="several columns pid"):
        read_table(tmp_path, "samples")
