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
# As those of aarch64 have it: sub x9, sp, #n or mov x9, #-n, and str; sub sp; stp x29, x30; what looks at the barrier.
ARM_BANG, ARM_OLD_BANG = [(0, 0xD14053E9), (0, 0xF900013F)], [(0, 0x928FFFE9), (0, 0xF8296BFF)]
ARM_FRAME, ARM_LARGE = [(0, 0xD10083FF), (32, 0xA9017BFD)], [(0, 0xA9BF7BFD), (16, 0xD10043FF)]
ARM_BARRIER = [(32, each) for each in (0x180000C8, 0xD50339BF, 0xB9404389, 0x6B09011F, 0x540000A0, 0xD2800008)]
ARM_CALL = [(32, 0xD63F0100), (32, 0x14000002)]
ARM_METHODS = {
    "small": [(0, 0xD503201F), *ARM_BANG, *ARM_FRAME, (32, 0xD503201F)],
    "large": [*ARM_OLD_BANG, *ARM_LARGE, (32, 0xD503201F)],
    "small-barrier": [(0, 0xD503201F), *ARM_OLD_BANG, *ARM_FRAME, *ARM_BARRIER, *ARM_CALL, (32, 0xD503201F)],
    "large-barrier": [*ARM_BANG, *ARM_LARGE, *ARM_BARRIER, *ARM_CALL, (32, 0xD503201F)],
}
SOURCE = """
#include <stdio.h>
#include <string.h>
#include <linux/types.h>
static long walk_read_user(void *to, __u32 bytes, const void *from) { memcpy(to, from, bytes); return 0; }
#include "unwind.h"
#define UNWIND_ADDRESS_MASK (~0ULL)
struct unwind_memory { int none; };
static int unwind_follows_call(struct unwind_memory *memory, __u64 pc, int if_not_known) { return 1; }
#include "code_heap.h"

static const __u8 code[] = { CODE };
static const int at[] = { AT };
int main(void)
{
	struct { __u32 complete; __u32 padding; __u64 begin; } blob = { COMPLETE, 0, (__u64)code + 16 };
	struct code_heap heap = { .frame_complete = 0, .complete_bytes = 4, .code_begin = 8, .code_begin_bytes = 8 };

	for (unsigned long i = 0; i < sizeof(at) / sizeof(*at); i++) {
		struct unwind_rule rule = { .fp = -16, .ra = UNWIND_RA_CFA, .offset = FRAME };
#ifdef __aarch64__
		/* A caller whose frame is as large, and that was called from there, too. */
		__u64 stack[2 * FRAME / 8] = { [FRAME / 8 - 1] = LR, [2 * FRAME / 8 - 1] = LR };
		struct unwind_state state = { .pc = blob.begin + at[i], .sp = (__u64)stack, .lr = LR };

		if (*(__u32 *)(state.pc - 4) == 0xd63f0100) /* blr x8 */
			state.lr = state.pc;
		adjust_rule(0, &heap, (__u64)&blob, &state, &rule);
		printf("%d ", state.lr == LR || rule.ra == UNWIND_RA_CFA ? rule.offset : -1);
#else
		adjust_frame(&heap, (__u64)&blob, blob.begin + at[i], &rule);
		printf("%d ", rule.offset);
#endif
	}
	return 0;
}
"""

pytestmark = pytest.mark.skipif(not shutil.which("gcc"), reason="no gcc")
LR = 0x7000


def offsets(folder: Path, instructions: Sequence[bytes], *flags: str) -> list[int]:
    """By the program: of the frame, at each instruction; it is complete from the last one on."""
    lengths = list(map(len, instructions))
    code = bytes(16) + b"".join(instructions) + bytes(16)
    values = {"CODE": ",".join(map(str, code)), "COMPLETE": sum(lengths[:-1]), "FRAME": FRAME_BYTES, "LR": LR}
    values["AT"] = ",".join(str(sum(lengths[:number])) for number in range(len(lengths)))
    defines = [f"-D{name}={value}" for name, value in values.items()]
    (folder / "rule.c").write_text(SOURCE)
    subprocess.run(["gcc", f"-I{BPF}", *flags, *defines, "-o", folder / "rule", folder / "rule.c"], check=True)
    return [int(each) for each in subprocess.run([folder / "rule"], check=True, capture_output=True).stdout.split()]


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the instructions are x86-64's")
@pytest.mark.parametrize("method", METHODS)
def test_a_frame_is_as_large_as_its_instructions_have_made_it(method: str, tmp_path: Path) -> None:
    """As OpenJDK 17 and 25 begin methods."""
    expected, instructions = zip(*METHODS[method], strict=True)
    assert offsets(tmp_path, [*map(bytes.fromhex, instructions)]) == [*expected]


@pytest.mark.parametrize("method", ARM_METHODS)
def test_a_frame_of_aarch64_is_as_large_as_its_instructions_have_made_it(method: str, tmp_path: Path) -> None:
    """As OpenJDK's sources begin methods; the caller is the method itself, called from where it was called itself."""
    expected, instructions = zip(*ARM_METHODS[method], strict=True)
    words = [word.to_bytes(4, "little") for word in instructions]
    assert offsets(tmp_path, words, "-D__aarch64__=1") == [*expected]
