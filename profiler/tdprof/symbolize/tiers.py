"""Names of functions that a runtime compiles several times, by how often they run: each function has one."""

import re

# V8's, before the function's own name: interpreted, baseline, Maglev, TurboFan (CodeKindToMarker in
# src/objects/code-kind.cc); "Function", "LazyCompile" and "Script" until V8 9.
_V8 = re.compile(r"((?:JS|Eval|Function|LazyCompile|Script):)[~^+*]")


def function_of(name: str) -> str:
    """The name without what tells how well the code was compiled, in which V8 names it."""
    tier = _V8.match(name)
    return tier[1] + name[tier.end() :] if tier else name
