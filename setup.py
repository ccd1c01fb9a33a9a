"""The two plain-C libraries and the BPF programs; everything else about the package stands in pyproject.toml."""

import os
import subprocess
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_py import build_py

CFLAGS = ["-std=gnu11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
# Without a compiler the program is slower. Who has one says so, and is told when a library does not compile.
IS_OPTIONAL = os.environ.get("TDPROF_NATIVE") != "required"


def plain_c(name: str, folder: str) -> Extension:
    """A shared library without Python.h, loaded with ctypes by one binding module."""
    sources = sorted(str(p) for p in Path(folder).glob("*.c"))
    depends = sorted(str(p) for place in (folder, "bpf") for p in Path(place).glob("*.h"))
    return Extension(
        name,
        sources=sources,
        depends=depends,
        include_dirs=[folder, "bpf"],  # the formats that the BPF programs and the native code share
        extra_compile_args=CFLAGS,
        extra_link_args=["-lpthread"],
        optional=IS_OPTIONAL,
        py_limited_api=True,
    )


class BuildWithBpf(build_py):
    """Adds the compiled BPF programs to a wheel, if this machine can compile them; else recording needs bcc."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "tdprof/bpf/objects")
            subprocess.run([sys.executable, "tools/generate-bpf", folder], check=False)


setup(
    cmdclass={"build_py": BuildWithBpf},
    ext_modules=[
        plain_c(name, folder)
        for name, folder in (("tdprof._native", "profiler/native"), ("arm_spe._native", "spe/native"))
        if any(Path(folder).glob("*.c"))
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
