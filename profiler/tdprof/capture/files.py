"""Names of files and folders in a capture, beside its tables and those of the spool."""

VDSO_FILE = "vdso.so"
PERF_MAP_FOLDER = "perf-maps"
FILES_FOLDER = "files"
"""Programs and libraries, named by their build-id."""


MANIFEST_FILE = "capture.json"
