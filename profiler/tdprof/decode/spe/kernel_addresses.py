"""Kernel addresses in SPE data: what kernel symbols are needed for."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np

from arm_spe import ColumnMemory, RecordDecoder
from tdprof.decode.spe.spans import SpeInput, open_raw_file
from tdprof.linux.file_bytes import inner_folder, open_own
from tdprof.model.addresses import KERNEL_ADDRESS
from tdprof.model.arrays import U64

_BATCH_RECORDS = 1 << 14
_MERGED_BATCHES = 64  # sorting what was found again and again would cost more than decoding


def kernel_addresses(source: SpeInput) -> U64:
    """Distinct and sorted addresses of the kernel's sampled instructions."""
    memory = ColumnMemory(_BATCH_RECORDS)
    found = [np.zeros(0, np.uint64)]
    for span in source.spans:
        for batch in RecordDecoder(span.data, memory=memory):
            addresses: U64 = batch["pc"].view(np.uint64)
            found.append(np.unique(addresses[addresses >= KERNEL_ADDRESS]))
            if len(found) > _MERGED_BATCHES:
                found = [np.unique(np.concatenate(found))]
    return np.unique(np.concatenate(found))


def kernel_addresses_of_folder(folder: Path) -> U64:
    """The same of a capture's files of AUX bytes, which may hold more than whole records."""
    found = [np.zeros(0, np.uint64)]
    with inner_folder(folder) as inner:
        for path in inner.glob("*.aux") if inner else ():
            with contextlib.suppress(OSError), open_own(path) as file, open_raw_file(file, path.name) as source:
                found.append(kernel_addresses(source))
    return np.unique(np.concatenate(found))
