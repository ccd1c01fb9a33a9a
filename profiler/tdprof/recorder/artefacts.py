"""What must be saved when a recording ends, because it is gone or different later.

The vDSO, perf maps, jitdumps, and programs that no path leads to: those of containers, and deleted ones.
"""

import contextlib
import errno
import functools
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from tdprof.capture.files import FILES_FOLDER, MOST_CODE_FILE_BYTES, PERF_MAP_FOLDER, VDSO_FILE
from tdprof.capture.perf_maps import times_name
from tdprof.capture.spool import limit_of_files
from tdprof.linux.clocks import is_older
from tdprof.linux.elf import build_id_of, read_build_id
from tdprof.linux.file_bytes import FileBytes, reopen_regular
from tdprof.linux.own_folder import OwnFolder
from tdprof.recorder.code_dumps import DUMP_NAME
from tdprof.recorder.foreign_files import CopyBudget, copy_file, open_below
from tdprof.recorder.host import own_vdso
from tdprof.recorder.identity import CannotBecomeError, HeldProcess, Identity, call_as
from tdprof.recorder.patience import Patience

if TYPE_CHECKING:
    from tdprof.recorder.held_programs import HeldPrograms  # an import of perf.data does without

_LARGEST_FILE, _MOST_BYTES_OF_FILES = 1 << 30, 2 << 30
_MOST_BYTES_OF_CODE = 1 << 30
_COPY_PATIENCE_S = 60.0
_JITDUMP = re.compile(f"{DUMP_NAME}$")
_JITDUMP_START = re.compile(rb"DTiJ|JiTD")
_PERF_MAP_START = re.compile(rb"(?:0x)?[0-9a-fA-F]{1,16} (?:0x)?[0-9a-fA-F]{1,16} [^\0-\x1f]")
_START_BYTES = 64


def save_vdso(folder: OwnFolder) -> None:
    """Write this process's vDSO, which is every process's, as an ELF file; nothing where there is none."""
    if vdso := own_vdso():
        with folder.replacing(VDSO_FILE) as file:
            file.write(vdso)


def code_budget(folder: OwnFolder) -> CopyBudget:
    """What run-time code may still take in a capture, of all processes together."""
    kept_bytes = 0
    with contextlib.suppress(FileNotFoundError), folder.subfolder(PERF_MAP_FOLDER) as files:
        kept_bytes = sum(files.stat(name).st_size for name in files.names())
    return CopyBudget(max(_bytes_within(folder, _MOST_BYTES_OF_CODE) - kept_bytes, 0), MOST_CODE_FILE_BYTES)


def _bytes_within(folder: OwnFolder, usual_bytes: int) -> int:
    limit_bytes = limit_of_files(folder)
    return usual_bytes if limit_bytes is None else min(usual_bytes, limit_bytes)


def save_run_time_code(
    folder: OwnFolder,
    pids: Iterable[int],
    dumps: Iterable[tuple[int, str]] = (),
    until_ns: int | None = None,
    budget: CopyBudget | None = None,
    began_ns: Mapping[int, int] = MappingProxyType({}),
) -> list[str]:
    """Copy ``/tmp/perf-PID.map`` of some processes, also as seen from inside their container, and their jitdumps.

    Each is opened with the rights of its process, and belongs to the process's user. That of a process that has ended
    belongs to us or to root: anyone may write into /tmp. None has another name: where fs.protected_hardlinks is off,
    anyone may also link root's files there. None was written last before its process began: another's of its number.

    Args:
        folder: the capture.
        pids: the processes.
        dumps: (pid, mapped path) of all files; a process maps its ``jit-PID.dump`` to tell profilers of it.
        until_ns: the end of the recording (CLOCK_MONOTONIC); a process that began later only has the number.
        budget: of a recording that saves more than once; None: what the capture has room for.
        began_ns: of processes that may have ended (CLOCK_MONOTONIC), as far as it is known.

    Returns:
        What was found but is not used, a sentence each.
    """
    dump_of = {pid: path for pid, path in dumps if _JITDUMP.search(path)}
    budget = code_budget(folder) if budget is None else budget
    notes = []
    for pid in sorted(set(pids) | set(dump_of)):
        with _files_of(pid, until_ns, began_ns.get(pid, 0)) as its:
            numbers = (its.inner_pid, pid)
            wanted = [(f"perf-{pid}.map", [f"tmp/perf-{number}.map" for number in numbers], _PERF_MAP_START)]
            if pid in dump_of:
                wanted.append((f"jit-{pid}.dump", [dump_of[pid]] * 2, _JITDUMP_START))
            for name, paths, start in wanted:
                for (root, owners), path in zip(its.roots, paths[-len(its.roots) :], strict=True):
                    try:
                        open_it = functools.partial(_open_code, its, root, path, owners, start)
                        _keep_code(folder, name, call_as(its.identity, open_it), budget, its.identity.uid)
                        break
                    except (FileNotFoundError, CannotBecomeError):
                        continue
                    except OSError as error:
                        if _has_code(folder, name):  # kept while the process ran
                            break
                        notes.append(f"{path} of process {pid} is not used: {error.strerror}")
    return list(dict.fromkeys(notes))


