import os
import subprocess
import sys

COUNT = (
    "import os, tdprof.cli.loading; "
    "print(len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS', 'unset'))"
)


def count(environment: dict[str, str]) -> list[str]:
    done = subprocess.run([sys.executable, "-c", COUNT], env=environment, check=True, capture_output=True, text=True)
    return done.stdout.split()


def test_numpy_starts_no_threads_and_the_environment_stays_as_it_was() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    threads, variable = count(environment)
    assert variable == "unset"
    assert count(environment | {"OPENBLAS_NUM_THREADS": "1"}) == [threads, "1"]
