"""A file system in user space (FUSE) that withholds parts of its files: who asks for them waits for ever.

It speaks the kernel's protocol (include/uapi/linux/fuse.h) itself, for a folder of regular files that are only read.
"""

import contextlib
import ctypes
import errno
import os
import stat
import struct
import threading

_LIBC = ctypes.CDLL(None, use_errno=True)
_IN_HEADER = struct.Struct("<IIQQIIIHH")  # length, opcode, unique, node, uid, gid, pid, extension, padding
_OUT_HEADER = struct.Struct("<IiQ")  # length, error, unique
_ATTRIBUTES = struct.Struct("<6Q10I")
_ROOT, _FOREVER_S = 1, 3600
_LOOKUP, _FORGET, _GETATTR, _OPEN, _READ, _RELEASE, _INIT, _OPENDIR, _BATCH_FORGET = 1, 2, 3, 14, 15, 18, 26, 27, 42
_MOUNT_OPTIONS = "fd={},rootmode=40000,user_id={},group_id={}"


class SilentFiles:
    """Mounts itself and answers in a thread.

    Args:
        device: /dev/fuse, or a node of the same device.
        folder: where to mount.
        files: contents by name.
        silent_from: offsets by name from which no read is answered.
        failing: how many reads there fail, by name, before the others are not answered.
    """

    def __init__(
        self, device: str, folder: str, files: dict[str, bytes], silent_from: dict[str, int], failing: dict[str, int]
    ) -> None:
        self._contents = dict(enumerate(files.values(), _ROOT + 1))
        self._nodes = dict(zip(files, self._contents, strict=True))
        self._silent_from = {self._nodes[name]: offset for name, offset in silent_from.items()}
        self._failing = {self._nodes[name]: count for name, count in failing.items()}
        self._fd = os.open(device, os.O_RDWR | os.O_CLOEXEC)
        options = _MOUNT_OPTIONS.format(self._fd, os.getuid(), os.getgid()).encode()
        if _LIBC.mount(b"silent", os.fsencode(folder), b"fuse", 0, options):
            raise OSError(ctypes.get_errno(), "cannot mount", folder)
        threading.Thread(target=self._serve, daemon=True).start()

    def leave(self) -> None:
        """In a child of the server: when the server ends all who wait shall have an error."""
        os.close(self._fd)

    def _serve(self) -> None:
        while True:
            try:
                request = os.read(self._fd, 1 << 20)
            except OSError as error:
                if error.errno == errno.ENODEV:  # unmounted
                    return
                continue
            _, opcode, unique, node, *_ = _IN_HEADER.unpack_from(request)
            answer = self._answer(opcode, node, request[_IN_HEADER.size :])
            if answer is None:
                continue
            failure, body = (answer, b"") if isinstance(answer, int) else (0, answer)
            with contextlib.suppress(OSError):  # nobody waits for it any more
                os.write(self._fd, _OUT_HEADER.pack(_OUT_HEADER.size + len(body), -failure, unique) + body)

    def _answer(self, opcode: int, node: int, request: bytes) -> bytes | int | None:
        """The answer's bytes, an error's number, or None for silence."""
        if opcode == _INIT:
            # struct fuse_init_out: version 7.31, no read-ahead, so that nothing waits for what stands behind it.
            return struct.pack("<4I2H2I2H8I", 7, 31, 0, 0, 1, 1, 4096, 1, 1, 0, *[0] * 8)[:64]
        if opcode == _LOOKUP:
            found = self._nodes.get(request.rstrip(b"\0").decode())
            if found is None:
                return errno.ENOENT
            return struct.pack("<4Q2I", found, 0, _FOREVER_S, _FOREVER_S, 0, 0) + self._status(found)
        if opcode == _GETATTR:
            return struct.pack("<Q2I", _FOREVER_S, 0, 0) + self._status(node)
        if opcode in (_OPEN, _OPENDIR):
            return bytes(16)
        if opcode == _READ:
            return self._read(node, *struct.unpack_from("<QQI", request)[1:])
        if opcode in (_FORGET, _BATCH_FORGET):
            return None  # has no answer
        return 0 if opcode == _RELEASE else errno.ENOSYS

    def _read(self, node: int, offset: int, size: int) -> bytes | int | None:
        if offset + size <= self._silent_from[node]:
            return self._contents[node][offset : offset + size]
        left = self._failing.get(node, 0)
        self._failing[node] = left - 1
        return errno.EIO if left > 0 else None

    def _status(self, node: int) -> bytes:
        content = self._contents.get(node, b"")
        mode = stat.S_IFREG | 0o755 if node in self._contents else stat.S_IFDIR | 0o755
        sizes = (node, len(content), (len(content) + 511) // 512, 0, 0, 0)
        return _ATTRIBUTES.pack(*sizes, 0, 0, 0, mode, 1, os.getuid(), os.getgid(), 0, 4096, 0)
