"""Context switches of this machine's kernel: who they say ran is who was sampled."""

import threading
import time
from pathlib import Path

import numpy as np
import pytest

from tdprof.capture.spool import SpoolWriter
from tdprof.decode.perf.columns import NOT_RECORDED
from tdprof.decode.perf.layout import RecordLayout
from tdprof.decode.perf.records import open_record_stream
from tdprof.decode.spe.switches import switch_rows, switches_of
from tdprof.linux.own_folder import OwnFolder
from tdprof.model.spe import NO_TID
from tdprof.recorder.attach import AttachedEvents
from tdprof.recorder.chain_source import RING_SAMPLE_TYPE, SIDE_BAND_SAMPLE_TYPE
from tdprof.recorder.events import parse_event
from tdprof.recorder.host import online_cpus
from tdprof.recorder.locked_memory import RingSizes
from tdprof.recorder.targets import Rate, SamplingTarget
from tdprof.recorder.wanted_events import WantedEvents

pytestmark = [pytest.mark.needs_perf, pytest.mark.needs_root]


def test_samples_are_of_the_thread_that_was_switched_to(tmp_path: Path) -> None:
    events = [parse_event("cpu-clock")]
    stop = threading.Event()

    def nap() -> None:
        while not stop.is_set():
            sum(range(2000))
            time.sleep(0.0005)

    workers = [threading.Thread(target=nap) for _ in range(4)]
    sizes = RingSizes.wanted(has_spe=False)
    wanted = WantedEvents(events, SamplingTarget([-1]), [Rate(2000)], None, sizes=sizes, has_switches=True)
    with (
        AttachedEvents(wanted, online_cpus()) as attached,
        SpoolWriter(OwnFolder.open(tmp_path)) as spool,
    ):
        attached.enable()
        for worker in workers:
            worker.start()
        end = time.monotonic() + 0.5
        while time.monotonic() < end:  # left to the end, what other programs do fills the rings on a busy machine
            time.sleep(0.01)
            attached.look()
            attached.drain(spool)
        stop.set()
        for worker in workers:
            worker.join()
        attached.disable()
        attached.look()
        attached.drain(spool)
        (ids,) = attached.record_ids()
    layouts = [RecordLayout(RING_SAMPLE_TYPE, ids=tuple(ids)), RecordLayout(SIDE_BAND_SAMPLE_TYPE)]
    stream = open_record_stream(layouts)
    checked = switched = unknown = 0
    for path in tmp_path.rglob("ring.*.perf"):
        stream.feed(path.read_bytes(), final=True)
        samples, switches = stream.take_samples(), switches_of([switch_rows(stream.take_side_band().rows)])
        for cpu in np.unique(samples.cpu).tolist():
            mine = (samples.cpu == cpu) & (samples.tid != NOT_RECORDED)  # as those of a thread about to be gone
            told = switches[cpu].thread_at(samples.time_ns[mine])
            is_told = told != NO_TID  # not beside records that were lost, nor before a thread that was gone by then
            assert told[is_told].tolist() == samples.tid[mine][is_told].tolist()
            checked += int(is_told.sum())
            unknown += int((~is_told).sum())
            switched += len(switches[cpu].time_ns)
    assert checked > 200
    assert unknown < checked / 10
    assert switched > 100


def test_no_record_leaves_a_ring_unseen(tmp_path: Path) -> None:
    """Programs that are gone in a moment are held by what a look at the rings tells."""
    seen: list[bytes] = []
    cpu = online_cpus()[0]
    wanted = WantedEvents(
        [parse_event("cpu-clock")],
        SamplingTarget([-1]),
        [Rate(4000)],
        None,
        sizes=RingSizes.wanted(has_spe=False),
        has_switches=True,
    )
    with (
        AttachedEvents(wanted, [cpu]) as attached,
        SpoolWriter(OwnFolder.open(tmp_path)) as spool,
    ):
        attached.enable()
        while len([records for records in seen if records]) <= 50:
            seen += attached.look()
            time.sleep(0.002)  # while more comes
            attached.drain(spool)
        attached.disable()
        seen += attached.look()
        attached.drain(spool)
    (path,) = tmp_path.rglob("ring.*.perf")
    assert b"".join(seen) == path.read_bytes()
