"""What several unit tests need."""

import pytest

from tdprof.decode.perf import groups as perf_groups


@pytest.fixture(params=["compiled", "python"])
def implementation(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways of adding up samples and branches."""
    if request.param == "python":
        monkeypatch.setattr(perf_groups, "load_native", lambda: None)
    name: str = request.param
    return name
