"""The options that name a core, shared by the commands that need a catalog."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from tdprof.catalog.choose import CatalogChoice, choose_catalog
from tdprof.catalog.midr import read_core_types
from tdprof.errors import TdprofError

Command = TypeVar("Command", bound=Callable[..., Any])


def core_options(command: Command) -> Command:
    """Add ``--cpu`` and ``--catalog``."""
    command = click.option(
        "--catalog",
        "catalog_file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Use this catalog, such as a telemetry file published by Arm, instead of the packaged ones.",
    )(command)
    return click.option(
        "--cpu",
        metavar="NAME",
        default="",
        help="The core, such as neoverse-n3, v1, neoverse-n2-r0p3, or a MIDR value; default: this machine's.",
    )(command)


def chosen_catalog(cpu: str, catalog_file: Path | None) -> CatalogChoice | None:
    """The catalog that the options or this machine name; None where neither does.

    Raises:
        TdprofError: both options are given, or what they name does not exist.
    """
    if cpu and catalog_file:
        raise TdprofError("--cpu and --catalog exclude each other: both name the catalog", status=2)
    return choose_catalog(read_core_types(), name=cpu, file=catalog_file)


def required_catalog(cpu: str, catalog_file: Path | None) -> CatalogChoice:
    """As `chosen_catalog`, but an error where there is none."""
    choice = chosen_catalog(cpu, catalog_file)
    if choice is None:
        raise TdprofError("this is not an Arm machine, so the core has to be named", hint="--cpu neoverse-n3", status=2)
    return choice
