"""Which hierarchies of control groups there are, and what a user's path means."""

import errno
import os
from pathlib import Path

import pytest

from tdprof.errors import TdprofError
from tdprof.recorder import cgroups, following
from tdprof.recorder import perf_event as pe
from tdprof.recorder.cgroups import Hierarchy, chosen_cgroups, mounted_hierarchies
from tdprof.recorder.options import RecordOptions

MOUNTS = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
41 31 0:38 / /sys/fs/cgroup/a\\040b rw,relatime - cgroup2 cgroup2 rw
42 31 0:38 / /elsewhere rw,relatime - cgroup2 cgroup2 rw
"""


def test_hierarchies_with_controllers_are_found_once() -> None:
    assert mounted_hierarchies(MOUNTS) == [
        Hierarchy(Path("/sys/fs/cgroup/cpu,cpuacct"), ("cpu", "cpuacct")),
        Hierarchy(Path("/sys/fs/cgroup/a b"), ("v2",)),
    ]


@pytest.fixture
def mounts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folders as two hierarchies have them: both with /shared, each with one of its own below it."""
    for folder in ("v2", "v2/shared", "v2/shared/new", "v1", "v1/shared", "v1/shared/old", "v1/shared-not"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "cgroup.procs").write_text("1\n")
    (tmp_path / "v2/none").mkdir()
    (tmp_path / "v2/shared/new/cgroup.procs").write_text("7\n8\n")
    found = [Hierarchy(tmp_path / "v1", ("memory",)), Hierarchy(tmp_path / "v2", ("v2",))]
    monkeypatch.setattr(cgroups, "mounted_hierarchies", lambda: found)
    return tmp_path


@pytest.mark.parametrize(
    ("named", "mount", "paths"),
    [
        (["/shared"], "v2", ("/shared",)),  # version 2 is asked first
        (["shared/old"], "v1", ("/shared/old",)),
        (["{root}/v1/shared"], "v1", ("/shared",)),
        (["{root}/v1/shared/../shared-not/"], "v1", ("/shared-not",)),
        (["/shared/new", "/shared", "/shared"], "v2", ("/shared",)),  # what is below it is in it already
        (["{root}/v1/shared", "{root}/v1/shared-not"], "v1", ("/shared", "/shared-not")),
        (["/"], "v2", ("/",)),
    ],
)
def test_paths_are_folders_or_below_a_hierarchy(
    mounts: Path, named: list[str], mount: str, paths: tuple[str, ...]
) -> None:
    with chosen_cgroups([name.format(root=mounts) for name in named]) as chosen:
        assert (chosen.hierarchy.mount, chosen.paths) == (mounts / mount, paths)
        assert len(chosen.folders) == len(paths)
        assert not chosen.are_gone()


def test_who_is_in_one_or_below_it_and_when_it_is_gone(mounts: Path) -> None:
    with chosen_cgroups(["/shared"]) as chosen:
        assert sorted(chosen.processes()) == [1, 7, 8]
        (mounts / "v2/shared/cgroup.procs").unlink()
        assert chosen.are_gone()


@pytest.mark.parametrize("named", [["/none"], ["/absent"], ["/shared/old", "/shared/new"], [""]])
def test_what_is_none_is_refused(mounts: Path, named: list[str]) -> None:
    with pytest.raises(TdprofError) as caught, chosen_cgroups(named):
        pass
    assert caught.value.hint


@pytest.mark.parametrize(("code", "is_known"), [(errno.ENOENT, False), (errno.EACCES, True)])
def test_groups_that_the_kernel_keeps_nothing_for_are_said(
    mounts: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_known: bool
) -> None:
    def refuse(*_: object, **__: object) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(pe, "perf_event_open", refuse)
    monkeypatch.setattr(cgroups, "perf_counts_by", lambda _: True)
    with chosen_cgroups(["/shared"]) as chosen:
        if is_known:
            assert following.choose_target(RecordOptions(), None, None, [], chosen).cgroups == chosen.folders
            return
        with pytest.raises(TdprofError, match="no controller is passed on") as caught:
            following.choose_target(RecordOptions(), None, None, [], chosen)
        assert f"{mounts}/v2/cgroup.subtree_control" in (caught.value.hint or "")
