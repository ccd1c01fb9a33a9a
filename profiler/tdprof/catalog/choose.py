"""Which catalog describes this machine, or the core the user named."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from tdprof.catalog.entries import Catalog
from tdprof.catalog.folder import catalog_folder
from tdprof.catalog.load import load_catalog
from tdprof.catalog.midr import CoreType, Midr, Revision, parse_revision
from tdprof.errors import TdprofError
from tdprof.values import dataclass

# Used for a core that has no catalog of its own: only events that Arm's architecture defines.
ARCHITECTURAL = "armv8-pmuv3"
_REVISION = re.compile(r"[-\s_](r\d{1,2}p\d{1,2})$", re.ASCII)


@dataclass(frozen=True, slots=True)
class CatalogChoice:
    """A catalog, the CPUs it is true for, and what the user should know of the choice.

    Attributes:
        cpus: the CPUs of this machine that the catalog describes; empty where it was named and matches none.
        notes: one line each.
    """

    catalog: Catalog
    cpus: tuple[int, ...]
    notes: tuple[str, ...]


def catalog_names() -> tuple[str, ...]:
    """The names that `--cpu` takes, revisions aside."""
    return tuple(sorted(path.stem for path in catalog_folder().glob("*.json") if path.stem != "schema"))


def load_packaged(name: str, revision: Revision | None = None) -> Catalog:
    """One of our own catalogs by its exact name."""
    return load_catalog(catalog_folder() / f"{name}.json", revision)


def find_by_midr(midr: Midr) -> Catalog | None:
    """The catalog for a core, with the formulas of its revision; None where there is none.

    Implementer and part decide; the revision only chooses among formulas.
    """
    for name in catalog_names():
        catalog = load_packaged(name)
        if (midr.implementer, midr.part) in catalog.parts:
            return load_packaged(name, midr.revision)
    return None


def find_by_name(text: str) -> Catalog:
    """The catalog a user means by "neoverse-n2", "n2", "Neoverse N2", "neoverse-n2-r0p3" or a MIDR value (0x410fd493).

    Raises:
        TdprofError: with the nearest name, if there is no such catalog.
    """
    if re.fullmatch(r"0x[0-9a-fA-F]{8}", text):
        midr = Midr.from_register(int(text, 16))
        catalog = find_by_midr(midr)
        if catalog is None:
            raise TdprofError(f"no catalog for the core {text} ({midr})", hint="tdprof list cpus")
        return catalog
    wanted = re.sub(r"[\s_]+", "-", text.strip().lower())
    base, revision = wanted, None
    suffix = _REVISION.search(wanted)
    if suffix:
        base, revision = wanted[: suffix.start()], parse_revision(suffix[1])
        if max(revision.major, revision.minor) > 15:  # four bits each in MIDR_EL1
            raise TdprofError(f"no core has a revision {revision}", hint=f"--cpu {base}", status=2)
    names = catalog_names()
    for candidate in (base, f"neoverse-{base}"):
        if candidate in names:
            return load_packaged(candidate, revision)
    close = get_close_matches(base, (*names, *(name.removeprefix("neoverse-") for name in names)), n=1, cutoff=0.5)
    hint = f"--cpu {close[0]}" if close else "tdprof list cpus"
    raise TdprofError(f"no catalog for a core named '{text}'", hint=hint, status=2)


def name_of(catalog: Catalog, cpu: str, cores: Sequence[CoreType]) -> str:
    """What `find_by_name` finds a packaged catalog by again, with the revision where that chooses formulas.

    Args:
        cpu: the user's ``--cpu``, or empty: then it was chosen for the first of ``cores``.
    """
    if load_packaged(catalog.name).metrics == catalog.metrics:
        return catalog.name
    given = _REVISION.search(cpu.strip().lower())
    if given:
        return f"{catalog.name}-{given[1]}"
    midr = Midr.from_register(int(cpu, 16)) if cpu else cores[0].midr
    return f"{catalog.name}-{midr.revision}"


def choose_catalog(cores: Sequence[CoreType], *, name: str = "", file: Path | None = None) -> CatalogChoice | None:
    """The catalog to use: the user's file, the core the user named, or the machine's own.

    Args:
        cores: the machine's cores, most CPUs first, as `read_core_types` gives them.
        name: the user's ``--cpu``, or empty.
        file: the user's ``--catalog``, or None.

    Returns:
        None where the machine is no Arm machine and the user named nothing.
    """
    if file is not None:
        return _for_named(load_catalog(file), cores)
    if name:
        catalog = find_by_name(name)
        if revision := _REVISION.search(name.strip().lower()):
            catalog = replace(catalog, notes=(*catalog.notes, _meaning_of(revision[1], catalog)))
        return _for_named(catalog, cores)
    if not cores:
        return None
    core, others = cores[0], cores[1:]
    notes = tuple(
        f"CPUs {format_cpus(other.cpus)} are another core ({other.midr}) and not described" for other in others
    )
    found = find_by_midr(core.midr)
    if found is not None:
        return CatalogChoice(found, core.cpus, found.notes + notes)
    note = f"no catalog for this core ({core.midr}): only architectural events are used; --cpu NAME names a like one"
    return CatalogChoice(load_packaged(ARCHITECTURAL), core.cpus, (note, *notes))


def _meaning_of(revision: str, catalog: Catalog) -> str:
    """What a revision that the user named changes."""
    if catalog.notes:
        return f"whether there is a {catalog.title} {revision} is not checked"
    return f"what is known of {catalog.title} does not depend on its revision: {revision} makes no difference"


def _for_named(catalog: Catalog, cores: Sequence[CoreType]) -> CatalogChoice:
    mine = [core for core in cores if (core.midr.implementer, core.midr.part) in catalog.parts]
    cpus = tuple(sorted(cpu for core in mine for cpu in core.cpus))
    if cores and not mine and catalog.parts:
        note = f"this machine is not a {catalog.title} ({cores[0].midr}): its counts may mean something else"
        return CatalogChoice(catalog, (), (*catalog.notes, note))
    return CatalogChoice(catalog, cpus, catalog.notes)


def format_cpus(cpus: Iterable[int]) -> str:
    """CPU numbers as Linux lists them: "0-3,8"."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(low) if low == high else f"{low}-{high}" for low, high in ranges)


def is_reported(code: int) -> bool:
    """Whether PMCEID0/1_EL0 say if a core implements this event; of the others nothing does."""
    return code & ~0x403F == 0
