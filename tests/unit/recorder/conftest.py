"""What the recorder waits for may come late here: these tests run on the time that others leave."""

import pytest

from builders.waiting import PATIENCE_S
from tdprof.recorder import code_watch, java_processes, patience, process_memory, snapshot, table_batch, unwinding


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as anything may take on a busy machine; a test of what does not answer says how long that is."""
    for module, name in (
        (code_watch, "_ENDING_S"),
        (java_processes, "_ENDING_S"),
        (java_processes, "_PATIENCE_S"),
        (process_memory, "_PATIENCE_AT_START_S"),
        (process_memory, "_PATIENCE_S"),
        (snapshot, "_PATIENCE_S"),
        (table_batch, "_PATIENCE_S"),
        (unwinding, "_PREPARATION_S"),
    ):
        monkeypatch.setattr(module, name, PATIENCE_S)
    monkeypatch.setattr(patience, "_MOST_S", 10.0)  # of which the first that never answers takes half
