"""Work on many processes or machines, by Dask distributed: its futures and nothing else of it.

What Dask does: schedules, takes work of lost workers up again, bounds and restarts workers, speaks TLS. What is here:
who is to blame where workers die, and that nobody speaks to an unprotected scheduler by mistake.
"""

import contextlib
import ipaddress
import logging
import queue
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed

from tdprof.errors import TdprofError
from tdprof.fleet.engine import Done, Work
from tdprof.fleet.own_process import do_in_own_process
from tdprof.values import dataclass

_CONNECT_S, _WORKERS_S, _LOOK_S = 15, 60, 5
# A task is taken up again so often when its worker dies, before what it reads is suspected.
_SECOND_CHANCES = 1
# What is suspected is asked for so often while workers go on dying, though it cannot be its doing.
_MOST_ROUNDS = 50
# A cluster of its own is started so often, while workers die before they are up.
_STARTS = 20
_TLS = "DASK_DISTRIBUTED__COMM__TLS__"
_KEYS = f"{_TLS}CA_FILE, {_TLS}CLIENT__CERT and {_TLS}CLIENT__KEY name their files"
# Pieces that scheduler and client hold at once, whatever their number.
_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class _Piece:
    """Work on some sources; a suspect, of which workers died, is read by a process of its own, one source at a time."""

    work: Work
    sources: Sequence[str]
    options: str
    is_suspect: bool = False
    rounds: int = 0


class DaskEngine:
    """Does the work on a cluster: one of its own on this machine, or one that is there.

    Args:
        address: of a scheduler, ``tls://…`` or ``tcp://…``; empty: a cluster of its own.
        workers: of a cluster of its own.
        insecure: a scheduler on another machine may be spoken to without TLS.
        second_chances: of a task whose worker died; of a cluster of its own.
    """

    def __init__(
        self, address: str = "", workers: int = 2, *, insecure: bool = False, second_chances: int = _SECOND_CHANCES
    ) -> None:
        if address and not insecure:
            _check_protected(address)
        self._address, self._workers, self._second_chances = address, workers, second_chances
        self._resources = contextlib.ExitStack()
        self._client: Any = None
        self._waiting: deque[_Piece] = deque()
        self._running: dict[Any, _Piece] = {}
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def open(self) -> None:
        _check_keys(self._address)
        with contextlib.ExitStack() as stack:
            try:
                cluster = self._address or stack.enter_context(self._own_cluster(stack))
                client = distributed.Client(cluster, timeout=_CONNECT_S, set_as_default=False)
                self._client = stack.enter_context(client)
                client.wait_for_workers(1, timeout=_WORKERS_S)
            except (OSError, ValueError, TimeoutError) as error:
                where = self._address or "on this machine"
                raise TdprofError(
                    f"no Dask cluster {where}: {str(error) or type(error).__name__}",
                    hint="dask scheduler and dask worker start one; tls:// takes its keys from Dask's configuration",
                ) from error
            self._resources = stack.pop_all()

    def _own_cluster(self, stack: contextlib.ExitStack) -> Any:
        # In /tmp itself, other users know the names that Dask gives its files.
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tdprof-dask-", ignore_cleanup_errors=True))
        # Forked from a process that has loaded what they need: for a worker that is killed another is there soon.
        ways = {
            "scheduler.allowed-failures": self._second_chances,
            "worker.multiprocessing-method": "forkserver",
            # A worker that dies is started anew. On a busy machine that takes longer than Dask waits, before it gives
            # the worker's place up for good.
            "deploy.lost-worker-timeout": "1 day",
            "worker.profile.enabled": False,  # of the worker's own stacks, each 10 ms: nobody looks at it
            # Whether its loops still turn each process looks fifty times a second, which takes 3 % of two CPUs.
            "admin.tick.interval": "1s",
            # Work is done in a thread, whose own heap glibc gives back whenever it is empty: the kernel would clear
            # four times as many pages for each capture.
            "nanny.pre-spawn-environ.MALLOC_ARENA_MAX": 1,
        }
        stack.enter_context(dask.config.set({f"distributed.{name}": value for name, value in ways.items()}))
        distributed.utils.get_mp_context().set_forkserver_preload(["distributed", "tdprof.fleet.work"])
        last: Exception | None = None
        for _ in range(_STARTS):
            try:
                return distributed.LocalCluster(
                    n_workers=self._workers,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    # Where the scheduler's state can be asked for: at a port of its own, or the second of two clusters
                    # on a machine warns of the first's.
                    dashboard_address="127.0.0.1:0",
                    scheduler_kwargs={"dashboard": False},
                    local_directory=folder,
                    # Lost workers are told as captures that were set aside.
                    silence_logs=logging.CRITICAL,
                )
            except RuntimeError as error:  # a worker was killed before it was up: later ones are started anew by Dask
                last = error
        raise OSError(f"its workers die as they start ({last})") from last

    def submit(self, work: Work, sources: Sequence[str], options: str) -> None:
        self._waiting.append(_Piece(work, sources, options))

    def as_completed(self) -> Iterator[Done]:
        while self._waiting or self._running:
            while self._waiting and len(self._running) < _AT_ONCE:
                self._start(self._waiting.popleft())
            future = self._next()
            piece = self._running.pop(future)
            try:
                result = future.result()
            except distributed.KilledWorker:
                yield from self._suspect(piece)
                continue
            except (distributed.CancelledError, distributed.comm.CommClosedError) as error:
                raise _scheduler_gone() from error
            if result is None:
                reason = "whatever process reads it dies: it takes too much memory, or is made for it"
                yield Done(piece.sources, None, reason)
            else:
                yield Done(piece.sources, result)

    def _start(self, piece: _Piece) -> None:
        run = [_in_own_process, piece.work] if piece.is_suspect else [piece.work]
        future = self._client.submit(*run, piece.sources, piece.options, pure=False)
        self._running[future] = piece
        future.add_done_callback(self._done.put)

    def _suspect(self, piece: _Piece) -> Iterator[Done]:
        """Workers died of this, or of somebody who kills workers: which, a process for each source tells."""
        if piece.rounds == _MOST_ROUNDS:
            yield Done(piece.sources, None, "too many workers died while it was read, each of something else")
            return
        for source in piece.sources:
            self._waiting.appendleft(replace(piece, sources=[source], is_suspect=True, rounds=piece.rounds + 1))

    def _next(self) -> Any:
        """The next future that is done.

        Raises:
            TdprofError: there is nobody any more who could do it.
        """
        last_seen = time.monotonic()
        while True:
            with contextlib.suppress(queue.Empty):
                return self._done.get(timeout=_LOOK_S)
            try:
                if self._client.status != "running" or self._client.nthreads():
                    last_seen = time.monotonic()  # it says itself when it gives up its scheduler
            except (OSError, TimeoutError) as error:
                raise _scheduler_gone() from error
            if time.monotonic() > last_seen + _WORKERS_S:
                raise TdprofError("no Dask worker is left", hint="run it again: what is done is kept")

    def cancel(self) -> None:
        self._client.cancel(list(self._running), force=True)
        self._running.clear()
        self._waiting.clear()

    def close(self) -> None:
        self._resources.close()


