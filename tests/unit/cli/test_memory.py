import os
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = (
    "print(len(os.listdir('/proc/self/task')), 'numpy' in sys.modules, os.environ.get('OPENBLAS_NUM_THREADS', 'unset'))"
)
RUN = f"""
import os, sys
from tdprof.cli.main import main
try:
    main()
except SystemExit:
    {COUNT}
"""
# Of files that are not there: modules are loaded, and nothing else is done.
COMMANDS = ("import", "stat --counts", "spe report", "spe decode -o out", "spe dump")
PROGRAMS = {"captures": ("import os, sys, tdprof.cli.loading; " + COUNT,)} | {
    command: (RUN, *command.split(), "/nowhere/file") for command in COMMANDS
}


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="NumPy starts no threads on one CPU")
@pytest.mark.parametrize("name", PROGRAMS)
def test_numpy_starts_no_threads_and_the_environment_stays_as_it_was(name: str) -> None:
    environment = {variable: value for variable, value in os.environ.items() if variable != "OPENBLAS_NUM_THREADS"}
    done = subprocess.run([sys.executable, "-c", *PROGRAMS[name]], env=environment, capture_output=True, text=True)
    assert done.stdout.split() == ["1", "True", "unset"], done.stderr


def test_threads_that_the_user_set_stay_set() -> None:
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "3"}
    done = subprocess.run(
        [sys.executable, "-c", *PROGRAMS["captures"]], env=environment, check=True, capture_output=True, text=True
    )
    assert done.stdout.split() == ["1", "True", "3"]


def test_what_nothing_here_uses_is_not_loaded_and_arrow_computes_all_the_same() -> None:
    """The reader of descriptions alone was a thirtieth of a short report."""
    code = (
        "import sys, tdprof.cli.loading, pyarrow, pyarrow.compute, pyarrow.parquet\n"
        "tdprof.cli.loading.keep_process_small()\n"
        "numbers = pyarrow.array([2, None, 1])\n"
        "print(sorted({'pandas', 'pydoc'} & {*sys.modules}))\n"
        "print(pyarrow.compute.array_sort_indices(numbers, order='descending').to_pylist())\n"
        "print(pyarrow.compute.ScalarAggregateOptions(skip_nulls=False), pyarrow.compute.sum(numbers))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == [
        "[]",
        "[0, 2, 1]",
        "ScalarAggregateOptions(skip_nulls=false, min_count=1) 3",
    ]


def test_functions_of_arrow_are_made_when_they_are_asked_for() -> None:
    """All of them at once were a twentieth of a short report."""
    whole = (
        "import inspect, pyarrow.compute as pc\n"
        "print(inspect.signature(pc.index_in))\n"
        "print(*[name for name, each in vars(pc).items() if hasattr(each, '__arrow_compute_function__')])\n"
    )
    code = (
        "import sys, tdprof.cli.loading, inspect, pyarrow.compute as pc\n"
        "print(*{each.__name__ for each in vars(pc).values() if hasattr(each, '__arrow_compute_function__')})\n"
        "print(inspect.signature(pc.index_in))\n"
        "print(pc.equal is pc.equal, pc.and_.__name__, pc.cast('1', 'int8'), hasattr(pc, 'none'))\n"
        "print([name for name in sys.argv[1:] if not hasattr(pc, name)])\n"
    )
    signature, names = subprocess.check_output([sys.executable, "-c", whole], text=True).splitlines()
    found = subprocess.check_output([sys.executable, "-c", code, *names.split()], text=True).splitlines()
    assert found == ["utf8_zero_fill", signature, "True and_ 1 False", "[]"]
    assert len(names.split()) > 200


def test_another_arrow_that_is_put_together_otherwise_is_loaded_whole() -> None:
    code = (
        "import pathlib, pyarrow, sys, types; from tdprof.cli import loading, stand_ins\n"
        "class Other:\n"
        "    def __init__(self, path, old, new):\n"
        "        self.source = (pathlib.Path(pyarrow.__file__).parent / path).read_text().replace(old, new)\n"
        "    def exec_module(self, module): exec(self.source, vars(module))\n"
        "module = types.ModuleType('pyarrow.compute')\n"
        "stand_ins._FunctionsOnDemand(Other('compute.py', '_wrap_function', '_wrap')).exec_module(module)\n"
        "print(vars(module)['equal'].__name__, vars(module)['and_'].__name__, hasattr(module, '__getattr__'))\n"
        "module = types.ModuleType('pyarrow.parquet.core')\n"
        "other = Other('parquet/core.py', 'LocalFileSystem, FileType', 'LocalFileSystem, FileInfo, FileType')\n"
        "stand_ins._FileSystemsOnDemand(other).exec_module(module)\n"
        "print(module.FileInfo is pyarrow.fs.FileInfo, module.FileType is pyarrow.fs.FileType)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["equal and_ False", "True True"]


def test_file_systems_of_arrow_are_loaded_when_it_is_given_a_path(tmp_path: Path) -> None:
    """They and TLS for them were a twenty-fifth of a short report's time."""
    code = (
        "import sys, tdprof.cli.loading, pyarrow as pa, pyarrow.parquet as pq\n"
        "path = sys.argv[1]; pq.write_table(pa.table({'n': [1, 2]}), pa.OSFile(path, 'wb'))\n"
        "print(pq.ParquetFile(pa.OSFile(path)).read()['n'].to_pylist(), {'ssl', 'pyarrow.fs'} & sys.modules.keys())\n"
        "exec(sys.argv[2])\n"
        "import pyarrow.fs; print('pyarrow._s3fs' in sys.modules, pq.core.FileType is pyarrow.fs.FileType)\n"
    )
    for use in (
        "print(pq.ParquetFile(path).read()['n'].to_pylist())",
        "print(pq.read_table(path)['n'].to_pylist())",
        "print(pq.read_table(path, memory_map=True)['n'].to_pylist())",
        "import pathlib; print(pq.read_table(pathlib.Path(path))['n'].to_pylist())",
        "print(pq.read_table(path, filesystem=__import__('pyarrow.fs').fs.LocalFileSystem())['n'].to_pylist())",
        "print(pq.read_table(path[1:], filesystem='file:///')['n'].to_pylist())",
    ):
        command = [sys.executable, "-c", code, str(tmp_path / "t.parquet"), use]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        assert done.stdout.splitlines() == ["[1, 2] set()", "[1, 2]", "True True"], use


def test_numpy_computes_without_its_types_and_texts() -> None:
    """They were a tenth of a short report's time."""
    code = (
        "import sys, tdprof.cli.loading, numpy as np, numpy.typing as npt\n"
        "print([name for name in sys.modules if name.startswith('numpy._typing.')], np.array.__doc__)\n"
        "print(isinstance(npt.NDArray[np.bool_] | npt.ArrayLike | None, object))\n"
        "import pyarrow as pa; found = pa.array(np.unique([2, 1, 2])).to_pylist()\n"
        "print(found, 'numpy.ma.core' in sys.modules)\n"
        "print(np.unique(np.ma.array([2, 1, 2], mask=[0, 0, 1])).tolist(), np.linalg.norm([3, 4]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.splitlines() == ["[] None", "True", "[1, 2] False", "[1, 2, None] 5.0"]
