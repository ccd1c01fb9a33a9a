"""The two plain-C libraries; everything else about the package stands in pyproject.toml."""

from pathlib import Path

from setuptools import Extension, setup

CFLAGS = ["-std=gnu11", "-O3", "-fvisibility=hidden", "-Wall", "-Wextra", "-Werror"]


def plain_c(name: str, folder: str) -> Extension:
    """An optional shared library without Python.h, loaded with ctypes by one binding module."""
    sources = sorted(str(p) for p in Path(folder).glob("*.c"))
    depends = sorted(str(p) for place in (folder, "bpf") for p in Path(place).glob("*.h"))
    return Extension(
        name,
        sources=sources,
        depends=depends,
        include_dirs=[folder, "bpf"],  # the formats that the BPF programs and the native code share
        extra_compile_args=CFLAGS,
        extra_link_args=["-lpthread"],
        optional=True,
        py_limited_api=True,
    )


setup(
    ext_modules=[
        plain_c(name, folder)
        for name, folder in (("tdprof._native", "profiler/native"), ("arm_spe._native", "spe/native"))
        if any(Path(folder).glob("*.c"))
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}},
)
