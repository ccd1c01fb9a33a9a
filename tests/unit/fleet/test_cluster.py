"""Dask's workers as processes: the same bytes as in one process, whatever dies."""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from builders import fleet_work
from builders.fleet import make_host_capture, tdprof
from builders.waiting import PATIENCE_S, ends_within, wait_until
from tdprof.cli.fleet_add import LOCAL, engine_for
from tdprof.errors import TdprofError
from tdprof.fleet.add import Added, add_captures
from tdprof.fleet.engine import Engine, InProcessEngine
from tdprof.fleet.sources import find_captures
from tdprof.fleet.store import Store
from tdprof.fleet.work import WorkOptions

distributed = pytest.importorskip("distributed", reason="Dask is not installed: pip install 'tdprof[fleet]'")

from tdprof.fleet import cluster  # noqa: E402  needs what is looked for above
from tdprof.fleet.cluster import DaskEngine  # noqa: E402


@pytest.fixture(autouse=True)
def _ends(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A cluster that does not answer is a failure, and no endless wait; one that is slow is neither."""
    for name in ("_CONNECT_S", "_WORKERS_S"):
        monkeypatch.setattr(cluster, name, int(PATIENCE_S))
    with ends_within(2 * int(PATIENCE_S), TimeoutError("the cluster does not answer")):
        yield


def contents(place: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(place)): path.read_bytes() for path in place.rglob("*") if path.is_file()}
    return {name: content for name, content in found.items() if ".unfinished-" not in name}


def add(place: Path, folders: Sequence[Path], engine: Callable[[int], Engine], **more: object) -> Added:
    options = WorkOptions(str(place))
    found = find_captures([str(each) for each in folders])
    return add_captures(Store.create(str(place)), found, options, engine, **more)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def captures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captures")
    for host in range(17):
        make_host_capture(folder / f"h{host}", f"h{host}", {"work": 50 + host, "rest": 40})
    (folder / "h3" / "samples.parquet").write_bytes(b"PAR1 no more")
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, captures: Path) -> dict[str, bytes]:
    store = tmp_path_factory.mktemp("alone")
    add(store, [captures], lambda _: InProcessEngine())
    return contents(store)


def test_a_cluster_of_its_own_and_a_capture_that_kills(
    tmp_path: Path, captures: Path, expected: dict[str, bytes]
) -> None:
    """The killer is named and the captures that were read beside it are in."""
    killer = tmp_path / "killer"
    shutil.copytree(captures / "h0", killer)
    added = add(
        tmp_path / "store",
        [captures, killer],
        lambda _: DaskEngine(workers=1, second_chances=0),
        work=fleet_work.deadly,
        again=True,
    )
    assert added.added == 16
    assert [Path(each.source).name for each in added.rejected] == ["h3", "killer"]
    assert "dies" in added.rejected[1].reason
    store = Store(str(tmp_path / "store"))
    store.accept(str(killer))
    assert contents(tmp_path / "store") == expected


def test_a_capture_whose_workers_somebody_kills_is_not_to_blame(
    tmp_path: Path, captures: Path, expected: dict[str, bytes]
) -> None:
    """Of six workers in a row that die while one capture is read, none died of it: the same bytes, however long it is
    until the next are there, on a busy machine.
    """
    innocent, shots = tmp_path / "hunted", tmp_path / "shots"
    shutil.copytree(captures / "h0", innocent)
    shots.mkdir()
    for number in range(6):
        (shots / str(number)).touch()
    folders = [innocent, *(captures / f"h{host}" for host in range(1, 17))]
    with cluster.dask.config.set({"distributed.deploy.lost-worker-timeout": "0s"}):
        added = add(
            tmp_path / "store", folders, lambda _: DaskEngine(workers=2, second_chances=0), work=fleet_work.hunted
        )
    assert [Path(each.source).name for each in added.rejected] == ["h3"]
    assert not list(shots.iterdir())
    assert contents(tmp_path / "store") == expected


def test_workers_that_are_killed_as_they_start_are_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dask gives its cluster up then; what it says when nobody is left is not its traceback."""
    starts = []

    class Dying:
        def __init__(self, **asked: object) -> None:
            starts.append(asked)
            raise RuntimeError("Nanny failed to start.")

    monkeypatch.setattr(cluster.distributed, "LocalCluster", Dying)
    with pytest.raises(TdprofError, match="die as they start"):
        DaskEngine(workers=2).open()
    assert len(starts) > 10


def test_a_worker_has_one_heap() -> None:
    """Of a thread's own one most goes back after each capture, and is cleared by the kernel for the next."""
    engine = DaskEngine(workers=1)
    engine.open()
    try:
        engine.submit(fleet_work.heaps, ["any"], "")
        assert [each.result for each in engine.as_completed()] == [b"1"]
    finally:
        engine.close()


def test_dask_is_taken_for_many_captures_or_when_asked() -> None:
    for workers, captures, is_dask in ((None, 15, False), (2, 15, True), (1, 500, False)):
        assert isinstance(engine_for(LOCAL, workers, captures, insecure=False), DaskEngine) == is_dask
    assert isinstance(engine_for("tls://scheduler:8786", None, 1, insecure=False), DaskEngine)


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keys that scheduler, workers and client take from Dask's configuration."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl, which makes the keys")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run(["openssl", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    names = {"CA_FILE": certificate}
    for role in ("SCHEDULER", "WORKER", "CLIENT"):
        names |= {f"{role}__CERT": certificate, f"{role}__KEY": key}
    for name, path in names.items():
        monkeypatch.setenv(f"DASK_DISTRIBUTED__COMM__TLS__{name}", str(path))
    import dask

    dask.config.refresh()


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.kill()
        process.wait()


@pytest.mark.thorough
def test_real_workers_over_tls_one_killed(
    tmp_path: Path, captures: Path, expected: dict[str, bytes], tls: None, processes: list[subprocess.Popen[bytes]]
) -> None:
    told = tmp_path / "scheduler.json"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}

    def start(*words: object) -> None:
        command = [sys.executable, "-m", f"distributed.cli.{words[0]}", *map(str, words[1:])]
        processes.append(subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.DEVNULL))

    common = ("--host", "127.0.0.1", "--protocol", "tls")
    start("dask_scheduler", *common, "--port", "0", "--no-dashboard", "--scheduler-file", told)
    for _ in range(2):
        start(
            "dask_worker",
            "--protocol",
            "tls",
            "--nthreads",
            "1",
            "--no-nanny",
            "--no-dashboard",
            "--scheduler-file",
            told,
        )
    # The file is there before what it says.
    wait_until(lambda: told.exists() and told.read_text().endswith("}"), processes[0])
    address = json.loads(told.read_text())["address"]
    assert address.startswith("tls://")
    killed: list[int] = []

    def kill_one(done: int) -> None:
        if not killed:
            killed.append(done)
            processes[1].send_signal(signal.SIGKILL)

    added = add(
        tmp_path / "store", [captures], lambda _: DaskEngine(address), work=fleet_work.slowly, progress=kill_one
    )
    assert killed
    assert added.added == 16
    assert contents(tmp_path / "store") == expected


