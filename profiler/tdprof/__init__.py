"""tdprof: a sampling profiler for Arm Neoverse that says where a program spends its time, and why."""

__version__ = "0.1.0"
