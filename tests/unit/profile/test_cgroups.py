"""Control groups: what their paths tell, samples by them, and samples chosen by them."""

import pytest

from builders.profiles import ProfileBuilder
from tdprof.errors import TdprofError
from tdprof.model.cgroups import Cgroup
from tdprof.model.choices import GroupKind, Selection
from tdprof.model.profile import Profile
from tdprof.profile.groups import group_samples
from tdprof.profile.selection import select

ID = "0123456789abcdef" * 4
OTHER_ID = "f" * 64
UID = "12345678-90ab-cdef-1234-567890abcdef"
SLICE_UID = UID.replace("-", "_")


@pytest.mark.parametrize(
    ("path", "container", "pod", "unit"),
    [
        (f"/docker/{ID}", ID, None, None),
        (f"/system.slice/docker-{ID}.scope", ID, None, f"docker-{ID}.scope"),
        (f"/kubepods/besteffort/pod{UID}/{ID}", ID, UID, None),
        (
            f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{SLICE_UID}.slice/cri-containerd-{ID}.scope",
            ID,
            UID,
            f"cri-containerd-{ID}.scope",
        ),
        (f"/kubelet/kubepods/pod{UID}/crio-{ID}", ID, UID, None),
        (f"/machine.slice/libpod-{ID}.scope/container", ID, None, f"libpod-{ID}.scope"),
        (f"/docker/{ID}/docker/{OTHER_ID}", OTHER_ID, None, None),  # a container within a container
        ("/lxc.payload.web/init.scope", "web", None, "init.scope"),
        ("/lxc/db", "db", None, None),
        ("/lxc.payload/db/system.slice/ssh.service", "db", None, "ssh.service"),
        ("/lxc.monitor/db", None, None, None),
        ("/machine.slice/machine-a\\x2db.scope", "a-b", None, "machine-a-b.scope"),
        (
            "/machine.slice/systemd-nspawn@a\\x2db.service/payload/system.slice/ssh.service",
            "a-b",
            None,
            "ssh.service",
        ),
        (f"/machine.slice/machine-libpod_pod_{ID}.slice", None, None, f"machine-libpod_pod_{ID}.slice"),
        ("/system.slice/machine-id-commit.service", None, None, "machine-id-commit.service"),
        (
            f"/system.slice/containerd.service/kubepods-besteffort-pod{SLICE_UID}.slice:cri-containerd:{ID}",
            ID,
            UID,
            "containerd.service",
        ),
        (
            "/system.slice/\\xc3\\xbc\\x1b\\xff.service",
            None,
            None,
            "ü\N{REPLACEMENT CHARACTER}\N{REPLACEMENT CHARACTER}.service",
        ),
        ("/ecs/task/0123456789abcdef0123456789abcdef-1234567", "0123456789abcdef0123456789abcdef-1234567", None, None),
        ("/system.slice/nginx.service", None, None, "nginx.service"),
        ("/user.slice/user-1000.slice/user@1000.service/app.slice/vi.scope", None, None, "user@1000.service"),
        ("/user.slice", None, None, "user.slice"),
        ("/podman/build", None, None, None),
        (f"/cache/{ID[:40]}", None, None, None),
        ("/", None, None, None),
        (None, None, None, None),
    ],
)
def test_paths_tell_containers_pods_and_units(
    path: str | None, container: str | None, pod: str | None, unit: str | None
) -> None:
    found = Cgroup(7, path)
    assert (found.container, found.pod, found.unit) == (container, pod, unit)


def some() -> Profile:
    builder = ProfileBuilder()
    paths = (
        f"/kubepods/pod{UID}/{ID}",
        "/system.slice/a.service",
        "/system.slice/a.service/b",
        "/system.slice/ab",
        None,
    )
    for number in range(-1, len(paths)):
        builder.add("main", weight=1 << (number + 1), cgroup=number)
    return builder.build(cgroups=[Cgroup(number + 10, path) for number, path in enumerate(paths)])


def test_rows_are_control_groups() -> None:
    groups = group_samples(some(), GroupKind.CGROUP)
    assert groups.weight[:, 0].tolist() == [32, 16, 8, 4, 2, 1]
    assert groups.name[0] == "[no path] 14"
    assert groups.name[1:4] == ["/system.slice/ab", "/system.slice/a.service/b", "/system.slice/a.service"]
    assert groups.name[5] == "[not recorded]"
    assert [cgroup and cgroup.id for cgroup in groups.cgroup] == [14, 13, 12, 11, 10, None]


@pytest.mark.parametrize(
    ("names", "weight"),
    [
        (("/",), 30),
        (("/system.slice",), 28),
        (("/system.slice/a.service",), 12),  # what is below, too, but not what only begins like it
        (("/system.slice/a.service/",), 12),
        (("system.slice",), 28),  # as `record --cgroup` takes it
        (("system.slice/a.service/b",), 8),
        (("a.service",), 12),
        ((ID,), 2),
        ((ID[:12],), 2),
        ((UID, "/system.slice/ab"), 18),
        (("[no path] 14",), 32),
        (("[not recorded]",), 1),
    ],
)
def test_samples_are_chosen_by_path_container_pod_and_unit(names: tuple[str, ...], weight: int) -> None:
    assert int(select(some(), Selection(cgroups=names)).samples.weight.sum()) == weight


@pytest.mark.parametrize("name", ["/system", "system", ID[:11], "b.service", "/system.slice/a.service/b/c"])
def test_a_name_that_means_none_is_refused(name: str) -> None:
    with pytest.raises(TdprofError, match="no sample is of --where cgroup=") as caught:
        select(some(), Selection(cgroups=(name,)))
    assert "--where cgroup=" in (caught.value.hint or "")


def test_recordings_without_control_groups_cannot_be_chosen_from() -> None:
    profile = ProfileBuilder().add("main").build()
    with pytest.raises(TdprofError, match="does not tell control groups"):
        select(profile, Selection(cgroups=("/",)))


def test_where_both_versions_have_a_group_of_one_path_the_first_says_so() -> None:
    """As the roots of a container's own namespace."""
    builder = ProfileBuilder()
    for number in range(4):
        builder.add("main", weight=8 >> number, cgroup=number)
    paths = {7: "/", 1 << 31 | 1: "/", 8: "/a", 1 << 31 | 2: "/b"}
    groups = group_samples(builder.build(cgroups=[Cgroup(*each) for each in paths.items()]), GroupKind.CGROUP)
    assert list(groups.name) == ["/", "/ (version 1)", "/a", "/b"]