def _in_own_process(work: Work, sources: Sequence[str], options: str) -> bytes | None:
    """On a worker: the work in a process of its own, which may take as much memory as the worker itself."""
    return do_in_own_process(work, sources, options, distributed.get_worker().memory_manager.memory_limit)


def _scheduler_gone() -> TdprofError:
    return TdprofError("the Dask scheduler is gone", hint="run it again: what is done is kept")


def _check_keys(address: str) -> None:
    """Raises TdprofError: Dask's configuration has no keys for TLS, or wants them where there is none."""
    try:
        security = distributed.Security()
        has_keys = security.get_connection_args("client")["ssl_context"] is not None
    except (OSError, ValueError) as error:  # also ssl.SSLError: files that are not there, or hold none
        raise TdprofError(f"the TLS keys of Dask's configuration cannot be used: {error}", hint=_KEYS) from error
    is_tls = urlsplit(address).scheme == "tls"
    if is_tls and not has_keys:
        raise TdprofError(f"there are no TLS keys to speak to {address} with", hint=_KEYS, status=2)
    if security.require_encryption and not is_tls:
        raise TdprofError(
            f"Dask's configuration requires encryption, and {address or 'a cluster on this machine'} has none",
            hint="--engine tls://…, --engine local, or DASK_DISTRIBUTED__COMM__REQUIRE_ENCRYPTION=false",
            status=2,
        )


def _check_protected(address: str) -> None:
    """Raises TdprofError for a scheduler that anybody on the network may speak to, and so run code on its workers."""
    parts = urlsplit(address)
    if parts.scheme == "tls":
        return
    host = parts.hostname or ""
    try:
        is_here = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_here = False
    if not is_here:
        raise TdprofError(
            f"{address} is another machine's, without TLS",
            hint="--engine tls://…, or --insecure on a network where everybody may run code on the workers",
            status=2,
        )
