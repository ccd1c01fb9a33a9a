"""Which catalog is chosen, from names, MIDR values and a machine's sysfs."""

from pathlib import Path

import pytest

from tdprof.catalog.choose import choose_catalog, find_by_name, format_cpus
from tdprof.catalog.midr import CoreType, Midr, Revision, parse_revision, read_core_types
from tdprof.errors import TdprofError

N1_R3P1 = 0x413FD0C1  # Graviton2


def machine(folder: Path, *registers: int) -> list[CoreType]:
    """A sysfs with one CPU for each MIDR value."""
    for cpu, register in enumerate(registers):
        path = folder / f"devices/system/cpu/cpu{cpu}/regs/identification"
        path.mkdir(parents=True)
        (path / "midr_el1").write_text(f"0x{register:016x}\n")
    (folder / "devices/system/cpu/cpufreq").mkdir(parents=True)
    return read_core_types(folder)


def test_midr_fields() -> None:
    assert Midr.from_register(N1_R3P1) == Midr(0x41, 0xD0C, Revision(3, 1))


def test_revisions_order_by_variant_first() -> None:
    assert parse_revision("r0p3") < parse_revision("r0p10") < parse_revision("r1p0")


def test_every_cpu_is_read(tmp_path: Path) -> None:
    types = machine(tmp_path, 0x410FD490, 0x410FD490, 0x411FD401)
    assert [(core.midr.part, core.cpus) for core in types] == [(0xD49, (0, 1)), (0xD40, (2,))]


def test_no_midr_means_no_arm_machine(tmp_path: Path) -> None:
    assert machine(tmp_path) == []
    assert choose_catalog([]) is None


def test_the_machines_own_catalog(tmp_path: Path) -> None:
    choice = choose_catalog(machine(tmp_path, N1_R3P1, N1_R3P1))
    assert choice is not None
    assert (choice.catalog.name, choice.cpus, choice.notes) == ("neoverse-n1", (0, 1), ())


def test_a_mixed_machine_is_described_where_most_cpus_are(tmp_path: Path) -> None:
    choice = choose_catalog(machine(tmp_path, 0x411FD401, 0x410FD490, 0x410FD490))
    assert choice is not None
    assert (choice.catalog.name, choice.cpus) == ("neoverse-n2", (1, 2))
    assert choice.notes[-1] == "CPUs 0 are another core (implementer 0x41, part 0xd40, r1p1) and not described"


@pytest.mark.parametrize(
    ("register", "is_corrected"),
    [(0x410FD490, True), (0x410FD492, True), (0x6D0FD490, True),
     (0x410FD493, False), (0x6D0FD493, False), (0x411FD490, False)],
)  # fmt: skip
def test_n2_revision_decides_the_formulas(tmp_path: Path, register: int, is_corrected: bool) -> None:
    choice = choose_catalog(machine(tmp_path, register))
    assert choice is not None
    assert choice.catalog.name == "neoverse-n2"
    assert ("STALL_SLOT - CPU_CYCLES" in choice.catalog.metrics["retiring"].formula) == is_corrected
    assert len(choice.notes) == 1


def test_an_unknown_core_gets_architectural_events_and_a_line(tmp_path: Path) -> None:
    choice = choose_catalog(machine(tmp_path, 0xC00FAC50))
    assert choice is not None
    assert choice.catalog.name == "armv8-pmuv3"
    assert choice.notes[0].startswith("no catalog for this core (implementer 0xc0, part 0xac5, r0p0)")


def test_a_named_core_is_used_with_a_warning(tmp_path: Path) -> None:
    choice = choose_catalog(machine(tmp_path, N1_R3P1), name="v1")
    assert choice is not None
    assert (choice.catalog.name, choice.cpus) == ("neoverse-v1", ())
    assert "this machine is not a Neoverse V1" in choice.notes[-1]


@pytest.mark.parametrize("name", ["neoverse-n2", "N2", "n2", "Neoverse N2", "neoverse_n2", "0x410fd490", "n2-r0p1"])
def test_names_that_mean_n2_as_shipped(name: str) -> None:
    catalog = find_by_name(name)
    assert catalog.name == "neoverse-n2"
    assert "STALL_SLOT - CPU_CYCLES" in catalog.metrics["retiring"].formula


@pytest.mark.parametrize("name", ["neoverse-n2-r0p3", "0x410fd493", "N2-r1p0"])
def test_names_that_mean_n2_without_the_erratum(name: str) -> None:
    assert "STALL_SLOT - CPU_CYCLES" not in find_by_name(name).metrics["retiring"].formula


def test_a_named_revision_is_answered_with_what_it_means() -> None:
    def notes(name: str) -> tuple[str, ...]:
        choice = choose_catalog([], name=name)
        assert choice is not None
        assert choice.notes == choice.catalog.notes
        return choice.notes

    assert len(notes("n2")) == 1
    assert notes("n2-r9p9")[-1] == "whether there is a Neoverse N2 r9p9 is not checked"
    assert "r0p3 and later" in notes("Neoverse N2 R9P9")[0]
    assert notes("v1") == ()
    assert "r1p1 makes no difference" in notes("v1-r1p1")[-1]
    with pytest.raises(TdprofError, match="no core has a revision r16p0"):
        find_by_name("neoverse-n2-r16p0")
    with pytest.raises(TdprofError, match="no catalog for"):
        find_by_name("neoverse-n2-r100p0")


@pytest.mark.parametrize(
    ("name", "hint"),
    [("neoverse-n33", "--cpu neoverse-n3"), ("v11", "--cpu v1"), ("zen4", "tdprof list cpus"),
     ("0x410fd000", "tdprof list cpus"), ("schema", "tdprof list cpus"), ("../../x", "tdprof list cpus")],
)  # fmt: skip
def test_a_wrong_name_says_what_to_type(name: str, hint: str) -> None:
    with pytest.raises(TdprofError, match="no catalog for") as caught:
        find_by_name(name)
    assert caught.value.hint == hint


def test_cpu_ranges() -> None:
    assert format_cpus([5, 0, 1, 2, 8, 9]) == "0-2,5,8-9"
