"""Roll-ups of recordings, put into a store without captures: quick to make in numbers."""

from collections.abc import Mapping, Sequence

import pyarrow as pa

from tdprof.fleet.identity import digest
from tdprof.fleet.rollup import content_of
from tdprof.fleet.schema import FUNCTIONS, PATHS, RECORDINGS
from tdprof.fleet.store import Store, make_stem

_PERIOD = 10_000_000


def write_recording(
    store: Store,
    host: str,
    samples: Mapping[str, int],
    *,
    date: str,
    start_ns: int,
    seconds: float = 10.0,
    core: str = "neoverse-v1",
    events: Mapping[str, int] | None = None,
    labels: Sequence[str] = (),
    builds: Sequence[str] = ("ab" * 20,),
) -> None:
    """A recording of ``main`` calling functions, each with so many samples; of each event so many times as many."""
    recording = digest(host.encode(), str(start_ns).encode())
    events = events or {"cpu-clock": 1}
    total = sum(samples.values())
    recordings, functions, paths = [], [], []
    for event, times in events.items():
        recordings.append(
            {
                "recording": recording,
                "event": event,
                "unit": "nanoseconds",
                "samples": times * total,
                "weight": times * total * _PERIOD,
                "counted": None,
                "effective_samples": times * total,
                "known_samples": times * total,
                "lost_samples": 0,
                "start_ns": start_ns,
                "duration_ns": round(seconds * 1e9),
                "cpus": 4,
                "machine": "aarch64",
                "cpu_model": "",
                "kernel": "6.12.1",
                "boot_id": host,
                "catalog": "",
                "builds": list(builds),
                "labels": sorted(labels),
                "lacks_spe": False,
            }
        )
        for number, (name, count) in enumerate([("main", 0), *samples.items()]):
            own, inclusive = times * count, times * (count if number else total)
            functions.append(
                {
                    "recording": recording,
                    "event": event,
                    "id": number,
                    "module": "/srv/app",
                    "build_id": builds[0],
                    "function": name,
                    "linkage_name": name,
                    "file": "app.c",
                    "is_kernel": False,
                    "is_ambiguous": False,
                    "self_samples": own,
                    "self_weight": own * _PERIOD,
                    "total_samples": inclusive,
                    "total_weight": inclusive * _PERIOD,
                }
            )
            if number:
                path = {"frames": [number, 0], "samples": own, "weight": own * _PERIOD}
                paths.append({"recording": recording, "event": event, **path})
    tables = {
        "recordings": pa.Table.from_pylist(recordings, RECORDINGS),
        "functions": pa.Table.from_pylist(functions, FUNCTIONS),
        "paths": pa.Table.from_pylist(paths, PATHS),
    }
    store.write(make_stem(date, core, host, recording, content_of(tables)), tables)