class _Files(NamedTuple):
    """How to know the files of a process.

    Attributes:
        identity: with which they are opened.
        inner_pid: the process's number as it knows it.
        roots: where to look: (root folder, owners to accept).
        since_ns, before_ns: when it had begun, and when another had that has its number now (CLOCK_MONOTONIC).
    """

    identity: Identity
    inner_pid: int
    roots: list[tuple[int, set[int]]]
    since_ns: int
    before_ns: int | None = None


@contextlib.contextmanager
def _files_of(pid: int, until_ns: int | None, began_ns: int) -> Iterator[_Files]:
    with contextlib.ExitStack() as stack:
        own_root = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, own_root)
        try:
            process = stack.enter_context(HeldProcess(pid))
        except OSError:
            process = None
        if process is None or (until_ns is not None and process.started_ns() > until_ns):
            another_ns = process.started_ns() if process else None
            yield _Files(Identity.own(), pid, [(own_root, {os.geteuid(), 0})], began_ns, another_ns)
            return
        uid = process.identity.uid
        # In its own root anything may stand for anything; in ours an agent of root may have written for it.
        roots = [(process.root, {uid}), (own_root, {uid, 0})]
        yield _Files(process.identity, process.inner_pid, roots, process.started_ns())


def _open_code(its: _Files, root: int, path: str, owners: set[int], start: re.Pattern[bytes]) -> FileBytes:
    source = FileBytes(open_below(root, path))
    if source.owner() not in owners:
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if source.has_other_names():
        raise PermissionError(errno.EPERM, "it has another name, too: who gave it this one is not known")
    if is_older(source.written_ns(), its.since_ns):
        raise OSError(errno.ESTALE, "it is older than the process: another of its number left it")
    if its.before_ns is not None and not is_older(source.written_ns(), its.before_ns):
        raise OSError(errno.ESTALE, "a process that began after the recording has its number, and wrote it")
    if not start.match(source.read(0, _START_BYTES)):
        raise OSError(errno.EINVAL, "it is empty, or of another format")
    return source


def _keep(folder: OwnFolder, subfolder: str, name: str, source: FileBytes, budget: CopyBudget, uid: int) -> None:
    """Copy an open file into the capture, or raise OSError."""
    budget.take(source, uid, name)
    with folder.subfolder(subfolder, make=True) as files, files.replacing(name) as target:
        # Its file system may be one that answers slowly, or never.
        call_as(Identity.own(), lambda: copy_file(source, target), _COPY_PATIENCE_S)


