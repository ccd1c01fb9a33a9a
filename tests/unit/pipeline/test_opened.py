import resource
from pathlib import Path

from builders import spe_capture
from tdprof.pipeline.opened import OpenCapture


def test_as_many_files_may_be_open_as_the_system_allows(tmp_path: Path) -> None:
    spe_capture.write_spe_capture(tmp_path / "capture")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 512), hard))
        with OpenCapture(tmp_path / "capture"):
            assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (
            min(soft, 512),
            hard,
        )
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
