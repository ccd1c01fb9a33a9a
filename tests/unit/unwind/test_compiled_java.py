"""How much of its frame a JVM's compiled method has at each of its instructions: code of the BPF programs."""

import platform
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

BPF = Path(__file__).resolve().parents[3] / "bpf"
FRAME_BYTES = 0x20
# Instructions with the frame's bytes, from the return address on, when each is about to be executed.
BANG, PUSH, MOVE = (8, "89842400c0feff"), (8, "55"), (16, "488bec")
BARRIER, CALL = [(32, "0f1f4000"), (32, "41817f5c01000000")], (32, "e8bd125507")
PUSHED = [BANG, PUSH, (16, "4883ec10"), (32, "90")]
METHODS = {
    "pushed": PUSHED,
    "frame-pointer": [BANG, PUSH, MOVE, (16, "4881ec10000000"), (32, "90")],
    "stored": [(8, "4881ec18000000"), (32, "48896c2410"), (32, "33c0")],
    "stored-far": [(8, "4881ec18000000"), (32, "4889ac2410000000"), (32, "33c0")],
    "barrier": [BANG, PUSH, (16, "4883ec10"), *BARRIER, (32, "0f8405000000"), CALL, (32, "33c0")],
    "barrier-short": [BANG, PUSH, (16, "4881ec10000000"), BARRIER[1], (32, "7405"), CALL, (32, "33c0")],
    "barrier-elsewhere": [(8, "4881ec18000000"), (32, "48896c2410"), BARRIER[1], (32, "0f859d000000"), (32, "33c0")],
    "checked-before": [(8, "448b5608"), (8, "493bc2"), (8, "0f85e0ffffff"), (8, "6690"), *PUSHED],
}
SOURCE = """
#include <stdio.h>
#include <string.h>
#include <linux/types.h>
static long walk_read_user(void *to, __u32 bytes, const void *from) { memcpy(to, from, bytes); return 0; }
#include "unwind.h"
#define UNWIND_ADDRESS_MASK (~0ULL)
struct unwind_memory { int none; };
static int unwind_follows_call(struct unwind_memory *memory, __u64 pc, int if_not_known) { return if_not_known; }
#include "code_heap.h"

static const __u8 code[] = { CODE };
static const int at[] = { AT };
int main(void)
{
	struct { __u32 complete; __u32 padding; __u64 begin; } blob = { COMPLETE, 0, (__u64)code + 16 };
	struct code_heap heap = { .frame_complete = 0, .complete_bytes = 4, .code_begin = 8, .code_begin_bytes = 8 };

	for (unsigned long i = 0; i < sizeof(at) / sizeof(*at); i++) {
		struct unwind_rule rule = { .fp = -16, .offset = FRAME };

		adjust_frame(&heap, (__u64)&blob, blob.begin + at[i], &rule);
		printf("%d ", rule.offset);
	}
	return 0;
}
"""

pytestmark = [
    pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are x86-64's"),
    pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc"),
]


def offsets(folder: Path, instructions: Sequence[str], complete: int) -> list[int]:
    """By the program: of the frame, at each instruction; it is complete from byte ``complete`` on."""
    lengths = [len(each) // 2 for each in instructions]
    code = bytes(16) + bytes.fromhex("".join(instructions)) + bytes(16)
    values = {"CODE": ",".join(map(str, code)), "COMPLETE": complete, "FRAME": FRAME_BYTES}
    values["AT"] = ",".join(str(sum(lengths[:number])) for number in range(len(lengths)))
    defines = [f"-D{name}={value}" for name, value in values.items()]
    (folder / "rule.c").write_text(SOURCE)
    subprocess.run(["gcc", f"-I{BPF}", *defines, "-o", folder / "rule", folder / "rule.c"], check=True)
    return [int(each) for each in subprocess.run([folder / "rule"], check=True, capture_output=True).stdout.split()]


@pytest.mark.parametrize("method", METHODS)
def test_a_frame_is_as_large_as_its_instructions_have_made_it(method: str, tmp_path: Path) -> None:
    """As OpenJDK 17 and 25 begin methods; `frame_complete` is behind all but the last instruction."""
    expected, instructions = zip(*METHODS[method], strict=True)
    complete = sum(len(each) // 2 for each in instructions[:-1])
    assert offsets(tmp_path, instructions, complete) == [*expected]
