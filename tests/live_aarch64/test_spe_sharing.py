"""What two processes share, by physical addresses, against what the kernel says of their pages."""

import io
import json
import subprocess
from collections.abc import Callable
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from live_aarch64.machine import run_tdprof
from live_aarch64.neoverse_sim import Simulation
from tdprof.cli import main as tdprof_main

HERE = Path(__file__).parent
LINE = 64  # of each page, the one that is used


def rows_of(capture: Path, by: str) -> dict[str, dict[str, Any]]:
    text = io.StringIO()
    with redirect_stdout(text):
        arguments = ["report", str(capture), "--spe", "--by", by, "--json"]
        tdprof_main.cli.main(arguments, standalone_mode=False)
    return {row["name"]: row for row in json.loads(text.getvalue())["rows"]}


@pytest.mark.needs_spe
@pytest.mark.parametrize("more", [(), ("-a",)], ids=["command", "all"])
def test_what_processes_share_is_what_the_kernel_says(
    simulate: Callable[..., Simulation], tmp_path: Path, more: tuple[str, ...]
) -> None:
    program = tmp_path / "sharing"
    subprocess.run(["gcc", "-O1", "-g", "-Wall", "-no-pie", "-o", program, HERE / "sharing.c"], check=True)
    simulate()
    options = ("--no-bpf", "-e", "page-faults:u", "--spe=pa,period=2048,u")
    ran = run_tdprof("record", *options, *more, "-o", tmp_path / "capture", "--", program, 8_000_000)
    told = [line.split() for line in ran.stdout.splitlines() if len(line.split()) == 4]
    pids = [int(pid) for pid, *_ in told]
    (shared, copied, read), (also_shared, other_copy, also_read) = ([int(each, 16) for each in row[1:]] for row in told)
    assert shared == also_shared != 0
    assert read == also_read != 0
    assert copied != other_copy
    lines = rows_of(tmp_path / "capture", "address")

    def line_of(page: int) -> dict[str, Any]:
        row = lines[f"pa 0x{page + LINE:x}"]
        assert row["counts"]["operations"] > 200
        row["pids"] = sorted(user["pid"] for user in row["processes"] if user["pid"] in pids)
        return row

    assert line_of(shared)["sharing"] == "false"
    assert line_of(shared)["pids"] == sorted(pids)
    assert {user["address"] for user in line_of(shared)["processes"]} >= {"0x10000040", "0x20000040"}
    what = {
        (access["address"], access["offset"], access["function"], access["command"])
        for access in line_of(shared)["shared_by"]["accesses"]
    }
    assert what == {
        ("0x10000040", 0, "parent_works", "sharing"),
        ("0x20000040", 8, "child_works", "sharing"),
    }
    for access in line_of(shared)["shared_by"]["accesses"]:
        assert (access["stores"] if access["offset"] == 0 else access["loads"]) > 100
        assert (access["loads"] if access["offset"] == 0 else access["stores"]) == 0
    assert line_of(shared)["shared_by"]["order"]["changes"] >= 4
    # Each stores to a copy of its own, at the same address; what nobody stores to any more both have.
    for page in (copied, other_copy):
        assert line_of(page)["sharing"] is None
        assert len(line_of(page)["pids"]) == 1
    assert line_of(read)["sharing"] is None
    assert line_of(read)["pids"] == sorted(pids)
    assert not any(name in lines for name in ("0x10000040", "0x30000040"))
    pages = rows_of(tmp_path / "capture", "page")
    assert {user["address"] for user in pages[f"pa 0x{shared:x}"]["processes"]} >= {"0x10000000", "0x20000000"}
