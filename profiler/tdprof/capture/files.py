"""Names of files and folders in a capture, beside its tables and those of the spool."""

VDSO_FILE = "vdso.so"
PERF_MAP_FOLDER = "perf-maps"
FILES_FOLDER = "files"
"""Programs and libraries, named by their build-id."""


MOST_CODE_FILE_BYTES = 256 << 20
"""Of a perf map or a jitdump that a capture carries; the recorder keeps no larger one."""

MANIFEST_FILE = "capture.json"

STORE_MARKER = "tdprof-store.json"
"""Of a store of many captures, which is none itself."""
