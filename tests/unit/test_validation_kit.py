"""The validation kit's checks: right numbers hold, wrong ones do not, and what was not measured never passes."""

import ast
import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from live_aarch64.benchmarks import BEHAVIOUR, true_metrics
from tdprof.catalog.choose import load_packaged

KIT = Path(__file__).resolve().parents[2] / "tools/validation"


@pytest.fixture(autouse=True)
def kit(monkeypatch):
    monkeypatch.syspath_prepend(KIT)


RAN = "retires 10 1000 0 100 0 5000 0 (nil)\nshares_a_line 10 1000 10 10 0 5000 0 0x5b2600\nsome other words\n"


def measured():
    from measure import Measured, read_ran

    return Measured(
        counted={tool: {"instructions:u": 1001.0, "cycles:u": 250.0} for tool in ("tdprof stat", "perf stat")},
        counted_instructions={"tdprof stat": 1000, "perf stat": 1000},
        topdown={
            "branches_at_random": {"branch_misprediction_ratio": {"value": 0.24, "half_width": 0.01}},
            "branches_foreseen": {"branch_misprediction_ratio": {"value": None, "at_most": 0.001, "half_width": None}},
        },
        topdown_ran=read_ran(RAN),
        spe={
            "loads_of_l1": {
                "name": "loads_of_l1",
                "counts": {"operations": 1800, "loads": 1600},
                "loads_by_level": {"l1": 1590, "l2": 10},
                "latency_cycles": {"total_latency": {"p50": 4.0}},
                "ratios": {"dtlb_walk_ratio": {"value": 0.0}},
            }
        },
        spe_ran=read_ran(RAN),
        lines={0x5B2600: {"sharing": "false", "threads": 2}},
    )


def verdicts(found):
    from checks import check_all

    return {(check.about, check.must): check.holds for check in check_all(found)}


def verdict(found, about, words):
    (one,) = [holds for (name, must), holds in verdicts(found).items() if name == about and words in must]
    return one


def test_what_the_benchmarks_print_is_read():
    from measure import Ran, read_ran

    assert read_ran(RAN) == {
        "retires": Ran(10, 1000, 0, 100, 0, 5000, 0, 0),
        "shares_a_line": Ran(10, 1000, 10, 10, 0, 5000, 0, 0x5B2600),
    }


def test_right_numbers_hold():
    found = measured()
    assert verdict(found, "retires", "instructions of tdprof stat") is True
    assert verdict(found, "branches_at_random", "branch_misprediction_ratio from") is True
    assert verdict(found, "branches_foreseen", "branch_misprediction_ratio from") is True
    assert verdict(found, "loads_of_l1", "share of loads from l1") is True
    assert verdict(found, "shares_a_line", "sharing is false") is True
    assert verdict(found, "all", "no mapping") is True


def test_wrong_numbers_do_not():
    found = measured()
    found.counted["tdprof stat"]["instructions:u"] = 900.0
    found.topdown["branches_at_random"]["branch_misprediction_ratio"]["value"] = 0.02
    found.spe["loads_of_l1"]["loads_by_level"] = {"l1": 10, "dram": 1590}
    found.lines[0x5B2600]["sharing"] = "true"
    found.unmapped = 1
    assert verdict(found, "retires", "instructions of tdprof stat") is False
    assert verdict(found, "retires", "of tdprof stat / of perf stat") is False
    assert verdict(found, "branches_at_random", "branch_misprediction_ratio from") is False
    assert verdict(found, "loads_of_l1", "share of loads from l1") is False
    assert verdict(found, "shares_a_line", "sharing is false") is False
    assert verdict(found, "all", "no mapping") is False


