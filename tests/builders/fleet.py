"""Captures of many hosts, with what each function has on each."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from click.testing import CliRunner

from builders import capture_tables
from builders.captures import table_writer, write_manifest
from builders.hosts import HOST
from tdprof.capture.manifest import Host, Manifest, Rung, State
from tdprof.capture.schema import SYMBOLS
from tdprof.cli.main import cli
from tdprof.errors import TdprofError
from tdprof.model.events import EventInfo, Unit
from tdprof.model.losses import Losses

DAY_NS = 86_400 * 10**9
START_NS = 1_795_305_600 * 10**9  # 2026-11-22 00:00 UTC
PERIOD = 10_000_000
NEOVERSE_N1, NEOVERSE_V1 = "0x00000000410fd0c0", "0x00000000410fd400"


def make_host_capture(
    folder: Path,
    hostname: str,
    samples: Mapping[str, int],
    *,
    host: Host = HOST,
    midr: str = NEOVERSE_V1,
    seconds: float = 10.0,
    start_ns: int = START_NS,
    boot_id: str | None = None,
    build_id: str = "ab" * 20,
    module: str = "/srv/app",
    events: Mapping[str, float] | None = None,
    file: str = "app.c",
    functions: Mapping[str, tuple[str, str]] | None = None,
    has_names: bool = True,
) -> Path:
    """A capture of ``main`` calling functions, each with so many samples of cpu-clock; names are in the capture.

    Args:
        midr: of its core; none is no Arm core.
        events: how many times the samples of each event are; cpu-clock alone without it.
        functions: name and source file of those that are not called as in ``samples``, or stand elsewhere.
    """
    named = {name: (name, file) for name in ("main", *samples)} | dict(functions or {})
    events = events or {"cpu-clock": 1.0}
    places = {name: 0x1000 * (number + 1) for number, name in enumerate(["main", *samples])}
    base = 0x400000
    stack_of = {name: number + 1 for number, name in enumerate(samples)}
    rows = []
    for event, factor in enumerate(events.values()):
        for name, count in samples.items():
            if number := round(count * factor):
                weight = number * PERIOD
                rows.append((1_000_000_000, event, 100, 100, "app", stack_of[name], None, number, weight))
    stacks = [(stack, False, [base + places[name], base + places["main"] + 1]) for name, stack in stack_of.items()]
    symbols = [
        (module, build_id, "elf", 0, place, 0, [{"function": named[name][0], "file": named[name][1], "line": 7}])
        for name, place in places.items()
        if has_names
    ]
    folder.mkdir(parents=True)
    with table_writer(folder) as writer:
        writer.write("samples", capture_tables.samples(*rows))
        writer.write("stacks", capture_tables.stacks(*stacks))
        writer.write("mappings", capture_tables.mappings((0, 100, base, 0x100000, 0, module, build_id)))
        writer.write("processes", capture_tables.processes((0, "name", 100, 100, None, None, "app")))
        writer.write("symbols", capture_tables.table(SYMBOLS, symbols))
    cores = {"0": midr} if midr else {}
    machine = replace(host, hostname=hostname, boot_id=hostname if boot_id is None else boot_id, midr_el1=cores)
    unit = {name: Unit.NANOSECONDS if name == "cpu-clock" else Unit.COUNT for name in events}
    infos = [EventInfo(name, unit[name], period=PERIOD) for name in events]
    length = round(seconds * 1e9)
    write_manifest(
        folder,
        Manifest(
            machine, ["./app"], [], False, infos, Rung.BPF_PMU, "", start_ns, 0, length, Losses(), state=State.COMPLETE
        ),
    )
    return folder


@dataclass(frozen=True)
class Ran:
    """What a command printed, and how it ended."""

    status: int
    stdout: str
    error: TdprofError | None


def tdprof(*words: object) -> Ran:
    """Run a command in this process; any error but ours is a test's failure."""
    result = CliRunner().invoke(cli, [*map(str, words)], standalone_mode=False)
    if result.exception is not None and not isinstance(result.exception, TdprofError):
        raise result.exception
    status = result.exception.status if result.exception else result.return_value or 0
    return Ran(status, result.stdout, result.exception)
