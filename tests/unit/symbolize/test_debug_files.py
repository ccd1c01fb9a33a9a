"""Which files may lead to others."""

from pathlib import Path

from builders.elf import ElfFile
from tdprof.linux.elf import open_elf
from tdprof.symbolize.debug_files import DebugDirs, find_debug_file


def test_what_a_capture_carries_leads_to_no_other_file(tmp_path: Path) -> None:
    """With --symfs only what is below it, or in folders that the user named, says where its debug data is."""
    carried = tmp_path / "capture" / "files"
    carried.mkdir(parents=True)
    debug = ElfFile(build_id=b"\1" * 20).to_bytes()
    (carried / "other.debug").write_bytes(debug)
    link = b"other.debug\0" + bytes(4)
    (carried / "program").write_bytes(ElfFile(build_id=b"\1" * 20, sections={".gnu_debuglink": link}).to_bytes())
    elf = open_elf(carried / "program")
    assert find_debug_file(elf, carried / "program", DebugDirs.make([], tmp_path / "elsewhere")) is None
    for dirs in (DebugDirs.make([], tmp_path / "capture"), DebugDirs.make([carried], tmp_path / "elsewhere")):
        found = find_debug_file(elf, carried / "program", dirs)
        assert found is not None
        assert found.path == carried / "other.debug"
