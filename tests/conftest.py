"""Options and fixtures that all tests share."""

import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tdprof.cli.memory import take_memory_from_the_system

# As every command does: what Arrow reserves for itself counts against the limit under which tables are read.
take_memory_from_the_system()
# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("tdprof", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tdprof")

GOLDEN = Path(__file__).parent / "golden"
# BPF programs that tests have compiled; each says of which sources, so that none is used for others.
_COMPILED = Path(__file__).parents[1] / ".cache" / "bpf-of-tests"
# What is in these folders is marked `alone`, but for what is marked `beside_others`.
_ALONE = [Path(__file__).parent / name for name in ("attack", "live", "live_aarch64")]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite tests/golden; review the diff")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if any(item.path.is_relative_to(folder) for folder in _ALONE) and not item.get_closest_marker("beside_others"):
            item.add_marker(pytest.mark.alone)


@pytest.fixture(autouse=True, scope="session")
def _own_environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Tests, and the programs they start, leave the user's cache alone, fetch nothing, and know no terminal's width."""
    cache = tmp_path_factory.mktemp("cache")
    _take_new(_COMPILED, cache / "tdprof" / "bpf")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(cache))
        patch.delenv("DEBUGINFOD_URLS", raising=False)
        patch.delenv("COLUMNS", raising=False)
        # An installed tdprof is compiled; without this each of a thousand starts would do it again.
        patch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
        before = signal.signal(
            signal.SIGINT, signal.default_int_handler
        )  # ignored where the tests are a background job
        yield
        signal.signal(signal.SIGINT, before)
    _take_new(cache / "tdprof" / "bpf", _COMPILED)


def _take_new(source: Path, target: Path) -> None:
    """Files of one folder that the other has not; several processes may do it at once."""
    for path in source.glob("*.json"):
        if not (target / path.name).exists():
            target.mkdir(parents=True, exist_ok=True)
            copied = shutil.copy(path, target / f"{path.name}.{os.getpid()}")
            Path(copied).rename(target / path.name)


@pytest.fixture
def check_golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with a file of tests/golden, or rewrite the file under --update-golden."""

    def check(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        assert text == path.read_text(), f"{name} differs: run with --update-golden and review the diff"

    return check
