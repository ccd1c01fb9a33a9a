"""Whether code that V8 has made has a frame where a thread stands in it (bpf/v8_code.h)."""

import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

BPF = Path(__file__).parents[4] / "bpf"
CODE, STACK = 0x10000, 0x20000
CALLER = CODE + 0x80  # behind a call
RECORD, GUESS, BY_SP = 8, 9, 0  # enum unwind_cfa
EXACT, SAME = 1, 0x7FFF  # UNWIND_EXACT, UNWIND_FP_SAME
# Outside the kernel: code as given stands at CODE and words at STACK. Arguments: a frame's flags, the frames above it,
# its code, the words on top of its stack.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>
#define __always_inline inline __attribute__((always_inline))
#define UNWIND_MACHINE MACHINE
#include "unwind_calls.h"
struct unwind_memory { int none; };
struct unwind_tables { int none; };
static unsigned char code[4096], stack[4096];
static long walk_read_user(void *to, __u32 bytes, const void *from)
{
	__u64 at = (__u64)from;
	if (at - CODE <= sizeof(code) - bytes)
		memcpy(to, code + (at - CODE), bytes);
	else if (at - STACK <= sizeof(stack) - bytes)
		memcpy(to, stack + (at - STACK), bytes);
	else
		return -1;
	return 0;
}
static int unwind_read(struct unwind_memory *memory, __u64 address, __u64 *word) { return 1; }
static int unwind_returns_to(struct unwind_memory *memory, __u64 pc)
{
	__u64 before = 0;
	walk_read_user(&before, 8, (void *)(pc - 8));
	return MACHINE == UNWIND_X86_64 ? unwind_ends_with_call(before) : unwind_ends_with_branch_and_link(before);
}
static int unwind_bucket(struct unwind_tables *tables, __u32 number, __u32 *row) { return 1; }
static int unwind_row(struct unwind_tables *tables, __u32 number, __u32 *row) { return 1; }
#include "unwind_step.h"
#include "v8_code.h"
int main(int count, char **text)
{
	struct unwind_memory memory = {};
	struct unwind_state state = { .pc = CODE, .sp = STACK, .fp = STACK + 512, .flags = atoi(text[1]) };
	struct unwind_rule rule = { .cfa = UNWIND_FP_GUESS };
	for (size_t i = 0; i < strlen(text[3]) / 2; i++)
		sscanf(text[3] + 2 * i, "%2hhx", code + i);
	memcpy(code + 0x7b, "\\xe8\\1\\1\\1", 5); /* the call */
	for (int i = 4; i < count; i++)
		((__u64 *)stack)[i - 4] = strtoull(text[i], 0, 0);
	v8_rule(&memory, &state, atoi(text[2]), &rule);
	printf("%d %d %d", rule.cfa, rule.fp, rule.offset);
	return 0;
}
"""

RuleOf = Callable[..., tuple[int, int, int]]


@pytest.fixture(scope="module", params=["UNWIND_X86_64", "UNWIND_AARCH64"])
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def rule_of(machine: str, tmp_path_factory: pytest.TempPathFactory) -> RuleOf:
    if not shutil.which("gcc"):
        pytest.skip("no gcc to compile it for this machine")
    folder = tmp_path_factory.mktemp(machine)
    (folder / "rule.c").write_text(PROGRAM)
    defined = [f"-DMACHINE={machine}", f"-DCODE={CODE}", f"-DSTACK={STACK}"]
    command = ["gcc", "-O1", *defined, "-I", str(BPF), "-o", str(folder / "rule"), str(folder / "rule.c")]
    subprocess.run(command, check=True)

    def ask(code: str, words: Sequence[int], *, flags: int = EXACT, callees: int = 0) -> tuple[int, int, int]:
        arguments = [str(flags), str(callees), code.replace(" ", ""), *map(str, words)]
        ran = subprocess.run([folder / "rule", *arguments], check=True, capture_output=True, text=True)
        cfa, fp, offset = map(int, ran.stdout.split())
        return cfa, fp, offset

    return ask


def test_whoever_calls_has_a_frame(rule_of: RuleOf) -> None:
    assert rule_of("c3", [CALLER, CALLER], flags=0, callees=2)[0] == RECORD


@pytest.mark.parametrize("callees", [0, 1])
@pytest.mark.parametrize("machine", ["UNWIND_X86_64"], indirect=True)
def test_where_no_return_address_is_on_top_there_is_a_frame(rule_of: RuleOf, machine: str, callees: int) -> None:
    flags = 0 if callees else EXACT
    assert rule_of("48 8b c1", [5, CALLER], flags=flags, callees=callees)[0] == RECORD
    # Or it is an old one, or who was called makes the frame.
    assert rule_of("48 8b c1", [CALLER, 5], flags=flags, callees=callees)[0] == GUESS


@pytest.mark.parametrize("machine", ["UNWIND_X86_64"], indirect=True)
@pytest.mark.parametrize(
    ("code", "words", "rule"),
    [
        ("55 48 89 e5", [CALLER, 5], (BY_SP, SAME, 8)),  # push %rbp; mov %rsp, %rbp
        ("48 89 e5", [5, CALLER], (BY_SP, -16, 16)),
        ("c3", [CALLER, 5], (BY_SP, SAME, 8)),  # ret
        ("c2 10 00", [CALLER, 5], (BY_SP, SAME, 8)),  # ret $16
    ],
)
def test_where_a_frame_begins_and_ends_the_return_address_is_on_top(
    rule_of: RuleOf, machine: str, code: str, words: list[int], rule: tuple[int, int, int]
) -> None:
    assert rule_of(code, words) == rule


@pytest.mark.parametrize("machine", ["UNWIND_X86_64"], indirect=True)
@pytest.mark.parametrize(
    "code",
    [
        "48 89 e5",  # mov %rsp, %rbp, and no return address where it would be
        "48 8d 64 cc 08",  # lea 8(%rsp, %rcx, 8), %rsp
        "48 8d a4 24 00 01 00 00",  # lea 256(%rsp), %rsp
        "48 83 c4 10",  # add $16, %rsp
        "48 81 c4 00 01 00 00",
        "41 52 c3",  # push %r10; ret
        "51 c3",
    ],
)
def test_where_the_return_address_may_be_in_a_register_nothing_is_sure(
    rule_of: RuleOf, machine: str, code: str
) -> None:
    assert rule_of(code, [5, 5])[0] == GUESS


@pytest.mark.parametrize("machine", ["UNWIND_AARCH64"], indirect=True)
def test_on_aarch64_only_callers_are_sure(rule_of: RuleOf, machine: str) -> None:
    assert rule_of("", [5, 5])[0] == GUESS
    assert rule_of("", [5, 5], flags=0, callees=1)[0] == GUESS
    assert rule_of("", [5, 5], flags=0, callees=2)[0] == RECORD
