"""Linkage names as people read them: C++ and Rust demangled, the compiler's clone suffixes shown as tags."""

import re
from collections.abc import Sequence

import pydemumble

# What GCC and Clang append to the name of a function that they split off or specialise. The last two only tell
# apart local functions of one name after link-time optimisation, which says nothing to a reader.
_CLONE = re.compile(r"(?:\.(?:cold|part|isra|constprop|unlikely|localalias|llvm|lto_priv)(?:\.\d+)?)+$")
_SILENT = re.compile(r"\.(?:llvm|lto_priv)(?:\.\d+)?")
_VERSION = re.compile(r"@@?(?!plt)[\w.]+$")
_MANGLED = ("_Z", "_R", "__Z", "___Z")


def split_clone_tags(name: str) -> tuple[str, str]:
    """``name`` without its clone suffixes, and those as one text: ``foo.part.0.cold`` is ``foo``, ``part.0 cold``.

    A clone is a piece or a special version of the function that it belongs to, not a function of its own.
    """
    match = _CLONE.search(name)
    if match is None or match.start() == 0:
        return name, ""
    tags = _SILENT.sub("", match.group())
    return name[: match.start()], " ".join(re.findall(r"[a-z_]+(?:\.\d+)?", tags))


def demangle_one(name: str) -> str:
    """The name to show for a linkage name; what cannot be demangled comes back as it is."""
    base, tags = split_clone_tags(_VERSION.sub("", name))
    stem, plt = base, ""
    if base.endswith("@plt"):
        stem, plt = base[:-4], "@plt"
    if stem.startswith(_MANGLED):
        stem = pydemumble.demangle(stem) or stem
    shown = stem + plt
    return f"{shown} [{tags}]" if tags else shown


def demangle(names: Sequence[str]) -> list[str]:
    """The names to show for linkage names, in the same order. Meant for what is shown, not for all that is known."""
    return [demangle_one(name) for name in names]
