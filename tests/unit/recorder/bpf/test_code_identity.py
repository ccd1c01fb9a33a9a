"""What a Python code object is known by: objects and names at regular distances stay apart."""

import shutil
import subprocess
from pathlib import Path

import pytest

BPF = Path(__file__).parents[4] / "bpf"
# bpf/python_walk.h outside the kernel: functions of one file and one table of lines, each pair of places once.
PROGRAM = """
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <linux/types.h>
#define __always_inline inline __attribute__((always_inline))
#define PAGE_OFFSET_MASK 4095ULL
static __u64 hash_of_lines = 0x1234567890abcdefULL; /* all else that is read of the process is not looked at */
static long walk_read_user(void *to, __u32 bytes, const void *from)
{
	memcpy(to, &hash_of_lines, bytes <= 8 ? bytes : 8);
	return 0;
}
#include "python_walk.h"
static int was_sent(__u64 code) { return 1; }
static void send_code(struct python_code *code, __u64 bytes) {}
#define ACROSS 512
static __u64 identities[ACROSS * ACROSS];
static int compare(const void *one, const void *other)
{
	__u64 a = *(const __u64 *)one, b = *(const __u64 *)other;
	return a < b ? -1 : a > b;
}
int main(void)
{
	static struct python_walk python = { .process = 0x123456789abcdef1ULL };
	__u64 heap = 0x7fbd1b7d0000ULL, same = 0;
	for (int version = 0; version < 2; version++) {
		struct python_runtime runtime = { .has_qualified_names = version, .code_names = 112, .code_line = 68 };
		__u64 *name = python.code + PYTHON_LINE_DISTANCE / 8;
		__u32 *first_line = (__u32 *)python.code + (PYTHON_LINE_DISTANCE - 112 + 68) / 4;
		for (int i = 0; i < ACROSS; i++)
			for (int j = 0; j < ACROSS; j++) {
				name[0] = heap - 4096;
				name[1] = heap + 64 * j;
				name[2] = version ? heap + 64 * j + 32 : heap - 8192;
				name[3] = version ? heap - 8192 : rand(); /* a frame that is kept for its next call */
				identities[i * ACROSS + j] = code_identity(&runtime, &python, heap + 64 * i);
			}
		qsort(identities, ACROSS * ACROSS, sizeof(__u64), compare);
		for (int i = 1; i < ACROSS * ACROSS; i++)
			same += identities[i] == identities[i - 1];
		__u64 before = code_identity(&runtime, &python, heap);
		name[3] ^= version ? 0 : 0x5150;
		first_line[-5] ^= 0x5150; /* with 3.11 a count of calls */
		printf("%d", before == code_identity(&runtime, &python, heap));
		*first_line = 100; /* only a module's table of lines is looked at */
		before = code_identity(&runtime, &python, heap);
		hash_of_lines += 1;
		printf("%d ", before == code_identity(&runtime, &python, heap));
		for (int line = 0; line < 3; line++) { /* what replace() has made in the same place */
			printf("%d", before == code_identity(&runtime, &python, heap));
			*first_line = line;
			before = code_identity(&runtime, &python, heap);
			hash_of_lines += 1;
		}
		__u64 *parts[] = { name + 2, python.code, python.code + 1, python.code + 5, python.code + 8 };
		for (int part = 0; part < 5; part++) {
			before = code_identity(&runtime, &python, heap);
			*parts[part] += 1ULL << 40;
			printf("%d", before == code_identity(&runtime, &python, heap));
		}
		printf("\\n");
	}
	printf("%llu\\n", (unsigned long long)same);
	return 0;
}
"""


def test_what_a_function_is_known_by(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc to compile it for this machine")
    (tmp_path / "identities.c").write_text(PROGRAM)
    command = ["gcc", "-O1", "-I", str(BPF), "-o", str(tmp_path / "identities"), str(tmp_path / "identities.c")]
    subprocess.run(command, check=True)
    ran = subprocess.run([tmp_path / "identities"], check=True, capture_output=True, text=True)
    assert ran.stdout.split() == ["11", "10000000", "11", "10000000", "0"]
