"""Modules that click and `dataclasses` load and hardly ever use: loaded when something in them is used, not before."""

import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any


def _cleandoc(text: str) -> str:
    """`inspect.cleandoc`, which click asks for the help of each option: nearly all are one line."""
    if "\n" in text or "\t" in text or text[:1].isspace():
        cleaned: str = importlib.import_module("inspect").cleandoc(text)
        return cleaned
    return text


class _Uuid:
    """`uuid.UUID`, which click derives a type of options from that none of ours has."""

    def __new__(cls, *values: object) -> object:  # type: ignore[misc]
        return importlib.import_module("uuid").UUID(*values)


# What is asked of each at once; all else it is loaded for.
LATE: dict[str, dict[str, Any]] = {"inspect": {"cleandoc": _cleandoc}, "uuid": {"UUID": _Uuid}}


@contextmanager
def loaded_when_used(modules: Mapping[str, Mapping[str, object]]) -> Iterator[None]:
    """Who imports one of these meanwhile has what stands in for it; afterwards whoever does has the module itself.

    Args:
        modules: by name, each with what the stand-in has itself.
    """
    late = {name: _late(name, has) for name, has in modules.items() if name not in sys.modules}
    sys.modules.update(late)
    try:
        yield
    finally:
        for name, module in late.items():
            _step_aside(name, module)


def _late(name: str, has: Mapping[str, object]) -> ModuleType:
    module = ModuleType(name)

    def load(attribute: str) -> object:
        if attribute.startswith("__"):  # import itself looks for those
            raise AttributeError(attribute)
        _step_aside(name, module)
        return getattr(importlib.import_module(name), attribute)

    module.__dict__.update(has, __getattr__=load)
    return module


def _step_aside(name: str, module: ModuleType) -> None:
    if sys.modules.get(name) is module:
        del sys.modules[name]
