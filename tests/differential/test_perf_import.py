"""An imported capture's numbers against ``perf report`` on the same file: exact, not within an error."""

from collections import Counter
from pathlib import Path

import pytest

from builders.opened import profile_of
from builders.perf_tool import NO_PERF, find_perf, perf_shares, run_perf
from tdprof.model.profile import Profile
from tdprof.pipeline.import_perf import import_perf_data

pytestmark = [pytest.mark.needs_perf, pytest.mark.skipif(find_perf() is None, reason=NO_PERF)]

# Several programs one after the other in one process, in children, and at once: exec and fork decide who is who.
_WORK = """
for i in 1 2 3; do dd if=/dev/zero bs=1k count=20000 2>/dev/null | cksum; done
(exec sort --version) & (exec ls -R /usr/share/doc) & wait
exec cksum /usr/bin/perf
"""
_PROGRAMS = {"dd", "cksum", "sort", "ls"}


def by_thread_name(profile: Profile) -> Counter[str]:
    shares: Counter[str] = Counter()
    for name, weight in zip(profile.samples.thread_name.tolist(), profile.samples.weight.tolist(), strict=True):
        shares[profile.thread_names[name]] += weight
    return shares


def by_file(profile: Profile) -> Counter[str]:
    """Of each sample's leaf; only files by their base name, as perf shows them."""
    shares: Counter[str] = Counter()
    start, location = profile.stacks.start, profile.stacks.location
    for stack, weight in zip(profile.samples.stack.tolist(), profile.samples.weight.tolist(), strict=True):
        file = profile.locations.mapped_file[location[start[stack]]]
        if file >= 0 and profile.mapped_files[file].path.startswith("/"):
            shares[Path(profile.mapped_files[file].path).name] += weight
    return shares


@pytest.mark.parametrize("options", ["-g", "-a -g", "-z -g", "--buildid-mmap"])
def test_shares_are_those_of_perf_report(tmp_path: Path, options: str) -> None:
    command = ["-F", "1999", *options.split(), "-o", "perf.data", "--", "sh", "-c", _WORK]
    result = run_perf("record", "-q", *command, cwd=tmp_path)
    if result.returncode:
        pytest.skip(f"perf record {options}: {result.stderr.decode().strip().splitlines()[-1:]}")
    import_perf_data(str(tmp_path / "perf.data"), tmp_path / "capture")
    profile = profile_of(tmp_path / "capture")
    ours, theirs = by_thread_name(profile), perf_shares(tmp_path / "perf.data", "comm")
    assert ours.total() == theirs.total()
    # Among all of a machine's processes perf sometimes takes a name of another moment: records of different CPUs that
    # lie within one flush. What this test runs itself must agree.
    names = _PROGRAMS if "-a" in options else ours | theirs
    assert {name: ours[name] for name in names} == {name: theirs[name] for name in names}
    theirs = perf_shares(tmp_path / "perf.data", "dso")
    ours = by_file(profile)
    assert len(ours) > 1
    assert ours == {name: theirs[name] for name in ours}
