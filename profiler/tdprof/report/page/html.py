"""The report as one HTML page that needs nothing else: no server, no network, no file beside it."""

import base64
import hashlib
import html
import re
import zlib
from importlib.resources import files
from typing import BinaryIO

from tdprof.report.page.data import Page, page_document
from tdprof.report.page.packing import COMPRESSION_LEVEL
from tdprof.report.summary import facts

ASSETS = files("tdprof") / "report/page"
# In the order in which they build on each other; together they are one script.
SCRIPTS = (
    "dom",
    "labels",
    "times",
    "strip",
    "model",
    "of_time",
    "graph",
    "change",
    "colour",
    "flame",
    "parts",
    "details",
    "table",
    "tree",
    "main",
)


def write_html(page: Page, out: BinaryIO) -> None:
    """Write the page.

    Its policy lets the browser run this script and this style sheet and load nothing at all: whatever stands in a
    symbol's name, nothing else runs and no request leaves the page.
    """
    style = _asset("page.css")
    script = '"use strict";(() => {\n' + "\n".join(_asset(f"{name}.js") for name in SCRIPTS) + "\n})();\n"
    data = base64.b64encode(zlib.compress(page_document(page), COMPRESSION_LEVEL)).decode()
    parts = {
        "policy": (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:;"
            " base-uri 'none'; form-action 'none'"
        ),
        "title": html.escape(facts(page.profile)[0][1][:200]),
        "style": style,
        "data": data,
        "script": script,
    }
    # One pass, so that no part can hold another one's place.
    text = re.sub(r"\{\{(\w+)\}\}", lambda match: parts[match[1]], _asset("page.html"))
    out.write(text.encode())


def _asset(name: str) -> str:
    return (ASSETS / name).read_text("utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
