"""Captures made of built perf.data, and what `tdprof report` says of them."""

from pathlib import Path

from click.testing import CliRunner, Result

from tdprof.cli import report
from tdprof.pipeline.import_perf import import_perf_data


def imported(folder: Path, data: bytes) -> Path:
    """The capture, beside the perf.data that it is made of."""
    folder.mkdir(exist_ok=True)
    (folder / "perf.data").write_bytes(data)
    import_perf_data(str(folder / "perf.data"), folder / "capture")
    return folder / "capture"


def run_report(*arguments: str) -> Result:
    """`tdprof report` in this process; its errors are raised."""
    result = CliRunner().invoke(report.command, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result
