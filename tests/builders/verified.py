"""How much the kernel's verifier had to do for each of the sampling programs.

Layout: struct bpf_prog_info in the kernel's include/uapi/linux/bpf.h.
"""

import ctypes
import os
import platform
import re
import struct
from dataclasses import replace
from pathlib import Path

from tdprof.recorder.bpf.load import BpfLoad
from tdprof.recorder.bpf.maps import bpf, possible_cpus
from tdprof.recorder.bpf.table_sizes import TableSizes

_BPF_OBJ_GET_INFO_BY_FD = 15
_INFO_BYTES, _VERIFIED_INSNS = 232, 216
_KERNEL = tuple(map(int, re.findall(r"\d+", platform.release())[:2]))
# The kernel gives up at a million; the walk is what comes near. docs/unwinding.md has what was measured.
MOST_INSTRUCTIONS = {
    "sample_0": 1_000,
    "sample": 8_000,
    "walk_first": 30_000 if (6, 12) <= _KERNEL < (7, 0) else 70_000,
    "walk": 120_000 if (6, 12) <= _KERNEL < (7, 0) else 300_000,
    "walk_java": 300_000 if (6, 12) <= _KERNEL < (7, 0) else 600_000,
    "python": 170_000,
    "java": 200_000,
    "copy": 15_000,
    "store": 10_000,
    "by_kernel": 6_000,
    "begin_program": 1_000,
    "begin_copy": 1_000,
    "end_thread": 1_000,
    "retake": 20_000,
    "follow_new": 1_000,
    "follow_exec": 1_000,
    "follow_exit": 1_000,
    "follow_no_more": 1_000,
    "follow_successor": 1_000,
}


# Of the maps, for one tree of processes at 2000 samples a second; docs/unwinding.md has what was measured.
# Kernels before 6.1 give hash maps all their memory at once.
MOST_KERNEL_BYTES = 7_000_000 + 150_000 * possible_cpus() + (0 if _KERNEL >= (6, 1) else 2_500_000)


def kernel_bytes() -> dict[str, int]:
    """What each map takes of the kernel's memory when the processes of one tree are recorded."""
    sizes = replace(TableSizes.for_rate(2000), named_threads=1024)
    attempt = BpfLoad([True], sizes)
    with attempt.finish() as sampler:
        attempt.close()
        infos = {name: Path(f"/proc/self/fdinfo/{fd}").read_text() for name, fd in sampler._maps.items()}
    return {name: int(text.partition("memlock:")[2].split()[0]) for name, text in infos.items()}


def verified_instructions() -> dict[str, int]:
    """Instructions that the verifier went through, by program. Needs Linux 5.16, which tells this."""
    attempt = BpfLoad([True], TableSizes.for_rate(1000))
    with attempt.finish() as sampler:
        attempt.close()
        sampler.await_walk()
        assert sampler.python is not None
        assert sampler.python.start()
        verified = {name: _verified(fd) for name, fd in sampler._programs.items()}
        first = sampler._steps[0].load(sampler._maps, "walk_first")
        verified["walk_first"] = _verified(first)
        os.close(first)
        sampler.walk_java()  # in the place of `walk`
        sampler.name_java()
        assert "java" in sampler._programs, sampler.notes  # which say what the kernel refused
        of_java = {"walk_java": "walk", "java": "java"}
        return verified | {name: _verified(sampler._programs[program]) for name, program in of_java.items()}


def _verified(program_fd: int) -> int:
    info = ctypes.create_string_buffer(_INFO_BYTES)
    bpf(_BPF_OBJ_GET_INFO_BY_FD, bytearray(struct.pack("=IIQ", program_fd, _INFO_BYTES, ctypes.addressof(info))))
    return int(struct.unpack_from("=I", info, _VERIFIED_INSNS)[0])
