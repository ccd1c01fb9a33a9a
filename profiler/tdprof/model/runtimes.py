"""Language runtimes, by the files that hold them, and how each is made to tell the names of what it runs."""

import re

from tdprof.model.addresses import JAVA, PYTHON
from tdprof.values import dataclass

JAVA_LANGUAGE, PYTHON_LANGUAGE = "Java", "Python"
INTERPRETED_LANGUAGES = {PYTHON: PYTHON_LANGUAGE, JAVA: JAVA_LANGUAGE}
"""By the path of what is interpreted."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """What runs programs of a language.

    Attributes:
        language: what its programs are written in, most of them.
        is_compiler: it compiles whatever it runs, unless told not to.
        files: names of the programs and libraries that hold it.
        to_write_a_map: what makes it write /tmp/perf-PID.map; empty: nothing does.
        to_start: what to start it with where the map takes no flag, but whole stacks do.
        name: its own, where it is not alone in running its language.
        given: what its arguments or environment have where it was told to; None: it need not be.
    """

    language: str
    is_compiler: bool
    files: re.Pattern[str]
    to_write_a_map: str
    given: re.Pattern[str] | None = None
    to_start: str = ""
    name: str = ""

    @property
    def called(self) -> str:
        """What it is known as."""
        return self.name or self.language

    @property
    def to_start_with(self) -> str:
        """What to start it with, so that functions have names and callers."""
        return self.to_start or self.to_write_a_map


_V8_WAS_TOLD = re.compile(r"--(perf-basic-prof|perf-prof)")
RUNTIMES = (
    Runtime(
        JAVA_LANGUAGE,
        True,
        re.compile(r"libjvm\.so"),
        "jcmd PID Compiler.perfmap while it runs (JDK 17 and later)",
        re.compile(r"-XX:\+PreserveFramePointer"),
        "-XX:+PreserveFramePointer",
    ),
    Runtime(
        "JavaScript",
        True,
        re.compile(r"node(js)?|libnode\.so.*"),
        "node --perf-basic-prof",
        _V8_WAS_TOLD,
        name="Node",
    ),
    Runtime(
        "JavaScript",
        True,
        re.compile(r"deno"),
        "deno --v8-flags=--perf-basic-prof",
        _V8_WAS_TOLD,
        name="Deno",
    ),
    Runtime(
        "JavaScript",
        True,
        re.compile(r"bun"),
        "BUN_JSC_useJITDump=1 and BUN_JSC_jitDumpDirectory=/tmp in its environment",
        re.compile(r"JSC_useJITDump=(1|true)"),
        name="Bun",
    ),
    Runtime(
        PYTHON_LANGUAGE, False, re.compile(r"(lib)?python3[.\d]*(\.so.*)?"), "python -X perf (CPython 3.12 and later)"
    ),
    Runtime(
        ".NET",
        True,
        re.compile(r"libcoreclr\.so"),
        "DOTNET_PerfMapEnabled=1 in its environment",
        re.compile(r"(DOTNET|COMPlus)_PerfMapEnabled=[1-3]"),
    ),
    Runtime(
        ".NET",
        True,
        re.compile(r"mono(-sgen)?|libmono(sgen|boehm)?-[-.\w]*\.so.*"),
        "mono --jitmap",
        re.compile(r"--jitmap"),
        name="Mono",
    ),
    Runtime(
        "Ruby",
        False,
        re.compile(r"ruby[.\d]*|libruby[-.\w]*\.so.*"),
        "ruby --yjit --yjit-perf (Ruby 3.3 and later)",
        re.compile(r"--yjit-perf"),
    ),
    Runtime(
        "PHP",
        False,
        re.compile(r"php(-fpm|-cgi)?[.\d]*|libphp[.\d]*\.so"),
        "php -d opcache.enable_cli=1 -d opcache.jit_buffer_size=64M -d opcache.jit=tracing -d opcache.jit_debug=0x10",
        re.compile(r"opcache\.jit_debug"),
    ),
    Runtime("PyPy", False, re.compile(r"pypy3?[.\d]*|libpypy[.\d]*-c\.so"), ""),
    Runtime("Perl", False, re.compile(r"perl[.\d]*|libperl\.so.*"), ""),
    Runtime("R", False, re.compile(r"libR\.so.*"), ""),
    Runtime("Tcl", False, re.compile(r"(tclsh|wish)[.\d]*|libtcl[.\d]*\.so.*"), ""),
    Runtime("Lua", False, re.compile(r"lua[.\d]*|liblua[-.\d]*\.so.*"), ""),
    Runtime(
        "Lua",
        False,
        re.compile(r"luajit[-.\w]*|libluajit[-.\w]*\.so.*"),
        "a LuaJIT built with -DLUAJIT_USE_PERFTOOLS",
        name="LuaJIT",
    ),
    Runtime("Scheme", False, re.compile(r"libguile-[.\d]+\.so.*"), "", name="Guile"),
    Runtime("OCaml", False, re.compile(r"ocamlrun[di]?|libcamlrun_shared\.so"), ""),
    Runtime("Common Lisp", True, re.compile(r"sbcl(\.core)?"), "", name="SBCL"),
    Runtime("Erlang", True, re.compile(r"beam\.smp"), "erl +JPperf true", re.compile(r"\+JPperf true")),
    Runtime(
        "WebAssembly",
        True,
        re.compile(r"wasmtime|_?libwasmtime[-.\w]*\.so.*"),
        "wasmtime run --profile=perfmap",
        re.compile(r"--profile[= ](perfmap|jitdump)"),
    ),
)


def runtimes_of(path: str) -> list[Runtime]:
    """Those that this file holds."""
    name = path.rpartition("/")[2]
    return [runtime for runtime in RUNTIMES if runtime.files.fullmatch(name)]
