"""Child process: compile and load the sampling programs with bcc, then hand the descriptors over and end.

bcc brings LLVM, about 100 MB of it; only this short-lived process ever holds it. It runs as a script under whichever
interpreter can import the distribution's bcc, so it uses the standard library and bcc only.

    bpf_loader.py SOCKET_FD

It imports bcc, then reads one line from the socket, a JSON object: ``source`` and ``headers`` (paths), ``with_kernel``
(for each event whether its kernel call chain is taken) and ``settings`` (defines). No line: nobody needs it any more.
The answer on the socket is one JSON object: ``{"maps": [name…], "programs": n}`` together with the descriptors of the
maps and then the programs, or ``{"error": text, "stage": "import" | "compile" | "load"}``.
"""

import json
import os
import platform
import socket
import sys
from pathlib import Path
from typing import Any

# "common" must stay open: the kernel empties it when nobody holds it any more.
MAPS = ("rows_a", "rows_b", "stacks", "counters", "active", "common")


def load(bcc: Any, request: dict[str, Any]) -> tuple[dict[str, Any], list[int], object]:
    """Returns the answer, the descriptors, and the bcc object that keeps them open."""
    os.environ["BCC_KERNEL_SOURCE"] = request["headers"]
    source = Path(request["source"])
    text = source.read_text()
    for event, with_kernel in enumerate(request["with_kernel"]):
        text += f"SAMPLE_PROGRAM({event}, {int(with_kernel)})\n"
    flags = ["-I/usr/include", f"-I/usr/include/{platform.machine()}-linux-gnu", f"-I{source.parent}"]
    flags += [f"-D{name}={value}" for name, value in request["settings"].items()]
    try:
        bpf = bcc.BPF(text=text, cflags=flags)
    except Exception as error:  # bcc raises nothing more precise; what clang said went to stderr
        return {"error": str(error), "stage": "compile"}, [], None
    try:
        common = bpf["common"]
        common[common.Key(0)] = common.Leaf(bpf.load_func("sample", bcc.BPF.PERF_EVENT).fd)
        functions = [bpf.load_func(f"sample_{n}", bcc.BPF.PERF_EVENT) for n in range(len(request["with_kernel"]))]
    except Exception as error:
        return {"error": str(error), "stage": "load"}, [], None
    descriptors = [bpf[name].map_fd for name in MAPS] + [function.fd for function in functions]
    return {"maps": list(MAPS), "programs": len(functions)}, descriptors, bpf


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    try:
        import bcc
    except ImportError as error:
        channel.sendall(json.dumps({"error": str(error), "stage": "import"}).encode())
        return
    with channel.makefile("rb") as lines:
        line = lines.readline()
    if line.endswith(b"\n"):
        answer, descriptors, owner = load(bcc, json.loads(line))
        socket.send_fds(channel, [json.dumps(answer).encode()], descriptors)
        del owner
    channel.close()
    # Nothing is left to clean up; LLVM's own tear-down takes longer than the load.
    os._exit(0)


if __name__ == "__main__":
    main()
