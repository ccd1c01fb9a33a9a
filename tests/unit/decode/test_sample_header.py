"""bpf/sample.h and Python agree on every offset: the C compiler says where things are."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tdprof.decode import bpf_aggregates, bpf_copies, thread_times, wakers
from tdprof.model.stack_ends import StackEnd
from tdprof.model.thread_state import ThreadState
from tdprof.recorder.bpf import off_cpu, unwind_arrays
from tdprof.recorder.bpf import sampler as bpf_sampler

HEADER = Path(__file__).parents[3] / "bpf" / "sample.h"


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    if not shutil.which("gcc"):
        pytest.skip("no gcc to ask for the layout")
    stacks = [f"stack_record.{name}" for name in ("hash", *bpf_aggregates.WALK.names, "address")]
    stacks += [
        f"stack_copy.{name}" for name in ("identity", "time_ns", "pid", "stack_bytes", "pages", "registers", "stack")
    ]
    stacks += [f"thread_times.{name}" for name in thread_times.RECORD.names or ()]
    stacks += [f"waker.{name}" for name in wakers.WAKER.names or ()]
    stacks += [f"waking.{name}" for name in wakers.RECORD.names or ()]
    lines = [
        f'printf("{item} %zu\\n", offsetof(struct {item.split(".")[0]}, {item.split(".")[1]}));' for item in stacks
    ]
    lines += [
        f'printf("{name} %zu\\n", sizeof(struct {name}));'
        for name in ("sample_key", "sample_value", "thread_times", "waking")
    ]
    lines += [f'printf("{name} %d\\n", {name});' for name in ("MOST_COPIED_BYTES", "MOST_COPIES", "COPIED_REGISTERS")]
    lines += [
        f'printf("{name} %d\\n", {name});' for name in ("THREAD_STATES", "THREAD_STATE_SHIFT", "SAMPLE_CPU_SHIFT")
    ]
    lines += ['printf("MAX_STACK_DEPTH %d\\n", MAX_STACK_DEPTH);', 'printf("COUNTERS %d\\n", COUNTERS);']
    folder = tmp_path_factory.mktemp("layout")
    source = "#include <stddef.h>\n#include <stdio.h>\n#include <linux/types.h>\n"
    source += f'#include "{HEADER}"\nint main(void) {{ {" ".join(lines)} return 0; }}\n'
    (folder / "layout.c").write_text(source)
    subprocess.run(["gcc", "-o", folder / "layout", folder / "layout.c"], check=True)
    output = subprocess.run([folder / "layout"], check=True, capture_output=True, text=True).stdout
    return {name: int(value) for name, value in (line.split() for line in output.splitlines())}


def test_rows(layout: dict[str, int]) -> None:
    assert (layout["sample_key"], layout["sample_value"]) == (bpf_sampler.KEY_BYTES, bpf_sampler.VALUE_BYTES)


def test_times_of_threads(layout: dict[str, int]) -> None:
    assert thread_times.RECORD.fields is not None
    for name, (_, offset, *_) in thread_times.RECORD.fields.items():
        assert layout[f"thread_times.{name}"] == offset
    assert layout["thread_times"] == thread_times.RECORD.itemsize == off_cpu.THREAD_TIMES.size
    assert layout["THREAD_STATE_SHIFT"] == bpf_aggregates.STATE_SHIFT
    assert layout["SAMPLE_CPU_SHIFT"] == bpf_aggregates.CPU_SHIFT
    enumerators = re.search(r"^enum thread_state { (.*), THREAD_STATES }", HEADER.read_text(), re.MULTILINE)
    assert enumerators
    assert enumerators[1].split(", ") == [f"THREAD_{state.name}" for state in ThreadState]
    assert layout["THREAD_STATES"] == len(ThreadState)


def test_wakers(layout: dict[str, int]) -> None:
    for struct, mirror in (("waker", wakers.WAKER), ("waking", wakers.RECORD)):
        assert mirror.fields is not None
        for name, (_, offset, *_) in mirror.fields.items():
            assert layout[f"{struct}.{name}"] == offset
    assert layout["waking"] == wakers.RECORD.itemsize


def test_stacks(layout: dict[str, int]) -> None:
    assert bpf_aggregates.WALK.fields is not None
    for name, (_, offset, *_) in bpf_aggregates.WALK.fields.items():
        assert layout[f"stack_record.{name}"] == 8 + offset
    assert layout["stack_record.address"] == bpf_aggregates._STACK_HEADER == 8 + bpf_aggregates.WALK.itemsize
    assert layout["MAX_STACK_DEPTH"] == bpf_aggregates.MAX_STACK_DEPTH


def test_copies_of_stacks(layout: dict[str, int]) -> None:
    members = ("identity", "time_ns", "pid", "stack_bytes", "pages", "registers")
    assert [layout[f"stack_copy.{name}"] for name in members] == [0, 8, 16, 20, 24, 32]
    assert layout["stack_copy.stack"] == bpf_copies.HEADER_BYTES
    assert layout["COPIED_REGISTERS"] == bpf_copies.REGISTERS
    assert layout["MOST_COPIES"] == unwind_arrays.MOST_COPIES


def test_ends_of_stacks_have_the_same_numbers_and_words() -> None:
    ends = re.findall(r'^\tX\((\w+), "([a-z-]+)"', HEADER.with_name("unwind.h").read_text(), re.MULTILINE)
    assert [(name, number, word) for number, (name, word) in enumerate(ends, 1)] == [
        (end.name, int(end), end.word) for end in StackEnd
    ]


def test_counters_stand_in_the_same_order(layout: dict[str, int]) -> None:
    enumerators = re.findall(r"^\tCOUNTER_(\w+)", HEADER.read_text(), re.MULTILINE)
    assert [name.lower() for name in enumerators] == list(bpf_sampler.COUNTERS)
    assert layout["COUNTERS"] == len(bpf_sampler.COUNTERS)
