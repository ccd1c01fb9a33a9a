"""The runtimes that made code without a map, as the call stacks of its processes show them."""

import pytest

from builders.profiles import Call, Frame, ProfileBuilder
from tdprof.model.addresses import Unknown
from tdprof.model.profile import Profile
from tdprof.profile.hotspots import unknown_samples
from tdprof.profile.runtimes import runtimes_without_map
from tdprof.report.summary import doubts

NAMELESS = Call((Frame("[run-time code]", module="[anon]"),), reason=Unknown.NO_PERF_MAP)


def profile_of(*modules: str) -> Profile:
    """A process of these modules that runs nameless code, beside one of Python that runs none."""
    builder = ProfileBuilder().add(Frame("eval", module="/usr/bin/python3.11"), pid=7)
    builder.add(NAMELESS, pid=8).add(pid=8)
    for module in modules:
        builder.add(Frame("loop", module=module), pid=8)
    return builder.build()


@pytest.mark.parametrize(
    ("module", "way"),
    [
        ("/usr/lib/jvm/java-17-openjdk-amd64/lib/server/libjvm.so", "jcmd PID Compiler.perfmap"),
        ("/usr/bin/node", "node --perf-basic-prof"),
        ("/usr/lib/x86_64-linux-gnu/libpython3.13.so.1.0", "python -X perf"),
        ("/opt/python/bin/python3.13", "python -X perf"),
        ("/usr/share/dotnet/shared/Microsoft.NETCore.App/8.0.1/libcoreclr.so", "DOTNET_PerfMapEnabled=1"),
    ],
)
def test_the_hint_is_for_the_runtime_that_was_seen(module: str, way: str) -> None:
    profile = profile_of("/usr/lib/libc.so.6", module)
    (found,) = runtimes_without_map(profile)
    assert found.to_write_a_map.startswith(way)
    assert any(f"no /tmp/perf-PID.map names ({way}" in line for line in doubts(profile, unknown_samples(profile)))


def test_of_an_unknown_runtime_no_other_ones_way_is_told() -> None:
    profile = profile_of("/usr/bin/luajit")
    assert runtimes_without_map(profile) == []
    (line,) = [line for line in doubts(profile, unknown_samples(profile)) if "run-time code" in line]
    assert "python" not in line
    assert "docs/symbols.md" in line
