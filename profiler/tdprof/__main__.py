"""`python -m tdprof`, where the console script is not on PATH."""

from tdprof.cli.main import main

main()
