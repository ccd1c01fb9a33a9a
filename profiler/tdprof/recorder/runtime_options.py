"""What `record --perf-maps` puts into a command's environment, so that runtimes name the code they make."""

from collections.abc import Mapping

# By variable: what a runtime without it runs as well, but without names. Those that end with it are left as they are.
_WORDS = {
    # An older Java would not start with an option that it does not know. The last two write the map at its end.
    "JAVA_TOOL_OPTIONS": "-XX:+IgnoreUnrecognizedVMOptions -XX:+PreserveFramePointer "
    "-XX:+UnlockDiagnosticVMOptions -XX:+DebugNonSafepoints -XX:+DumpPerfMapAtExit",
    "ERL_AFLAGS": "+JPperf true",  # Erlang/OTP 24 and later; those before would not start with it
    # Without "only-functions" it leaves a log in the folder it runs in.
    "NODE_OPTIONS": "--perf-basic-prof-only-functions --interpreted-frames-native-stack",
    "MONO_ENV_OPTIONS": "--jitmap",
    "DENO_V8_FLAGS": "--perf-basic-prof-only-functions,--interpreted-frames-native-stack",
}
_BETWEEN_WORDS = {"DENO_V8_FLAGS": ","}
_VALUES = {
    "DOTNET_PerfMapEnabled": "1",
    "COMPlus_PerfMapEnabled": "1",  # before .NET 6
    "BUN_JSC_useJITDump": "1",
    "BUN_JSC_jitDumpDirectory": "/tmp",
}
# Of the runtimes that all of these are for; in `model/runtimes.py`.
SET_RUNTIMES = frozenset({"Java", "Erlang", "Node", "Deno", "Bun", ".NET", "Mono"})


def with_perf_maps(environment: Mapping[str, str], *, has_python: bool) -> dict[str, str]:
    """The variables to set beside these: words are added to what is there, values that are there stay.

    Args:
        environment: of the command.
        has_python: of Python too, whose frames nothing walks then: what it names costs whole native stacks.
    """
    values = _VALUES | ({"PYTHONPERFSUPPORT": "1"} if has_python else {})
    words = {
        name: f"{environment[name]}{_BETWEEN_WORDS.get(name, ' ')}{text}" if environment.get(name) else text
        for name, text in _WORDS.items()
    }
    return words | {name: value for name, value in values.items() if name not in environment}


def perf_maps_note(variables: Mapping[str, str]) -> str:
    """What the capture says of it."""
    return f"--perf-maps: set in the command's environment: {', '.join(sorted(variables))}"
