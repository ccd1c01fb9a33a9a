"""The HTML page of a capture, for `tdprof export` and `tdprof view`."""

from typing import BinaryIO

from tdprof.calibrate import calibrated
from tdprof.profile import Profile
from tdprof.report.html import write_html


def write_page(profile: Profile, out: BinaryIO) -> None:
    """Write the page of a profile as it was recorded, with what its metrics say where it has any."""
    write_html(calibrated(profile), None, out)
