"""What SPE says of kernel functions where samples wait for interrupts to be unmasked."""

from dataclasses import replace
from pathlib import Path

import pytest

from builders.capture_tables import samples, stacks, table
from builders.captures import replace_table, write_manifest
from builders.opened import joined_with_spe
from builders.spe_capture import PID, load, write_spe_capture
from tdprof.capture.manifest import read_manifest
from tdprof.capture.schema import KERNEL_SYMBOLS

KERNEL = 0xFFFF_8000_0800_0000
KERNEL_PC = 0xC0 << 56 | KERNEL & 0xFF_FFFF_FFFF_FFFF


def sentences(
    folder: Path, *, has_pmu_nmi: bool | None, masked: int, unmasking: int, event: str = "cpu-clock"
) -> list[str]:
    """Of a capture with 400 samples in `unlock` and 100 in `copy`, and so many SPE records in `update` and `unlock`."""
    kernel = (
        [load(KERNEL_PC + 0x100)] * masked + [load(KERNEL_PC + 0x200)] * unmasking + [load(KERNEL_PC + 0x300)] * 100
    )
    write_spe_capture(folder, more=kernel)
    names = ("update", "unlock", "copy")
    symbols = [(KERNEL + 0x100 * number, 0x100, name, None) for number, name in enumerate(names, 1)]
    replace_table(folder, "kernel_symbols", table(KERNEL_SYMBOLS, symbols))
    replace_table(
        folder, "stacks", stacks((1, True, [KERNEL + 0x204]), (2, True, [KERNEL + 0x304]), (3, False, [0x401000]))
    )
    rows: list[tuple[object, ...]] = [(0, PID, PID, "app", None, 1, 400, 400), (0, PID, PID, "app", None, 2, 100, 100)]
    rows.append((0, PID, PID, "app", 3, None, 500, 500))
    replace_table(folder, "samples", samples(*((2_000_000_000, *row) for row in rows)))
    manifest = read_manifest(folder)
    events = [replace(each, name=event) for each in manifest.events]
    write_manifest(folder, replace(manifest, host=replace(manifest.host, has_pmu_nmi=has_pmu_nmi), events=events))
    findings = joined_with_spe(folder)
    assert findings
    return [text for text in findings.disagreements if "wait for interrupts" in text]


@pytest.mark.parametrize("has_pmu_nmi", [True, False, None])
def test_where_interrupts_are_masked_spe_says_what_runs(tmp_path: Path, has_pmu_nmi: bool | None) -> None:
    told = sentences(tmp_path / "capture", has_pmu_nmi=has_pmu_nmi, masked=350, unmasking=50)
    if has_pmu_nmi is not False:
        assert told == []
        return
    [text] = told
    assert "update 70% (samples: 0%)" in text
    assert "unlock 10% (samples: 80%)" in text
    assert "copy" not in text
    assert "work" not in text


def test_where_both_agree_or_few_records_are_there_nothing_is_said(tmp_path: Path) -> None:
    assert sentences(tmp_path / "alike", has_pmu_nmi=False, masked=0, unmasking=400) == []


def test_samples_of_what_the_kernel_counts_itself_have_waited_for_nothing(tmp_path: Path) -> None:
    assert sentences(tmp_path / "c", has_pmu_nmi=False, masked=350, unmasking=50, event="context-switches") == []
