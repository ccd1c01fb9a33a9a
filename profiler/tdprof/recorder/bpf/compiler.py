"""Child process: compile the sampling programs with bcc, print what came of it, and end.

bcc brings LLVM, about 100 MB of it; only this short-lived process ever holds it. It runs as a script under whichever
interpreter can import the distribution's bcc, so it uses the standard library and bcc only.

It imports bcc, then reads one line, a JSON object: ``text`` (the C source), ``include`` and ``headers`` (folders) and
``machine`` (uname's name of the one the programs are for). No line: nobody needs it any more. It answers with one line,
a JSON object: ``maps``, ``programs`` and ``compiler`` as ``BpfObject`` of object_file.py takes them, or ``{"error":
text, "stage": "import" | "compile"}``. What bcc and clang print goes to standard error.
"""

import ctypes
import json
import mmap
import os
import struct
import sys
from collections.abc import Iterator
from typing import Any

INSTRUCTION = struct.Struct("<BBhi")  # struct bpf_insn: opcode, registers, offset, immediate
LOAD_64 = 0x18  # BPF_LD | BPF_IMM | BPF_DW, the one instruction that takes two places
PSEUDO_MAP_FD = 1
# The kernel's names of architectures, by which bcc compiles for another than this machine's.
ARCH = {"x86_64": "x86", "aarch64": "arm64"}


def describe_maps(library: Any, module: int) -> tuple[list[dict[str, Any]], dict[int, int]]:
    """The maps in order, and the index of each by its descriptor, for which bcc's Python has no names."""
    count, number, text = ctypes.c_size_t, ctypes.c_int, ctypes.c_char_p

    def ask(function: str, index: int, result: Any) -> Any:
        call = library[function]
        call.restype = result
        return call(ctypes.c_void_p(module), count(index))

    library.bpf_num_tables.restype = count
    indices = range(library.bpf_num_tables(ctypes.c_void_p(module)))
    maps = [
        {
            "name": ask("bpf_table_name", index, text).decode(),
            "type": ask("bpf_table_type_id", index, number),
            "key_bytes": ask("bpf_table_key_size_id", index, count),
            "value_bytes": ask("bpf_table_leaf_size_id", index, count),
            "entries": ask("bpf_table_max_entries_id", index, count),
            "flags": ask("bpf_table_flags_id", index, number),
        }
        for index in indices
    ]
    return maps, {ask("bpf_table_fd_id", index, number): index for index in indices}


def wide_loads(code: bytes) -> Iterator[tuple[int, int, int, int]]:
    """The 64-bit loads: position in bytes, kind (0: of a constant), lower and upper half (of a constant: unsigned)."""
    opcodes = code[:: INSTRUCTION.size]
    place = opcodes.find(LOAD_64)
    while place >= 0:
        position = place * INSTRUCTION.size
        _, registers, _, low = INSTRUCTION.unpack_from(code, position)
        high = int.from_bytes(code[position + 2 * INSTRUCTION.size - 4 : position + 2 * INSTRUCTION.size], "little")
        yield position, registers >> 4, low & 0xFFFFFFFF, high
        place = opcodes.find(LOAD_64, place + 2)


def replace_maps(code: bytes, replacement: dict[int, int]) -> bytes:
    """The instructions with each reference to a map, by descriptor or by index, replaced by the other.

    Raises:
        KeyError: there is a reference with no replacement.
    """
    found = bytearray(code)
    for position, kind, number, _ in wide_loads(code):
        if kind == PSEUDO_MAP_FD:
            opcode, registers, offset, _ = INSTRUCTION.unpack_from(code, position)
            INSTRUCTION.pack_into(found, position, opcode, registers, offset, replacement[number])
    return bytes(found)


def compile_programs(bcc: Any, request: dict[str, Any]) -> dict[str, Any]:
    """The answer to a request."""
    os.environ["BCC_KERNEL_SOURCE"] = request["headers"]
    if request["machine"] != os.uname().machine:
        os.environ["ARCH"] = ARCH[request["machine"]]
    # What is taken of the C library's headers is the same on all machines.
    flags = ["-I/usr/include", f"-I/usr/include/{os.uname().machine}-linux-gnu", f"-I{request['include']}"]
    flags += [f"-DPAGE_SIZE={mmap.PAGESIZE}"]  # bcc makes the rings that it declares
    try:
        bpf = bcc.BPF(text=request["text"], cflags=flags)
    except Exception as error:  # bcc raises nothing more precise; what clang said went to stderr
        return {"error": str(error), "stage": "compile"}
    library = ctypes.CDLL(bcc.lib._name)  # apart from bcc's own, whose types of arguments it must not change
    maps, index_of_fd = describe_maps(library, bpf.module)
    functions = range(bcc.lib.bpf_num_functions(bpf.module))
    names = [bcc.lib.bpf_function_name(bpf.module, index) for index in functions]
    status = os.stat(bcc.__file__)
    return {
        "maps": maps,
        "programs": [
            {"name": name.decode(), "code": replace_maps(bpf.dump_func(name), index_of_fd).hex()} for name in names
        ],
        "compiler": {
            "path": bcc.__file__,
            "version": bcc.__version__,
            "mtime_ns": status.st_mtime_ns,
            "size_bytes": status.st_size,
        },
    }


def main() -> None:
    """Answer the one request that the parent writes to standard input."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    try:
        import bcc
    except ImportError as error:
        print(json.dumps({"error": str(error), "stage": "import"}), file=answers, flush=True)
        return
    line = sys.stdin.readline()
    if line.endswith("\n"):
        print(json.dumps(compile_programs(bcc, json.loads(line))), file=answers, flush=True)
    # Nothing is left to clean up; LLVM's own tear-down takes longer than the answer.
    os._exit(0)


if __name__ == "__main__":
    main()
