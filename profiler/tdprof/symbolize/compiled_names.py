"""What runtimes write into the names of code that they compile: how well, and where its source is."""

import re
from typing import NamedTuple
from urllib.parse import unquote

from tdprof.symbolize.locations import SourcePlace

# V8's, before the function's own name: interpreted, baseline, Maglev, TurboFan (CodeKindToMarker in
# src/objects/code-kind.cc), the latter two for one closure only, or to go on within a loop (from V8 14 on); "Function",
# "LazyCompile" and "Script" until V8 10.
_V8 = re.compile(r"((?:JS|Eval|Function|LazyCompile|Script):)(?:o?([~^+*])'?)?")
_V8_HAS_COLUMN = "JS:"  # in names that begin so; of V8 10 and before some have it (Node 16), others have not (Node 18)
_V8_WASM_TIER = re.compile(r"(-[0-9]+)-(?:liftoff|turbofan)\Z")  # WasmCode::LogCode in src/wasm/wasm-code-manager.cc
# .NET's, behind it (PrepareCodeConfig::GetJitOptimizationTierStr in src/coreclr/vm/prestub.cpp).
_DOTNET_TIER = re.compile(
    r"(?<=\S)\[(?:PreJIT|ReadyToRun|MinOptJitted|Optimized|QuickJitted|OptimizedTier1|OptimizedTier1OSR|"
    r"InstrumentedTier|InstrumentedTierOptimized)\]\Z"
)
_JSC_TIER = re.compile(r"JSC-(?:Baseline|DFG|FTL): ")  # JavaScriptCore's, seen of Bun 1.4
# Functions' names may have blanks ("get size"), and paths, too: one that is whole begins so.
_V8_FILE = re.compile(r".*? (?=/|file://|node:|https?://|wasm://)", re.DOTALL)
_URL = "file://"  # of modules
_PYTHON_FILE = re.compile(r"py::[^:]*:(.*[^\]])", re.DOTALL)  # perf_map_write_entry in Python/perf_trampoline.c
_MOST_DIGITS = 9


# Memory of HotSpot's compilers among its code, of which nothing ever runs: they return it, and code takes its place
# (init_c1_buffer in src/hotspot/share/c1/c1_Compiler.cpp, init_scratch_buffer_blob in opto/output.cpp,
# SignatureHandlerLibrary in interpreter/interpreterRuntime.cpp).
_NO_CODE = {"C1 temporary CodeBuffer", "Compile::scratch_buffer", "Signature Handler Temp Buffer"}


def is_code(name: str) -> bool:
    """Whether what a runtime's map calls so can be what a sample was taken in."""
    return name not in _NO_CODE


def function_of(name: str) -> str:
    """The name without what tells how well the code was compiled: each function has one, however often that is."""
    if begin := _V8.match(name):
        return begin[1] + _V8_WASM_TIER.sub(r"\1", name[begin.end() :])
    if begin := _JSC_TIER.match(name):
        return f"JSC: {name[begin.end() :]}"
    tier = _DOTNET_TIER.search(name)
    return name[: tier.start()] if tier else name


class Script(NamedTuple):
    """Where V8 has a function from: its tier's mark, if any, the path of the file, and the line that it begins in."""

    tier: str
    file: str
    line: int


def script_of(name: str) -> Script | None:
    """What the name of a function of JavaScript says, with or without its tier; None of other names."""
    begin = _V8.match(name)
    text, _, column = name.rpartition(":")
    before, _, line = text.rpartition(":")
    if not (begin and _is_number(column)):
        return None
    if _is_number(line):
        text = before
    elif begin[1] == _V8_HAS_COLUMN:
        return None
    else:
        line = column
    head = _V8_FILE.match(text)
    file = text[head.end() :] if head else text.rpartition(" ")[2]
    return Script(begin[2] or "", unquote(file.removeprefix(_URL)) if file.startswith(_URL) else file, int(line))


def place_of(name: str) -> SourcePlace | None:
    """Where a function begins by its name; None of those that do not tell."""
    if match := _PYTHON_FILE.fullmatch(name):
        return SourcePlace(match[1], 0)
    script = script_of(name)
    return script and SourcePlace(script.file, script.line)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS
