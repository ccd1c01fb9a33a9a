"""Captures opened as a command opens them, for tests that look at what comes of it."""

from pathlib import Path
from typing import Self

from tdprof.model.findings import Findings
from tdprof.model.profile import Profile
from tdprof.model.spe import FunctionOperations, SampledOperations
from tdprof.pipeline.load import load_profile
from tdprof.pipeline.opened import OpenCapture


def profile_of(folder: Path) -> Profile:
    """The profile of a capture's samples."""
    with OpenCapture(folder) as capture:
        return load_profile(capture)


def joined_with_spe(folder: Path, findings: Findings | None = None) -> Findings | None:
    """What SPE measured of a capture's functions, beside what the PMU found."""
    from tdprof.pipeline.spe_columns import join_spe

    with OpenCapture(folder) as capture:
        return join_spe(findings, capture, load_profile(capture))


def function_operations(folder: Path) -> FunctionOperations | None:
    """What SPE measured of each function."""
    from tdprof.pipeline.spe_columns import count_functions

    with OpenCapture(folder) as capture:
        return count_functions(capture, load_profile(capture))


def operations_of(folder: Path, *, most_rows: int = 50_000) -> SampledOperations | None:
    """A capture's SPE records as samples."""
    from tdprof.pipeline.spe_samples import load_operations

    with OpenCapture(folder, most_spe_samples=most_rows) as capture:
        return load_operations(capture)


class NoCapture:
    """Stands where a command opens its capture, in tests that begin at the loaded profile."""

    has_spe = False

    def __init__(self, *_: object, **more: object) -> None:
        self.most_spe_samples = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass
