"""A store read by others: exports with their own readers, and the SQL of docs/fleet.md by DuckDB; Polars beside it."""

import json
import re
import subprocess
from pathlib import Path

import pytest

from builders.fleet import NEOVERSE_N1, make_host_capture, tdprof
from tdprof.fleet import rollup

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six hosts, of which the last was recorded twice as long, and one of another kind."""
    folder = tmp_path_factory.mktemp("fleet")
    for host in range(6):
        length = 2 if host == 5 else 1
        samples = {"work": 600 * length, "parse": (300 + 20 * host) * length, "rest": 100 * length}
        make_host_capture(folder / "caps" / f"h{host}", f"h{host}", samples, seconds=10 * length)
    make_host_capture(folder / "caps" / "other", "123", {"work": 5}, midr=NEOVERSE_N1)
    assert tdprof("fleet", "add", folder / "prod", folder / "caps").status == 0
    return folder / "prod"


@pytest.fixture(scope="module")
def shares(store: Path) -> dict[str, float]:
    told = json.loads(tdprof("fleet", "report", store, "--json", "--where", "core=neoverse-v1").stdout)
    return {row["name"]: row["self"]["share"] for row in told["strata"][0]["functions"] if row["self"]["share"]}


def test_folded_stacks_have_the_shares_of_the_report(store: Path, shares: dict[str, float]) -> None:
    ran = tdprof("export", store, "--to", "folded", "--recordings", "core=neoverse-v1")
    weights = dict(line.rsplit(" ", 1) for line in ran.stdout.splitlines())
    total = sum(map(int, weights.values()))
    found = {stack.split(";")[-1]: int(weight) / total for stack, weight in weights.items()}
    assert found == pytest.approx(shares, rel=1e-6)
    assert all(stack.startswith("6 hosts;main;") for stack in weights)


@pytest.mark.parametrize("form", ["html", "pprof", "speedscope"])
def test_every_format_is_written_the_same_each_time(store: Path, tmp_path: Path, form: str) -> None:
    for name in ("one", "two"):
        words = ("export", store, "--to", form, "--recordings", "core=neoverse-v1", "-o", tmp_path / name)
        assert tdprof(*words).status == 0
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    assert (tmp_path / "one").stat().st_size > 300


def test_pprof_reads_it(store: Path, tmp_path: Path, shares: dict[str, float]) -> None:
    file = tmp_path / "fleet.pb.gz"
    tdprof("export", store, "--to", "pprof", "--recordings", "core=neoverse-v1", "-o", file)
    ran = subprocess.run(["go", "tool", "pprof", "-top", str(file)], capture_output=True, text=True, check=True)
    found = {
        line.split()[-1]: float(line.split()[1][:-1]) / 100
        for line in ran.stdout.splitlines()
        if " main" not in line and re.match(r"\s*[\d.]+\w* +\d", line)
    }
    assert found["work"] == pytest.approx(shares["work"], abs=1e-3)


def test_several_kinds_of_cores_are_not_put_together(store: Path) -> None:
    ran = tdprof("export", store, "--to", "folded")
    assert ran.status == 2
    assert ran.error is not None
    assert ran.error.hint == "--recordings core=neoverse-n1"
    assert "123" not in tdprof("export", store, "--to", "folded", "--recordings", "host=h1").stdout


def test_the_documents_sql_gives_the_shares_of_the_report(store: Path, shares: dict[str, float]) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    documented = re.findall(r"```sql\n(.*?)```", (ROOT / "docs/fleet.md").read_text(), re.DOTALL)
    assert len(documented) == 2
    by_function, by_path = (text.replace("'prod/", f"'{store}/") for text in documented)
    rows = duckdb.sql(by_function).fetchall()
    mine = {function: share for core, _, function, share in rows if core == "neoverse-v1" and share}
    assert mine == pytest.approx(shares)
    assert {core for core, *_ in rows} == {"neoverse-v1", "neoverse-n1"}
    stacks = {tuple(stack): samples for core, stack, samples in duckdb.sql(by_path).fetchall() if core == "neoverse-v1"}
    assert stacks[("main", "work")] == 600 * 7


def test_polars_reads_the_partitions(store: Path) -> None:
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    frame = polars.scan_parquet(
        store / "rollup/functions/v=1/**/*.parquet", hive_partitioning=True, try_parse_hive_dates=False
    )
    chosen = frame.filter(polars.col("core") == "neoverse-v1", polars.col("function") == "parse")
    by_host = chosen.group_by("host").agg(polars.col("self_samples").sum()).collect()
    assert dict(by_host.iter_rows()) == {f"h{host}": (300 + 20 * host) * (2 if host == 5 else 1) for host in range(6)}


def test_what_a_recording_has_too_many_of_stays_in_the_sums(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rollup, "MOST_FUNCTIONS", 2)
    monkeypatch.setattr(rollup, "MOST_PATHS", 1)
    make_host_capture(tmp_path / "cap", "h", {"work": 600, "parse": 300, "rest": 100})
    assert tdprof("fleet", "add", tmp_path / "prod", tmp_path / "cap").status == 0
    (stratum,) = json.loads(tdprof("fleet", "report", tmp_path / "prod", "--json").stdout)["strata"]
    own = {row["name"]: row["self"]["samples"] for row in stratum["functions"]}
    assert own == {"work": 600, "parse": 300, "[others]": 100}
    lines = tdprof("export", tmp_path / "prod", "--to", "folded").stdout.splitlines()
    counts = {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) // 10_000_000 for line in lines}
    assert counts == {"1 host;[others];work": 600, "1 host;[others]": 400}  # main is among the others, too
