"""glibc's heap: whether what is freed goes back to the system."""

import ctypes
import gc

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _M_ARENA_MAX = -1, -3, -8  # malloc.h
_LARGEST_MMAP_THRESHOLD = 32 << 20  # glibc takes no larger one
GLIBCS_BYTES = 128 << 10  # blocks of that size are mapped, as glibc begins with


def map_large_blocks(from_bytes: int = GLIBCS_BYTES) -> None:
    """For this process: blocks so large are mapped each for itself, and gone once they are freed.

    glibc raises this limit with every large block that is freed, and then keeps blocks of that size for itself. At the
    end of its heap it keeps twice as much as the limit, which it does not do of itself where that is given.
    """
    _mallopt(_M_MMAP_THRESHOLD, from_bytes)
    _mallopt(_M_TRIM_THRESHOLD, 2 * from_bytes)


def use_blocks_again(up_to_bytes: int) -> None:
    """For this process: up to so much of what is freed stays, since new pages have to be cleared by the kernel."""
    _mallopt(_M_MMAP_THRESHOLD, _LARGEST_MMAP_THRESHOLD)
    _mallopt(_M_TRIM_THRESHOLD, up_to_bytes)


def share_one_heap() -> None:
    """For this process, before it has threads: none gets a heap of its own, most of which would stay unused."""
    _mallopt(_M_ARENA_MAX, 1)


def give_back_free_pages() -> None:
    """What is free between blocks that are in use goes back, too; takes some milliseconds."""
    # What refers to itself, such as each of json's encoders, waits for a quarter as much as was there in the beginning.
    gc.collect()
    if (malloc_trim := getattr(ctypes.CDLL(None), "malloc_trim", None)) is not None:
        malloc_trim(0)


def _mallopt(parameter: int, value: int) -> None:
    if (mallopt := getattr(ctypes.CDLL(None), "mallopt", None)) is not None:  # another C library has none
        mallopt(parameter, value)
