"""`tdprof record --duty` on the simulated Neoverse: Topdown's events and SPE are on in their turns, and only then."""

from collections.abc import Callable
from pathlib import Path

import pytest

from live_aarch64.machine import run_tdprof
from live_aarch64.neoverse_sim import Simulation
from tdprof.capture.manifest import Manifest, State, read_manifest
from tdprof.capture.tables import read_table

S = 1_000_000_000


def on_ns(manifest: Manifest, what: str) -> int:
    return sum(each.recorded_ns for each in manifest.duty if each.what == what)


@pytest.mark.needs_bpf
@pytest.mark.needs_spe
def test_topdown_and_spe_are_on_for_their_share(simulate: Callable[..., Simulation], tmp_path: Path) -> None:
    """What runs is the recorder: beside a busy CPU all else takes minutes in the emulator."""
    simulate(core="n3")
    done = run_tdprof(
        "record", "-a", "-F", 49, "--switch-output=4s", "--duty", "topdown=0.8s/2s,spe=0.4s/2s", "--duration", 7,
        "--cpu", "neoverse-n3", "--topdown", "--no-interpreters", "--call-graph", "no", "-o", tmp_path / "segments",
    )  # fmt: skip
    folders = sorted((tmp_path / "segments").iterdir())
    assert len(folders) >= 2, done.stderr
    manifests = [read_manifest(folder) for folder in folders]
    cpus, recorded_ns = manifests[0].host.cpus_online, sum(each.duration_ns for each in manifests)
    for what, least_ns in (("topdown", S // 4), ("spe", S // 8)):
        total_ns = sum(on_ns(manifest, what) for manifest in manifests)
        # Seven seconds hold three turns; what is switched off late is on for longer, and says so.
        assert least_ns < total_ns < 0.9 * recorded_ns, (what, total_ns, recorded_ns)
    spans = 0
    for folder, manifest in zip(folders, manifests, strict=True):
        assert manifest.state is State.COMPLETE
        assert manifest.topdown is not None
        grouped = {row for group in manifest.topdown.groups for row in group.events}
        [base] = [event for row, event in enumerate(manifest.events) if row not in grouped]
        assert base.name == "cycles"
        topdown_ns = on_ns(manifest, "topdown")
        for row in grouped:
            # Each CPU's events are switched one after the other.
            assert (manifest.events[row].enabled_ns or 0) <= (topdown_ns * 1.2 + S // 2) * cpus
            assert topdown_ns or not manifest.events[row].enabled_ns
        assert f"Topdown was on for {topdown_ns / 1e9:.1f} s" in " ".join(manifest.notes)
        windows = [window for each in manifest.duty if each.what == "spe" for window in each.windows]
        for time_ns in read_table(folder, "spe_spans")["time_ns"].to_pylist():
            spans += 1
            # The last bytes of a turn are handed over when it is switched off.
            assert any(begin <= time_ns <= end + S // 2 for begin, end in windows), (time_ns, windows)
    assert spans
    assert any(event.total for manifest in manifests for event in manifest.events)
