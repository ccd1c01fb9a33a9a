"""Names of files and folders in a capture, beside its tables and those of the spool."""

VDSO_FILE = "vdso.so"
PERF_MAP_FOLDER = "perf-maps"
FILES_FOLDER = "files"
"""Programs and libraries, named by their build-id."""


MANIFEST_FILE = "capture.json"

STORE_MARKER = "tdprof-store.json"
"""Of a store of many captures, which is none itself."""