def test_what_is_not_known_well_enough_is_not_measured():
    from checks import LEVEL_1

    found = measured()
    found.spe["loads_of_l1"]["loads_by_level"] = {"unknown": 1600}
    assert verdict(found, "loads_of_l1", "share of loads from l1") is None
    found.topdown["branches_foreseen"]["branch_misprediction_ratio"]["at_most"] = 0.4
    assert verdict(found, "branches_foreseen", "branch_misprediction_ratio from") is None
    # Of few samples: the interval reaches the bound, and what SPE says.
    found.topdown["branches_at_random"]["branch_misprediction_ratio"] |= {"value": 0.05, "half_width": 0.2}
    assert verdict(found, "branches_at_random", "branch_misprediction_ratio from") is None
    assert verdict(found, "branches_at_random", "SPE within") is None
    # Nor does a value within the bounds whose interval is wider than they are.
    found.topdown["branches_at_random"]["branch_misprediction_ratio"] |= {"value": 0.24, "half_width": 0.2}
    assert verdict(found, "branches_at_random", "branch_misprediction_ratio from") is None
    found.topdown_ran = ["retires"]
    found.topdown["retires"] = {metric: {"value": 25.0, "half_width": 5.0} for metric in LEVEL_1}
    assert verdict(found, "retires", "the sum of level 1") is True
    found.topdown["retires"]["retiring"]["half_width"] = 20.0
    assert verdict(found, "retires", "the sum of level 1") is None
    found.topdown["retires"]["retiring"]["value"] = 90.0
    assert verdict(found, "retires", "the sum of level 1") is False


def test_nothing_measured_is_no_check_passed():
    from measure import Measured

    assert set(verdicts(Measured()).values()) == {None}


def test_why_a_part_is_missing_is_said_and_sent(tmp_path, monkeypatch):
    from measure import Measured, NotMeasuredError, Setup, count

    def refuse(words):
        raise NotMeasuredError("tdprof: no PMU here")

    monkeypatch.setenv("PATH", str(tmp_path))
    found = Measured()
    count(Setup(Path("/nonexistent"), tmp_path, tdprof=refuse), found)
    assert found.missing == {"perf stat": "there is no perf here", "tdprof stat": "tdprof: no PMU here"}
    script = """
import runpy, sys
from pathlib import Path
kit = runpy.run_path(sys.argv[1])
from measure import Measured
found = Measured(missing={"spe": "no SPE here"})
folder = Path(sys.argv[2])
(folder / "kept").mkdir()
kit["write_file"](folder / "sent.tar.gz", folder / "kept", kit["check_all"](found), found)
"""
    subprocess.run([sys.executable, "-c", script, KIT / "__main__.py", tmp_path], check=True, env={"PYTHONPATH": KIT})
    with tarfile.open(tmp_path / "sent.tar.gz") as archive:
        sent = json.load(archive.extractfile("tdprof-validation/checks.json"))
        text = archive.extractfile("tdprof-validation/checks.txt").read().decode()
    assert sent["missing"] == {"spe": "no SPE here"}
    assert "no spe: no SPE here" in text
    assert "0 hold, 0 do not" in text


def test_the_simulated_core_is_not_held_to_what_a_program_executes(tmp_path, monkeypatch):
    import measure

    monkeypatch.setattr(measure, "SIMULATED", tmp_path)
    found = measured()
    found.counted = {}
    measure.count(measure.Setup(Path("/nonexistent"), tmp_path), found)
    assert verdict(found, "retires", "instructions of tdprof stat") is None
    assert {*found.missing} == {"perf stat", "tdprof stat"}
    assert "counts what was declared" in found.missing["tdprof stat"]


@pytest.mark.parametrize("path", sorted(KIT.glob("*.py")), ids=lambda path: path.name)
def test_python_3_9_runs_it(path):
    """Of Amazon Linux 2023 and RHEL 9: its grammar, and no annotation is computed, of which it knows no `X | None`."""
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert "annotations" in [
        name.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module == "__future__"
        for name in node.names
    ]


