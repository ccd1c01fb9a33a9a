"""`tdprof archive`: what it says where it cannot."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from builders.costly_spools import write_spool
from builders.spe_capture import write_spe_capture
from tdprof.capture.tables import table_file
from tdprof.cli.main import cli
from tdprof.errors import TdprofError


@pytest.mark.parametrize("table", ["stacks", "mappings"])
def test_a_table_that_cannot_be_read_is_named_as_the_user_does(tmp_path: Path, table: str) -> None:
    capture = write_spe_capture(tmp_path / "app.capture")
    (capture / table_file(table)).write_bytes(b"x")
    error = CliRunner().invoke(cli, ["archive", str(capture)]).exception
    assert isinstance(error, TdprofError)
    assert error.message.startswith(f"cannot read {capture}/{table}.parquet: it is damaged")


def test_a_spool_that_cannot_be_read_is_named_as_the_user_does(tmp_path: Path) -> None:
    write_spool(tmp_path, {"copies.bpf": b"x"})
    manifest = tmp_path / "capture.json"
    manifest.write_text(manifest.read_text().replace('"machine": "', '"machine": "un'))
    error = CliRunner().invoke(cli, ["archive", str(tmp_path)]).exception
    assert isinstance(error, TdprofError)
    assert error.message.startswith(f"{tmp_path} copies stacks of a machine that is not known")
