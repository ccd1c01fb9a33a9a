# SPDX-License-Identifier: Apache-2.0
"""Libraries at work, and how much processor time each function took by its thread's clock. Argument: seconds."""

import hashlib
import json
import re
import sys
import time
import zlib
from typing import Any

items: list[dict[str, Any]] = []
text = ""


def section_make() -> None:
    items[:] = [{"name": f"item {i * 7919 % 2003}", "value": i * 31 % 97 / 97} for i in range(4000)]


def section_json() -> None:
    global text
    text = json.dumps(items, indent=1)
    json.loads(text)


def section_sort() -> None:
    items.sort(key=lambda item: (item["value"], item["name"]))
    items.sort(key=lambda item: item["name"])


def section_match() -> int:
    return len(re.findall(r'item (\d+)5",\n\s+"value": 0\.(\d)', text))


def section_pack() -> int:
    return len(zlib.compress(text.encode()))


def section_hash() -> list[bytes]:
    return [hashlib.sha256(text.encode()).digest() for _ in range(8)]


def section_map() -> dict[str, int]:
    counts: dict[str, int] = {}
    for i in range(40000):
        key = str(i % 5000)
        counts[key] = counts.get(key, 0) + i
    return counts


def main() -> None:
    work = [section_make, section_json, section_sort, section_match, section_pack, section_hash, section_map]
    took = [0] * len(work)
    end = time.monotonic() + int(sys.argv[1])
    while time.monotonic() < end:
        for i, section in enumerate(work):
            before = time.thread_time_ns()
            section()
            took[i] += time.thread_time_ns() - before
    for i, section in enumerate(work):
        print(section.__name__.removeprefix("section_"), took[i])


main()
