"""The validation kit on the simulated Neoverse: where a core's behaviour is declared, what it checks holds."""

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from live_aarch64.benchmarks import BEHAVIOUR, CATALOG
from live_aarch64.neoverse_sim import Simulation
from tdprof.cli import main as tdprof_main
from tdprof.decode.spe.data_sources import encoding_of

KIT = Path(__file__).resolve().parents[2] / "tools/validation"


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


# Metrics of which a run this short may give too few samples to say anything: where they do, it holds.
OF_FEW_SAMPLES = (*(name for name in CATALOG.metrics if name not in CATALOG.roots), "instructions a cycle: ")
SUM = "the sum of level 1 "  # which is not known of so few, or holds
OF_TWO_CORES = "ipc of Topdown / instructions a cycle of tdprof stat"  # of the simulated core and of QEMU's
# What a core without a published encoding of sources leaves open (the guest's is an N3 unless it is told otherwise):
# events tell first-level hits and misses of the last level.
NOT_KNOWN = {"share of loads from l2 from 0.5 to 1", "share of loads from other cores: shares_nothing < shares_a_line"}
MIDR = Path("/sys/devices/system/cpu/cpu0/regs/identification/midr_el1")


@pytest.mark.needs_perf
@pytest.mark.needs_spe
def test_every_check_holds(kit: Path, simulate: Callable[..., Simulation], tmp_path: Path) -> None:
    import checks
    import measure

    program = tmp_path / "programs"
    measure.run(["gcc", "-O1", "-g", "-static", "-no-pie", "-pthread", "-o", str(program), str(kit / "programs.c")])
    # Periods begin with a guess of what is rare; at twice this rate the kernel would throttle some of the events.
    topdown = ["--topdown=all", "-F", "4999", "--call-graph", "no", "--cpu", CATALOG.name]
    # More memory than its own table of translations takes costs the emulator a hundred times as long.
    setup = measure.Setup(program, tmp_path, 150, 20, 1, topdown, "period=4096,u", on_one_cpu)
    found = measure.Measured()
    # QEMU's own PMU counts instructions as they are; the simulated one counts what was declared.
    measure.count(setup, found)
    # Each benchmark runs for long: the PMU need not look often where the program is.
    simulate(core="v1", tick_ns=50_000).declare(program, BEHAVIOUR)
    measure.record(setup, found)
    assert found.missing == {}
    every = [check for check in checks.check_all(found) if OF_TWO_CORES not in check.must]
    assert [str(check) for check in every if check.holds is False] == []
    not_known = set() if encoding_of(int(MIDR.read_text(), 0)) else NOT_KNOWN
    many = [check for check in every if not any(name in check.must for name in OF_FEW_SAMPLES)]
    assert {check.must for check in many if check.holds is None and SUM not in check.must} == not_known
    assert len(many) > 30
