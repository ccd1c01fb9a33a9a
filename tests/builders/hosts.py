"""A machine that captures come from."""

from tdprof.capture.manifest import Host

HOST = Host("vm", "aarch64", "6.1.0", "boot", "", 2, 4096, {"0": "0x410fd400"}, 2, None)
