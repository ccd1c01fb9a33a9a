"""The indexes of documents and of tools leave nothing out, and name nothing that is gone."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def test_documents() -> None:
    linked = set(re.findall(r"\]\(([\w-]+\.md)\)", (ROOT / "docs/README.md").read_text()))
    assert linked == {path.name for path in (ROOT / "docs").glob("*.md")} - {"README.md"}


@pytest.mark.parametrize("folder", [".", "bench", "fuzz"])
def test_tools(folder: str) -> None:
    index = (ROOT / "tools/README.md").read_text()
    executable = {
        path.name for path in (ROOT / "tools" / folder).iterdir() if path.is_file() and path.stat().st_mode & 1
    }
    assert {name for name in executable if f"tools/{name}" not in index and f"`{name}`" not in index} == set()