def test_a_scheduler_that_anybody_may_speak_to_is_refused(tmp_path: Path, captures: Path) -> None:
    for address in ("tcp://192.0.2.1:8786", "tcp://scheduler:8786", "tcp://", "tcp://[2001:db8::1]:1"):
        with pytest.raises(TdprofError, match="without TLS"):
            DaskEngine(address)
    DaskEngine("tcp://127.0.0.1:8786")
    DaskEngine("tcp://192.0.2.1:8786", insecure=True)
    assert tdprof("fleet", "add", tmp_path / "s", captures, "--engine", "spark").status == 2


def test_keys_that_are_missing_or_none_are_said(tmp_path: Path) -> None:
    """What Dask raises then is a TypeError, after half a minute."""
    import dask

    (tmp_path / "none.pem").write_text("no key")
    for ca_file, words in ((None, "no TLS keys"), ("gone.pem", "cannot be used"), ("none.pem", "cannot be used")):
        path = ca_file and str(tmp_path / ca_file)
        keys = {f"distributed.comm.tls.{name}": path for name in ("ca-file", "client.cert", "client.key")}
        with dask.config.set(keys), pytest.raises(TdprofError, match=words) as raised:
            DaskEngine("tls://127.0.0.1:1").open()
        assert "CLIENT__KEY" in (raised.value.hint or "")


@pytest.mark.parametrize("address", ["", "tcp://127.0.0.1:1"])
def test_a_cluster_without_the_encryption_that_is_required_is_refused(address: str) -> None:
    import dask

    required = {"distributed.comm.require-encryption": True}
    with dask.config.set(required), pytest.raises(TdprofError, match="requires encryption"):
        DaskEngine(address).open()
