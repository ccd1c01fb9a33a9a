"""The words of a call chain as the kernel writes it: frames, and marks that say whose the next ones are."""

from collections.abc import Sequence

from tdprof.decode.perf.layout import MISC_HYPERVISOR, MISC_KERNEL, MISC_USER

# PERF_CONTEXT_*, include/uapi/linux/perf_event.h
_CONTEXT_MAX = 2**64 - 4095
_CONTEXT_KERNEL = {2**64 - 128, 2**64 - 32}  # and PERF_CONTEXT_HV
_CONTEXT_USER = 2**64 - 512
_CONTEXT_USER_DEFERRED = 2**64 - 640
_CONTEXT_GUEST = {2**64 - 2048, 2**64 - 2176, 2**64 - 2560}


class SplitChain:
    """A call chain as the kernel writes it, taken apart into user and kernel frames."""

    def __init__(self, cpu_mode: int) -> None:
        self.user: list[int] = []
        self.kernel: list[int] = []
        self.guests = self.unknown = self.deferred = 0
        self._context = min(_CONTEXT_GUEST)
        if cpu_mode == MISC_USER:
            self._context = _CONTEXT_USER
        elif cpu_mode in (MISC_KERNEL, MISC_HYPERVISOR):
            self._context = max(_CONTEXT_KERNEL)

    def split(self, words: Sequence[int]) -> None:
        """Add a chain; whatever has no frame for the user or the kernel is counted."""
        rest = iter(words)
        for word in rest:
            if word >= _CONTEXT_MAX:
                self._context = word
                if word == _CONTEXT_USER_DEFERRED and next(rest, None) is not None:
                    self.deferred += 1
            elif self._context == _CONTEXT_USER:
                self.user.append(word)
            elif self._context in _CONTEXT_KERNEL:
                self.kernel.append(word)
            elif self._context in _CONTEXT_GUEST:
                self.guests += 1
            else:
                self.unknown += 1
        while self.user and self.user[-1] == 0:  # the end mark of a frame-pointer chain
            self.user.pop()
