"""tdprof: a sampling profiler for Arm Neoverse that says where a program spends its time, and why."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("tdprof")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
