"""The two plain-C libraries and the BPF programs; everything else about the package stands in pyproject.toml."""

import os
import runpy
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.build_py import build_py

CFLAGS = ["-std=gnu11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]
# Without a compiler the program is slower. Who has one says so, and is told when a library does not compile.
IS_OPTIONAL = os.environ.get("TDPROF_NATIVE") != "required"
LOADED_WITH = runpy.run_path("profiler/tdprof/native/headers.py")  # what looks whether a library is current
HEADERS = LOADED_WITH["headers_of"](Path())


def plain_c(name: str, folder: str) -> Extension:
    """A shared library without Python.h, loaded with ctypes by one binding module."""
    sources = sorted(str(p) for p in Path(folder).glob("*.c"))
    return Extension(
        name,
        sources=sources,
        depends=[str(header) for header in HEADERS],
        include_dirs=[folder, "bpf"],  # the formats that the BPF programs and the native code share
        define_macros=[("HEADERS_CRC", f"{LOADED_WITH['checksum'](HEADERS)}u")],
        extra_compile_args=CFLAGS,
        extra_link_args=["-lpthread"],
        optional=IS_OPTIONAL,
        py_limited_api=True,
    )


class CompileSideBySide(build_ext):
    """Compiles the sources of a library on all CPUs: on one that is half of a first installation's time."""

    def build_extensions(self) -> None:
        compile_some = self.compiler.compile

        def compile_all(sources: list[str], *options: Any, **more: Any) -> list[str]:
            objects = list(compile_some(sources[:1], *options, **more))  # makes the folders
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                for made in threads.map(lambda source: compile_some([source], *options, **more), sources[1:]):
                    objects += made
            return objects

        self.compiler.compile = compile_all
        super().build_extensions()


class BuildWithBpf(build_py):
    """Adds the compiled BPF programs to a wheel, if this machine can compile them; else recording needs bcc."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            folder = Path(self.build_lib, "tdprof/bpf/objects")
            subprocess.run([sys.executable, "tools/generate-bpf", folder], check=False)


setup(
    cmdclass={"build_ext": CompileSideBySide, "build_py": BuildWithBpf},
    ext_modules=[
        plain_c(name, folder)
        for name, folder in (("tdprof._native", "profiler/native"), ("arm_spe._native", "spe/native"))
        if any(Path(folder).glob("*.c"))
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
