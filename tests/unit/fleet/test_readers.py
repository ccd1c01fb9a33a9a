"""A store read by others: exports with their own readers, and the SQL of docs/fleet.md by engines that are there."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from builders.fleet import NEOVERSE_N1, make_host_capture, tdprof
from tdprof.fleet import rollup

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six hosts, of which the last was recorded twice as long, and one of another kind; some are called as no value."""
    folder = tmp_path_factory.mktemp("fleet")
    for number, host in enumerate(("h0", "h1", "NULL", "__HIVE_DEFAULT_PARTITION__", "%00", "h5")):
        length = 2 if host == "h5" else 1
        samples = {"work": 600 * length, "parse": (300 + 20 * number) * length, "rest": 100 * length}
        make_host_capture(folder / "caps" / f"h{number}", host, samples, seconds=10 * length)
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


@pytest.mark.parametrize(
    "words",
    [
        *(["--diff", "older"], ["--comm", "app"], ["--pid", "1"], ["--tid", "1"], ["--time", "1s-"]),
        *(["--where", "cgroup=/"], ["--symfs", "/"], ["--debug-dir", "/"], ["--no-symbol-cache"]),
    ],
)
def test_what_a_store_does_not_tell_is_not_asked_in_vain(store: Path, words: list[str]) -> None:
    error = tdprof("export", store, "--to", "html", *words).error
    assert error is not None
    assert error.message.startswith(f"{words[0]} is an option for captures")


@dataclass(frozen=True)
class Documented:
    """What docs/fleet.md says to each engine, about a store; and the queries for all of them and for DuckDB."""

    duckdb: str
    clickhouse: str
    spark: str
    shares: str
    paths: str
    polars: str


@pytest.fixture(scope="module")
def documented(store: Path) -> Documented:
    text = (ROOT / "docs/fleet.md").read_text()
    parts = [*re.findall(r"```sql\n(.*?)```", text, re.DOTALL), *re.findall(r"```python\n(.*?)```", text, re.DOTALL)]
    return Documented(*(re.sub("(['\"])prod/", rf"\g<1>{store}/", part) for part in parts))


def statements(text: str) -> list[str]:
    return [each for each in map(str.strip, text.split(";")) if each]


def told_shares(rows: Iterable[tuple[str, str, str, float]], shares: dict[str, float]) -> None:
    """Of both kinds of cores, and those of the report."""
    by_core: dict[str, dict[str, float]] = {}
    for core, _, function, share in rows:
        if share:
            by_core.setdefault(core, {})[function] = share
    assert by_core == {"neoverse-v1": pytest.approx(shares), "neoverse-n1": {"work": 1}}


def test_duckdb(documented: Documented, shares: dict[str, float]) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    session = duckdb.connect()
    session.sql(documented.duckdb)
    told_shares(session.sql(documented.shares).fetchall(), shares)
    paths = session.sql(documented.paths).fetchall()
    stacks = {tuple(stack): samples for core, stack, samples in paths if core == "neoverse-v1"}
    assert stacks[("main", "work")] == 600 * 7


def test_every_host_has_a_name(documented: Documented) -> None:
    duckdb = pytest.importorskip("duckdb", reason="DuckDB is not installed")
    session = duckdb.connect()
    session.sql(documented.duckdb)
    hosts = {host.partition("~")[0] for (host,) in session.sql("SELECT DISTINCT host FROM recordings").fetchall()}
    assert hosts == {"h0", "h1", "NULL", "__HIVE_DEFAULT_PARTITION__", "%00", "h5", "123"}


def test_clickhouse(documented: Documented, shares: dict[str, float]) -> None:
    sessions = pytest.importorskip("chdb.session", reason="ClickHouse is not installed: pip install chdb-core")
    with sessions.Session() as session:
        for statement in statements(documented.clickhouse):
            session.query(statement)
        rows = json.loads(session.query(*statements(documented.shares), "JSONCompact").bytes())["data"]
    told_shares([tuple(row) for row in rows], shares)


@pytest.mark.thorough
def test_spark(documented: Documented, shares: dict[str, float]) -> None:
    spark = pytest.importorskip("pyspark.sql", reason="Spark is not installed: pip install pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs java")
    builder = spark.SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    session = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
    try:
        for statement in statements(documented.spark):
            session.sql(statement)
        told_shares([tuple(row) for row in session.sql(*statements(documented.shares)).collect()], shares)
    finally:
        session.stop()


def test_polars(documented: Documented, shares: dict[str, float]) -> None:
    polars = pytest.importorskip("polars", reason="Polars is not installed")
    made = {"polars": polars}
    exec(documented.polars, made)
    context = polars.SQLContext(recordings=made["recordings"], functions=made["functions"])
    told_shares(context.execute(*statements(documented.shares)).collect().iter_rows(), shares)


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
