"""`python -m tdprof`, where the console script is not on PATH."""

from tdprof.cli.main import run_process

run_process()
