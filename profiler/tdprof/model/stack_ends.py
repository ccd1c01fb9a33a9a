"""Why call stacks end where they do."""

from enum import IntEnum


class StackEnd(IntEnum):
    """Why a user call stack ended; the numbers and words are those of ``UNWIND_ENDS`` in bpf/unwind.h."""

    COMPLETE = 1
    BAD_SP = 2
    UNREADABLE = 3
    UNSUPPORTED_RULE = 4
    LR_MID_STACK = 5
    NO_UNWIND_INFO = 6
    JIT = 7
    NO_TABLE = 8
    TOO_DEEP = 9
    NO_MAPPING = 10
    COPY_ENDED = 11
    NO_REGISTERS = 12
    FRAME_POINTERS_ONLY = 13

    @property
    def word(self) -> str:
        """As captures, reports and exports spell it."""
        return self.name.lower().replace("_", "-")

    @property
    def marker(self) -> str:
        """The frame that stands for the callers that are missing."""
        return f"[incomplete: {'jit without frame pointers' if self is StackEnd.JIT else self.word}]"

    @property
    def meaning(self) -> str:
        """The same in a few words for people."""
        return _MEANING[self]


_MEANING = {
    StackEnd.COMPLETE: "the outermost frame was reached",
    StackEnd.BAD_SP: "the caller's stack pointer cannot be right",
    StackEnd.UNREADABLE: "the stack, or code, could not be read (swapped out, or not mapped)",
    StackEnd.UNSUPPORTED_RULE: "unwind information of a form that is not followed",
    StackEnd.LR_MID_STACK: "the return address is in a register that is not known any more",
    StackEnd.NO_UNWIND_INFO: "code without unwind information and frame pointers",
    StackEnd.JIT: "code made at run time, without frame pointers",
    StackEnd.NO_TABLE: "the program's unwind table was not there yet",
    StackEnd.TOO_DEEP: "more frames than are taken",
    StackEnd.NO_MAPPING: "a caller in no known mapping",
    StackEnd.COPY_ENDED: "more stack than was copied",
    StackEnd.NO_REGISTERS: "the thread's registers could not be had",
    StackEnd.FRAME_POINTERS_ONLY: "walked along frame pointers: callers may be missing",
}
