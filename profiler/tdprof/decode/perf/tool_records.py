"""Records that the perf tool adds to the kernel's."""

from enum import IntEnum


class ToolRecord(IntEnum):
    """``enum perf_user_event_type``."""

    HEADER_ATTR = 64
    HEADER_BUILD_ID = 67
    AUXTRACE_INFO = 70
    AUXTRACE = 71
    EVENT_UPDATE = 78
    TIME_CONV = 79
    HEADER_FEATURE = 80
    COMPRESSED = 81
    COMPRESSED2 = 83


# Read by nobody here, on purpose: what they say is known otherwise or concerns perf's own reports.
IGNORED_TOOL_RECORDS = {65, 66, 68, 69, 72, 73, 74, 75, 76, 77, 82}
EVENT_UPDATE_NAME = 2  # PERF_EVENT_UPDATE__NAME
