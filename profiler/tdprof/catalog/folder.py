"""Where the packaged catalogs are."""

from pathlib import Path

import tdprof


def catalog_folder() -> Path:
    """Their folder. `importlib.resources` would load `zipfile` and more to say the same, at every start."""
    return Path(tdprof.__file__).parent / "catalogs"
