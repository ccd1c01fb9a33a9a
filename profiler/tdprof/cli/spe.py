"""`tdprof spe`: SPE data packet by packet, or record by record into a table."""

from pathlib import Path

import click

from tdprof.cli.form import DEFAULT_LIMIT, Output, output_options
from tdprof.cli.output import DEFAULT_OUTPUT
from tdprof.cli.usage import SuggestingGroup
from tdprof.errors import TdprofError
from tdprof.model.choices import By


def _midr(_context: click.Context, _option: click.Parameter, text: str | None) -> int | None:
    try:
        return None if text is None else int(text, 16)
    except ValueError as error:
        raise TdprofError(
            f"--midr takes a hexadecimal number, not '{text}'", hint="--midr 0x410fd4f0", status=2
        ) from error


def _usual_input() -> str:
    """perf.data as perf leaves it, or where there is none what `tdprof record --spe` does."""
    return "perf.data" if Path("perf.data").exists() or not Path(DEFAULT_OUTPUT).exists() else DEFAULT_OUTPUT


@click.group("spe", cls=SuggestingGroup)
def command() -> None:
    """Look at data of Arm's Statistical Profiling Extension.

    \b
    tdprof spe dump perf.data | less           every packet: offset, bytes, meaning
    tdprof spe decode perf.data -o ops.parquet one row a sampled operation
    tdprof spe report perf.data                latency, data sources and ratios by function
    tdprof spe decode aux.bin --raw --midr 0x410fd4f0 -o ops.csv --csv

    Without a name they read perf.data, or tdprof.capture where there is no perf.data.
    """


@command.command()
@click.argument("file", default=_usual_input)
@click.option("--raw", "is_raw", is_flag=True, help="FILE holds AUX bytes alone, not perf.data.")
def dump(file: str, is_raw: bool) -> None:
    """Print the packets of FILE (perf.data, a capture, AUX bytes with --raw; - is stdin), one a line.

    A line ".  OFFSET:  ---- damaged" before bytes that are no records says how many were given up and why.
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.spe_data import print_packets

    print_packets(file, is_raw=is_raw)


@command.command()
@click.argument("file", default=_usual_input)
@click.option("-o", "--output", required=True, metavar="OUT", help="The table to write; - is standard output.")
@click.option("--csv", "is_csv", is_flag=True, help="Write comma-separated values, not Parquet.")
@click.option("--raw", "is_raw", is_flag=True, help="FILE holds AUX bytes alone, not perf.data.")
@click.option("--cpu", type=click.IntRange(0), help="With --raw: the CPU that wrote them.")
@click.option("--midr", callback=_midr, metavar="HEX", help="With --raw: its MIDR_EL1, which names data sources.")
@click.option("-j", "--jobs", type=click.IntRange(1), help="Threads (one for each CPU, eight at most).")
@click.option("-q", "--quiet", is_flag=True, help="Say nothing but errors.")
def decode(
    file: str, output: str, is_csv: bool, is_raw: bool, cpu: int | None, midr: int | None, jobs: int | None, quiet: bool
) -> None:
    """Write one row for each sampled operation of FILE (perf.data, a capture, AUX bytes with --raw; - is stdin).

    \b
    Columns: cpu pc el op_class op_subclass events (bit set) total_latency issue_latency translation_latency (cycles)
    va pa branch_target previous_branch_target context data_source (as the core wrote it) source (in words) timestamp
    (ticks) time_ns (perf's clock) and more; null where the record has none.
    """
    if not is_raw and (cpu is not None or midr is not None):
        raise TdprofError("--cpu and --midr go with --raw: perf.data names its cores", status=2)
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.memory import KEPT_BYTES, keep_process_small
    from tdprof.cli.spe_table import write_records

    keep_process_small(KEPT_BYTES)
    write_records(file, output, is_csv=is_csv, is_raw=is_raw, cpu=cpu, midr=midr, jobs=jobs, quiet=quiet)


@command.command()
@click.argument("file", default=_usual_input)
@click.option("--by", type=click.Choice([by.value for by in By]), default="function", help="What a row is (function).")
@output_options(
    json="Print one JSON object: all rows, counts, ratios, intervals.",
    csv="Print comma-separated values: the same as columns.",
    limit=f"The most rows; 0 for all ({DEFAULT_LIMIT}).",
    has_pager=True,
)
@click.option("--raw", "is_raw", is_flag=True, help="FILE holds AUX bytes alone, not perf.data: code has no names.")
@click.option(
    "--midr", callback=_midr, metavar="HEX", help="With --raw: the core's MIDR_EL1, which names data sources."
)
@click.option("-j", "--jobs", type=click.IntRange(1), help="Threads (one for each CPU, eight at most).")
def report(
    file: str,
    by: str,
    output: Output,
    is_raw: bool,
    midr: int | None,
    jobs: int | None,
) -> None:
    """Print where the sampled operations of FILE were slow, and where their data came from.

    \b
    mean p50 p90 p99   total latency in cycles, from dispatch to completion
    l1 l2 llc …  %     share of the loads that each level of the memory hierarchy served
    L1D miss, …        ratios of retired operations with their 95 % intervals
    sharing            false: threads write different words of one cache line; true: the same word; of one process,
                       or with physical addresses (record --spe=pa=1) also of several that share memory

    \b
    tdprof spe report perf.data                    or a capture, as tdprof report CAPTURE --spe
    tdprof spe report perf.data --by source
    tdprof spe report perf.data --by address      cache lines; --by page for pages
    """
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.spe_data import print_report

    print_report(file, By(by), output, is_raw=is_raw, midr=midr, jobs=jobs)
