"""Linkage names as people read them: C++ and Rust demangled, the compiler's clone suffixes shown as tags."""

import re
from collections.abc import Sequence

from tdprof.symbolize.demangler import demangle_all

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


def demangle(names: Sequence[str]) -> list[str]:
    """The names to show for linkage names, in the same order; what cannot be demangled, or would become longer than
    anybody reads, comes back as it is. Meant for what is shown, not for all that is known."""
    # Most names, of which there are many thousands, are shown as they are.
    parts = {
        name: _parts(name) for name in dict.fromkeys(names) if name.startswith(_MANGLED) or "." in name or "@" in name
    }
    mangled = list(dict.fromkeys(stem for stem, _, _ in parts.values() if stem.startswith(_MANGLED)))
    meant = dict(zip(mangled, demangle_all(mangled), strict=True)) if mangled else {}
    shown = {
        name: f"{meant.get(stem, stem)}{rest} [{tags}]" if tags else meant.get(stem, stem) + rest
        for name, (stem, rest, tags) in parts.items()
    }
    return [shown.get(name, name) for name in names] if shown else list(names)


def _parts(name: str) -> tuple[str, str, str]:
    """A linkage name's stem, what stands behind it as it is (``@plt``, or what is inside of that function), and its
    clone tags."""
    if "::" in name and name.startswith(_MANGLED):
        stem, _, inner = name.partition("::")
        return stem, f"::{inner}", ""
    base, tags = split_clone_tags(_VERSION.sub("", name))
    return (base[:-4], "@plt", tags) if base.endswith("@plt") else (base, "", tags)
