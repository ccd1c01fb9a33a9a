"""Parts of captures, written into folders that a test has made."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from tdprof.capture import manifest as manifests
from tdprof.capture import tables
from tdprof.capture.manifest import Manifest
from tdprof.linux.own_folder import OwnFolder


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write capture.json into a folder."""
    with OwnFolder.open(folder) as own:
        manifests.write_manifest(own, manifest)


def replace_table(folder: Path, name: str, table: pa.Table) -> None:
    """Write one table of a capture that has its tables."""
    with OwnFolder.open(folder) as own:
        tables.replace_table(own, name, table)


@contextlib.contextmanager
def table_writer(folder: Path) -> Iterator[tables.TableWriter]:
    """Writes a capture's tables into a folder."""
    with OwnFolder.open(folder) as own, tables.TableWriter(own) as writer:
        yield writer
