"""How many CPUs' time control groups leave: both versions, groups within groups, parts of a hierarchy."""

import math
from pathlib import Path

import pytest

from tdprof.recorder.cgroups import Hierarchy
from tdprof.recorder.cpu_quota import least_quota


def write_v1(folder: Path, quota: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (folder / "cpu.cfs_period_us").write_text("100000\n")


@pytest.mark.parametrize(
    ("groups", "cpus"),
    [
        ("0::/pods/one/inner\n", 2),  # of all groups above it the least
        ("0::/pods\n", 8),
        ("0::/\n", math.inf),
        ("3:cpu,cpuacct:/old\n2:memory:/pods/one\n0::/\n", 0.5),
        ("3:cpuacct:/old\n", math.inf),  # another hierarchy
        ("3:cpu,cpuacct:/gone/from/here\n", math.inf),
        ("0::/../outside\n", math.inf),
        ("", math.inf),  # it has ended
    ],
)
def test_the_least_of_a_process(tmp_path: Path, groups: str, cpus: float) -> None:
    new, old = tmp_path / "new", tmp_path / "old"
    for place, limit in {"pods": "800000 100000", "pods/one": "100000 50000", "pods/one/inner": "max 100000"}.items():
        (new / place).mkdir(parents=True)
        (new / place / "cpu.max").write_text(f"{limit}\n")
    write_v1(old, -1)
    write_v1(old / "old", 50000)
    assert least_quota(groups, [Hierarchy(old, ("cpu", "cpuacct")), Hierarchy(new, ("v2",))]) == cpus
