"""The validation kit on the simulated Neoverse: where a core's behaviour is declared, what it checks holds."""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from live_aarch64.benchmarks import BEHAVIOUR, CATALOG
from live_aarch64.neoverse_sim import Simulation
from tdprof.cli import main as tdprof_main

KIT = Path(__file__).resolve().parents[2] / "tools/validation"
METRICS = (
    "Topdown_L1", "ipc", "branch_misprediction_ratio", "l1d_cache_mpki", "l2_cache_mpki", "l1i_cache_mpki",
    "dtlb_walk_ratio", "load_percentage", "l1d_cache_miss_ratio",
)  # fmt: skip


@pytest.fixture
def kit(monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that `tools/validate` runs, importable."""
    monkeypatch.syspath_prepend(KIT)
    return KIT


def on_one_cpu(words: Sequence[str]) -> str:
    """Recordings share a CPU with what they record, since the emulator's clock is one for all; reports run in here."""
    from measure import run

    if words[0] != "report":
        return run(["taskset", "-c", "0", "tdprof", *words])
    text = io.StringIO()
    with redirect_stdout(text):
        tdprof_main.cli.main(list(words), standalone_mode=False)
    return text.getvalue()


# Metrics of which a run this short gives a handful of samples: they are measured, and not compared.
OF_FEW_SAMPLES = (*METRICS[1:], "instructions a cycle: ")
SUM = "the sum of level 1 "  # which is not known of so few, or holds
# The guest's own core is an N3, whose SPE has no published encoding of sources: events tell first-level hits and misses
# of the last level.
NOT_KNOWN = {"share of loads from l2 from 0.5 to 1", "share of loads from other cores: shares_nothing < shares_a_line"}


@pytest.mark.needs_perf
@pytest.mark.needs_spe
def test_every_check_holds(kit: Path, simulate: Callable[..., Simulation], tmp_path: Path) -> None:
    import checks
    import measure

    program = tmp_path / "programs"
    measure.run(["gcc", "-O1", "-g", "-static", "-no-pie", "-pthread", "-o", str(program), str(kit / "programs.c")])
    # Periods begin with a guess of what is rare; at twice this rate the kernel would throttle some of the events.
    topdown = ["--topdown", "--metrics", ",".join(METRICS), "-F", "4999", "--call-graph", "no", "--cpu", CATALOG.name]
    # More memory than its own table of translations takes costs the emulator a hundred times as long.
    setup = measure.Setup(program, tmp_path, 60, 20, 1, topdown, "period=4096,u", on_one_cpu)
    found = measure.Measured()
    # QEMU's own PMU counts instructions as they are; the simulated one counts what was declared.
    measure.count(setup, found)
    # Each benchmark runs for long: the PMU need not look often where the program is.
    simulate(core="v1", tick_ns=50_000).declare(program, BEHAVIOUR)
    measure.record(setup, found)
    assert found.missing == {}
    few = (*OF_FEW_SAMPLES, *(metric for _, metric, _, _ in checks.BOUNDS))
    every = [check for check in checks.check_all(found) if not any(name in check.must for name in few)]
    assert [str(check) for check in every if check.holds is False] == []
    assert {check.must for check in every if check.holds is None and SUM not in check.must} == NOT_KNOWN
    assert len(every) > 30
