"""How often a command reads a capture's manifest and AUX bytes and opens its symbol sources: once, always."""

from pathlib import Path
from typing import Any, BinaryIO, cast

import click
import pytest
from click.testing import CliRunner

from arm_spe import DecodeCounts, RecordDecoder
from arm_spe.tally import Tally
from builders import spe
from builders.spe_capture import records, write_spe_capture
from builders.spe_perf_data import perf_data
from tdprof.attribute.address_space import AddressSpaces
from tdprof.cli.main import cli
from tdprof.linux.file_bytes import open_own
from tdprof.symbolize.symbolizer import Symbolizer

AUX = spe.write_stream(records(), spe.packed_record)[0]


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the spans that were decoded."""
    sizes: list[int] = []
    begin = RecordDecoder.__init__

    def note(decoder: RecordDecoder, data: memoryview | bytes, **more: Any) -> None:
        sizes.append(memoryview(data).nbytes)
        begin(decoder, data, **more)

    def note_span(tally: Tally, data: memoryview | bytes, *more: Any) -> DecodeCounts:
        sizes.append(memoryview(data).nbytes)
        return add_span(tally, data, *more)

    add_span = Tally.add_span
    monkeypatch.setattr(RecordDecoder, "__init__", note)
    monkeypatch.setattr(Tally, "add_span", note_span)
    return sizes


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was opened of what names code."""
    found: list[str] = []
    for kind in (Symbolizer, AddressSpaces):

        def note(self: object, *given: Any, begin: Any = kind.__init__, name: str = kind.__name__, **more: Any) -> None:
            found.append(name)
            begin(self, *given, **more)

        monkeypatch.setattr(kind, "__init__", note)
    return found


@pytest.fixture
def manifests(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Manifests that were read."""
    found: list[Path] = []

    def note(path: Path) -> BinaryIO:
        found.append(path)
        return open_own(path)

    monkeypatch.setattr("tdprof.capture.manifest.open_own", note)
    return found


def run(*arguments: str | Path) -> None:
    result = CliRunner().invoke(cast(click.Command, cli), [*map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ("report",),
        ("report", "--lines", "--json"),
        ("report", "--spe"),
        ("report", "--spe", "--by", "line"),
        ("report", "--spe", "--by", "instruction"),
        ("report", "--spe", "--by", "source"),
        ("report", "--spe", "--by", "page"),
        ("spe", "report"),
        ("annotate", "work"),
        ("annotate", "work", "--asm"),
        ("export", "--to", "html"),
        ("export", "--to", "pprof"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("is_topdown", [False, True], ids=["clock", "topdown"])
def test_a_capture_is_read_once(
    tmp_path: Path,
    decoded: list[int],
    opened: list[str],
    manifests: list[Path],
    arguments: tuple[str, ...],
    is_topdown: bool,
) -> None:
    capture = write_spe_capture(tmp_path / "capture", is_topdown=is_topdown)
    words = 2 if arguments[0] == "spe" else 1  # of the command's name
    output = ["-o", str(tmp_path / "out")] if "export" in arguments else []
    run(*arguments[:words], capture, *arguments[words:], *output)
    assert decoded == [len(AUX)]
    names_code = not {"source", "page"} & {*arguments}
    assert sorted(opened) == ["AddressSpaces", "Symbolizer"] * names_code
    assert manifests == [capture / "capture.json"]


def test_a_comparison_reads_each_capture_once(tmp_path: Path, decoded: list[int], manifests: list[Path]) -> None:
    captures = [write_spe_capture(tmp_path / name) for name in "ab"]
    run("diff", *captures)
    assert decoded == [len(AUX)] * 2
    assert manifests == [capture / "capture.json" for capture in captures]


@pytest.mark.parametrize(
    "arguments", [("archive",), ("spe", "dump"), ("report", "--by", "thread"), ("export", "--to", "folded", "-o", "-")]
)
def test_without_spe_the_manifest_is_read_once_too(
    tmp_path: Path, manifests: list[Path], arguments: tuple[str, ...]
) -> None:
    capture = write_spe_capture(tmp_path / "capture")
    words = 2 if arguments[0] == "spe" else 1
    run(*arguments[:words], capture, *arguments[words:])
    assert manifests == [capture / "capture.json"]


def test_sharing_takes_a_second_look_and_folded_stacks_none(tmp_path: Path, decoded: list[int]) -> None:
    capture = write_spe_capture(tmp_path / "capture")
    run("export", capture, "--to", "folded")
    assert decoded == []
    run("report", capture, "--spe", "--by", "address")
    assert sum(decoded) <= 2 * len(AUX)


def test_an_import_reads_once_more_for_the_kernels_addresses(tmp_path: Path, decoded: list[int]) -> None:
    perf_data(tmp_path / "perf.data", [(0, AUX)], [0x410FD0C0])
    run("export", tmp_path / "perf.data", "--to", "pprof", "-o", tmp_path / "out")
    padded = len(AUX) + -len(AUX) % 8
    assert decoded == [padded, padded]
