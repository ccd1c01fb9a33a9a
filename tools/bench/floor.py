# SPDX-License-Identifier: Apache-2.0
"""Runs a command under an event that overflows and keeps nothing: what the timer interrupt alone costs.

floor.py HZ COMMAND…
"""

import sys

from tdprof.linux.perf_abi import SampleType
from tdprof.recorder import perf_event as pe
from tdprof.recorder.events import parse_event
from tdprof.recorder.host import online_cpus
from tdprof.recorder.workload import Workload

with Workload(sys.argv[2:]) as workload:
    attr = parse_event("cpu-clock").attr()
    attr.disabled = attr.inherit = attr.enable_on_exec = attr.freq = 1
    attr.sample_period = int(sys.argv[1])
    attr.sample_type = SampleType.IP
    descriptors = [pe.perf_event_open(attr, workload.pid, cpu) for cpu in online_cpus()]
    workload.start()
    sys.exit(workload.wait())