def _keep_code(folder: OwnFolder, name: str, source: FileBytes, budget: CopyBudget, uid: int) -> None:
    """As `_keep`; of a map that was kept before, what is not in it any more stays, in front: code that was freed.

    What was read while it grew stays as it is, unless there is more.
    """
    older, has_times = b"", _has_code(folder, times_name(name))
    if name.endswith(".map") and _has_code(folder, name):
        with folder.subfolder(PERF_MAP_FOLDER) as files:
            older = files.read(name, MOST_CODE_FILE_BYTES)
    _keep(folder, PERF_MAP_FOLDER, name, source, budget, uid)
    if older:
        with folder.subfolder(PERF_MAP_FOLDER) as files:
            newer = files.read(name, MOST_CODE_FILE_BYTES)
            lines, known = set(newer.splitlines()), older.splitlines()
            if has_times and lines.issubset(known):
                newer, known = older, []
            freed = b"".join(line + b"\n" for line in known if line not in lines)
            room = min(MOST_CODE_FILE_BYTES - len(newer), budget.left_for(uid))
            if len(freed) > room:
                freed = freed[: freed.rfind(b"\n", 0, max(room, 0)) + 1]
            budget.add(len(freed), uid, name)
            with files.replacing(name) as target:
                target.write(freed + newer)


def _has_code(folder: OwnFolder, name: str) -> bool:
    try:
        with folder.subfolder(PERF_MAP_FOLDER) as files:
            return files.has(name)
    except FileNotFoundError:
        return False


def sees_other_files(pid: int) -> bool:
    """Whether a path means another file to this process: a container, a chroot. False once it has ended."""
    try:
        return not all(os.path.samefile(f"/proc/{pid}/{name}", f"/proc/self/{name}") for name in ("ns/mnt", "root"))
    except OSError:
        return False


class MappedProgram(NamedTuple):
    """An executable mapping of a process; ``path`` as the process sees it."""

    pid: int
    path: str
    build_id: str | None
    address: int
    length: int


def save_files(
    folder: OwnFolder,
    mapped: Iterable[MappedProgram],
    held: "HeldPrograms | None" = None,
    seen: Iterable[MappedProgram] = (),
) -> list[str]:
    """Copy programs and libraries that running processes map, or that are held, as far as their paths do not lead to
    them here, and as far as the processes themselves may read them.

    Args:
        folder: the capture.
        mapped: by whom.
        held: programs whose processes may have ended.
        seen: what else is mapped. What has the build-id of such a file of root's or ours, under whatever path, is not
            kept: a user's file that claims to be the C library would name its functions in all processes.

    Returns:
        What is not kept though it is there, a sentence each.
    """
    build_id_here = functools.cache(read_build_id)  # many processes map the same
    budget, patience = CopyBudget(_bytes_within(folder, _MOST_BYTES_OF_FILES), _LARGEST_FILE), Patience()
    kept = {file.build_id for file in seen if _is_ours(file.path) and build_id_here(file.path) == file.build_id}
    notes = list[str]()
    for program in mapped:
        if not program.build_id or program.build_id in kept or build_id_here(program.path) == program.build_id:
            continue
        try:
            if held is not None and program.build_id in held:
                source, uid = held.open(program.build_id), held.user_of(program.build_id)
            else:
                with HeldProcess(program.pid) as process:
                    source, uid = _open_program(process, program, patience), process.identity.uid
            if call_as(Identity.own(), functools.partial(build_id_of, source)) == program.build_id:
                _keep(folder, FILES_FOLDER, program.build_id, source, budget, uid)
                kept.add(program.build_id)
        except (FileNotFoundError, ProcessLookupError):
            continue
        except OSError as error:
            notes.append(f"{program.path} is not kept for when its container has ended: {error.strerror}")
    return sorted(set(notes))


def _is_ours(path: str) -> bool:
    try:
        return os.stat(path).st_uid in (0, os.geteuid())
    except OSError:
        return False


def _open_program(process: HeldProcess, program: MappedProgram, patience: Patience) -> FileBytes:
    """The program, if the process may read it: what it may only execute stays where it is."""
    try:
        place = patience.ask(program.pid, lambda: process.hold_mapped(program.address, program.length), os.close)
    except TimeoutError:
        raise
    except OSError:  # for the owner of a container the path must do
        return call_as(process.identity, lambda: FileBytes(open_below(process.root, program.path)))
    try:
        return call_as(process.identity, lambda: FileBytes(reopen_regular(place)))
    finally:
        os.close(place)