def run_kit(*words, path):
    """The kit's command as on an Arm machine with these programs, until it would measure."""
    script = (
        "import platform, runpy, sys; platform.machine = lambda: 'aarch64'; "
        "del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    command = [sys.executable, "-c", script, KIT, *words]
    return subprocess.run(command, env={"PATH": str(path)}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "words",
    [
        ("--seconds", "nan"),
        ("--seconds", "inf"),
        ("--seconds", "-1"),
        ("--seconds", "1000"),
        ("--memory-mb", "0"),
        ("-o", "/proc/no/such/folder/file"),
        ("-o", "/"),
        ("--pack", "/proc/no/such/folder/file"),
    ],
    ids=" ".join,
)
def test_what_cannot_be_is_refused_before_anything_is_measured(words, tmp_path):
    done = run_kit(*words, path=tmp_path)
    assert done.returncode == 2
    assert f"argument {'-o/--output' if words[0] == '-o' else words[0]}" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_compiler_that_fails_is_no_traceback(tmp_path):
    """As where the C library is not there to be linked with."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"gcc": "echo cannot find -lc >&2; exit 1", "tdprof": "exit 0"}.items():
        (folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (folder / name).chmod(0o755)
    for words in (["--pack", tmp_path / "validate.pyz"], ["-o", tmp_path / "sent.tar.gz"]):
        done = run_kit(*words, path=folder)
        assert done.returncode == 3
        assert done.stderr == "validate: gcc fails (its C library, libc6-dev or glibc-static?)\ncannot find -lc\n"
    assert [*tmp_path.iterdir()] == [folder]


def test_a_wrong_formula_of_a_metric_with_bounds_is_noticed():
    """As with a factor of a hundred too much or, where something must be, too little."""
    from checks import BOUNDS
    from measure import Measured

    for benchmark, metric, low, high in BOUNDS:
        right = (max(low, 0) + high) / 2
        for value, holds in ((right, True), (100 * high + 1, False), *([(low / 100, False)] if low > 0 else [])):
            found = Measured(topdown={benchmark: {metric: {"value": value, "half_width": value / 100}}})
            assert verdict(found, benchmark, f"{metric} from") is holds, (benchmark, metric, value)
    found = measured()
    for value, holds in ((4.0, True), (8.0, False)):
        found.topdown["retires"] = {"ipc": {"value": value, "half_width": 0.1}}
        assert verdict(found, "retires", "ipc of Topdown") is holds


def declared(break_metric="", by=lambda value: value):
    """All that Topdown says of a core that behaves as declared, one metric by a wrong formula."""
    from measure import Measured

    return Measured(
        topdown={
            benchmark: {
                metric: {"value": by(value) if metric == break_metric else value, "half_width": 0.0}
                for metric, value in metrics.items()
            }
            for benchmark, metrics in true_metrics().items()
        },
        topdown_ran=dict.fromkeys(BEHAVIOUR),
        counted={"tdprof stat": {"instructions:u": 6000.0, "cycles:u": 1000.0}},
        counted_instructions={"tdprof stat": 6000},
    )


def test_all_that_is_checked_of_topdown_holds_where_the_core_behaves_as_declared():
    from checks import BOUNDS

    known = {key: holds for key, holds in verdicts(declared()).items() if holds is not None}
    assert {key for key, holds in known.items() if not holds} == set()
    assert len(known) > len(BOUNDS) + 30


# What a bound cannot tell, since little of it is expected in any benchmark: a factor that makes less of it.
OF_LITTLE = {
    "crypto_percentage", "itlb_mpki", "itlb_walk_ratio", "l1i_tlb_miss_ratio",
    "l1i_tlb_mpki", "ll_cache_read_hit_ratio", "simd_percentage", "store_percentage", "sve_all_percentage",
}  # fmt: skip
UNKNOWN = {"l2_tlb_miss_ratio", "l2_tlb_mpki"}


@pytest.mark.parametrize(
    ("by", "unnoticed"),
    [
        (lambda value: value * 100, UNKNOWN),
        (lambda value: value / 100, UNKNOWN | OF_LITTLE),
        (lambda value: 1 / value if value else 1e9, UNKNOWN),
    ],
    ids=["a hundred times", "a hundredth", "upside down"],
)
def test_a_formula_that_is_broken_breaks_a_check(by, unnoticed):
    catalog = load_packaged("neoverse-v1")
    assert {name for name in catalog.metrics if False not in verdicts(declared(name, by)).values()} == unnoticed


def test_which_metrics_nothing_is_known_of():
    """All others have a bound, or an order among benchmarks, that a wrong formula breaks."""
    import checks

    catalog = load_packaged("neoverse-v1")
    source = Path(checks.__file__).read_text()
    assert {name for name in catalog.metrics if f'"{name}"' not in source} == {"l2_tlb_miss_ratio", "l2_tlb_mpki"}
