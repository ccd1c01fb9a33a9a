"""Loads NumPy without the threads of its linear algebra. To be loaded before what loads NumPy."""

import contextlib
import os
from collections.abc import Iterator

import tdprof.cli.stand_ins  # noqa: F401  # before NumPy


@contextlib.contextmanager
def with_environment(variables: dict[str, str]) -> Iterator[None]:
    """Within the block, environment variables have these values; what is started later gets what the user set."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


# NumPy's OpenBLAS starts one for each CPU when it is loaded, which spins a while: nothing here needs them.
with with_environment({"OPENBLAS_NUM_THREADS": "1"}):
    import numpy as np  # noqa: F401
