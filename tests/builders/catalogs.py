"""Small catalogs for tests, in Arm's format, and metrics without a catalog."""

import json
from pathlib import Path
from typing import Any

from tdprof.catalog.entries import Metric
from tdprof.catalog.expression import event_names, parse_formula

Json = dict[str, Any]


def metric_of(formula: str, name: str = "a_metric") -> Metric:
    expression = parse_formula(formula)
    return Metric(name, "A metric", formula, expression, "", "percent", (), 1, event_names(expression), (), "")


def event(code: int, **more: Any) -> Json:
    return {
        "code": f"0x{code:04x}",
        "title": "",
        "description": "",
        "accesses": ["PMU", "ETE"],
        "architecture_defined": True,
        "product_defined": False,
    } | more


def metric(formula: str, **more: Any) -> Json:
    return {
        "title": "T",
        "formula": formula,
        "description": "",
        "units": "percent of slots",
        "events": [],
        "sample_events": [],
    } | more


def small_catalog() -> Json:
    """Two events, two metrics, one group of each stage, a tree of one edge."""
    return {
        "document": {},
        "product_configuration": {
            "product_name": "Test Core",
            "implementer": "0x41",
            "part_num": "0xfff",
            "num_slots": 4,
        },
        "events": {"CPU_CYCLES": event(0x11), "STALLS": event(0x3F)},
        "metrics": {"lost": metric("STALLS / (4 * CPU_CYCLES) * 100"), "ratio": metric("STALLS / CPU_CYCLES")},
        "groups": {
            "function": {"General": {"title": "", "description": "", "events": ["CPU_CYCLES"]}},
            "metrics": {
                "Level_1": {"title": "Level 1", "description": "", "metrics": ["lost"]},
                "Detail": {"title": "Detail", "description": "", "metrics": ["ratio"]},
            },
        },
        "methodologies": {
            "topdown_methodology": {
                "title": "",
                "description": "",
                "metric_grouping": {"stage_1": ["Level_1"], "stage_2": ["Detail"]},
                "decision_tree": {
                    "root_nodes": ["lost"],
                    "metrics": [{"name": "lost", "group": "Level_1", "next_items": ["Detail"], "sample_events": []}],
                },
            }
        },
    }


def write_catalog(folder: Path, value: Any) -> Path:
    path = folder / "core.json"
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path
