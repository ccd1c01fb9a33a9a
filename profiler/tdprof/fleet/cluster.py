"""Work on many processes or machines, by Dask distributed: its futures and nothing else of it.

What Dask does: schedules, takes work of lost workers up again, bounds and restarts workers, speaks TLS. What is here:
who is to blame where workers die, and that nobody speaks to an unprotected scheduler by mistake.
"""

import contextlib
import ipaddress
import logging
import tempfile
from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import urlsplit

import dask
import distributed

from tdprof.errors import TdprofError
from tdprof.fleet.engine import Done, Work

_CONNECT_S, _WORKERS_S = 15, 60
# A task is taken up again so often when its worker dies, before it is tried alone.
_SECOND_CHANCES = 1


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
        self._waiting: dict[Any, tuple[Work, Sequence[str], str]] = {}

    def open(self) -> None:
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
        stack.enter_context(dask.config.set({"distributed.scheduler.allowed-failures": self._second_chances}))
        return distributed.LocalCluster(
            n_workers=self._workers,
            threads_per_worker=1,
            host="127.0.0.1",
            dashboard_address=None,
            local_directory=folder,
            # Lost workers are told as captures that were set aside.
            silence_logs=logging.CRITICAL,
        )

    def submit(self, work: Work, sources: Sequence[str], options: str) -> None:
        self._waiting[self._client.submit(work, sources, options, pure=False)] = (work, sources, options)

    def as_completed(self) -> Iterator[Done]:
        suspects: list[tuple[Work, Sequence[str], str]] = []
        yield from self._finished(suspects)
        # Work whose workers died is done again a capture at a time, and with nothing beside it: what dies then is to
        # blame, and not its neighbour.
        for work, sources, options in suspects:
            for source in sources:
                alone: list[tuple[Work, Sequence[str], str]] = []
                self.submit(work, [source], options)
                yield from self._finished(alone)
                if alone:
                    yield Done(
                        [source], None, "whatever process reads it dies: it takes too much memory, or is made for it"
                    )

    def _finished(self, suspects: list[tuple[Work, Sequence[str], str]]) -> Iterator[Done]:
        running = distributed.as_completed(list(self._waiting), loop=self._client.loop)
        for future in running:
            work, sources, options = self._waiting.pop(future)
            try:
                result = future.result()
            except distributed.KilledWorker:
                suspects.append((work, sources, options))
                continue
            except (distributed.CancelledError, distributed.comm.CommClosedError) as error:
                raise TdprofError("the Dask scheduler is gone", hint="run it again: what is done is kept") from error
            yield Done(sources, result)

    def cancel(self) -> None:
        self._client.cancel(list(self._waiting), force=True)
        self._waiting.clear()

    def close(self) -> None:
        self._resources.close()


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
