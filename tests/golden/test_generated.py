"""Generated files are what their generator makes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
WRITE = """
import hashlib, sys
sys.path.insert(0, "tests")
from google.protobuf.internal import api_implementation
from builders.profiles import example
from tdprof.export.pprof import build_pprof
data = build_pprof(example()).SerializeToString(deterministic=True)
print(api_implementation.Type(), hashlib.sha256(data).hexdigest())
"""


def test_pprof_module_comes_from_its_proto(tmp_path: Path) -> None:
    if shutil.which("protoc") is None:
        pytest.skip("protoc is not installed: tools/setup test")
    version = subprocess.run(["protoc", "--version"], capture_output=True, text=True, check=True).stdout
    if not re.match(r"libprotoc 3\.21\.", version):
        pytest.skip(f"the module is made with protoc 3.21, here is {version.strip()}")
    subprocess.run([ROOT / "tools/generate-pprof", tmp_path], check=True)
    for name in ("pprof_pb2.py", "pprof_pb2.pyi"):
        made = (tmp_path / "tdprof/export" / name).read_text()
        assert made == (ROOT / "profiler/tdprof/export" / name).read_text(), "run tools/generate-pprof"


def test_pprof_module_works_in_protobufs_pure_python_too() -> None:
    outputs = []
    for implementation in ("upb", "python"):
        environment = {**os.environ, "PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION": implementation}
        outputs.append(
            subprocess.run(
                [sys.executable, "-c", WRITE], env=environment, cwd=ROOT, capture_output=True, text=True, check=True
            ).stdout.split()
        )
    assert [kind for kind, _ in outputs] == ["upb", "python"]
    assert outputs[0][1] == outputs[1][1]
