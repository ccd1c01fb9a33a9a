"""Where the kernel's structures have what tells of execve(): ``struct exec_places`` of bpf/python_frames.h."""

import contextlib
import ctypes
import threading

from tdprof.errors import TdprofError
from tdprof.recorder.bpf.maps import BPF_MAP_UPDATE_ELEM, map_element
from tdprof.recorder.kernel_types import read_kernel_types
from tdprof.recorder.stop_signals import hear_no_signals

# In the structure's order.
_PLACES = (
    ("linux_binprm", "file"),
    ("file", "f_inode"),
    ("inode", "i_ino"),
    ("inode", "i_size"),
    ("inode", "i_sb"),
    ("super_block", "s_dev"),
    ("task_struct", "mm"),
    ("mm_struct", "start_code"),
)


class ExecPlaces:
    """What the programs are told of it, once: it takes some 10 ms, which a recording of one process can do without.

    Args:
        fd: of the map ``exec_places``, whose descriptor may be closed after `close`.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._lock = threading.Lock()
        self._is_done = False
        self._is_begun = False

    def begin(self) -> None:
        """Tell them soon."""
        if not self._is_begun:
            self._is_begun = True
            threading.Thread(target=self._run, daemon=True).start()

    def find(self) -> None:
        """Tell them now. Where the kernel does not say it, they do without."""
        with self._lock:
            if self._is_done:
                return
            self._is_done = True
            with contextlib.suppress(TdprofError, KeyError):
                offsets = read_kernel_types({structure for structure, _ in _PLACES}, []).offsets
                places = (ctypes.c_uint32 * len(_PLACES))(*(offsets[place] for place in _PLACES))
                map_element(BPF_MAP_UPDATE_ELEM, self._fd, ctypes.c_uint32(0), places)

    def close(self) -> None:
        """Nothing is told afterwards."""
        with self._lock:
            self._is_done = True

    def _run(self) -> None:
        hear_no_signals()
        self.find()
