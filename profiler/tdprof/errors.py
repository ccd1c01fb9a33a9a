"""Failures that a user can act on."""


class TdprofError(Exception):
    """A failure whose cause and cure can be named.

    Only ``tdprof.cli`` catches it: it prints ``tdprof: message`` and the hint to stderr and exits with ``status``.

    Args:
        message: the cause, in one line, without a full stop.
        hint: a command or a setting that fixes it, or empty.
        status: the process's exit status.
    """

    def __init__(self, message: str, *, hint: str = "", status: int = 1) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.status = status


class GoneError(TdprofError):
    """A file that was listed is not there any more: somebody else puts what it held elsewhere, or took it out."""
