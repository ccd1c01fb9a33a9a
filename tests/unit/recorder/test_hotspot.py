"""A JVM's own description of its structures: where it keeps compiled code."""

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tdprof.linux.elf import open_elf
from tdprof.recorder.hotspot import (
    CodeHeap,
    HeapLayout,
    HotSpot,
    HotSpotLibrary,
    JavaLayout,
    NotKnownError,
    NotThereYetError,
)
from tdprof.recorder.symbol_places import find_symbols

SAMPLE_HEADER = Path(__file__).parents[3] / "bpf" / "sample.h"

# A library that describes itself as libjvm.so does; its structures are as large and as they are here.
SOURCE = """
#include <stddef.h>
#include <stdint.h>
struct row { const char *type, *field, *of; int32_t is_static; uint64_t offset; void *address; };
struct space { char *high, *low_boundary, *high_boundary, *low; };
struct heap { long other; struct space memory; struct space segments; int shift; };
struct array { int length, most; struct heap **data; };
struct queue { void *other; char *buffer; int room, made; };
struct space space_;
struct heap one = { .memory = { (char *)0x18000, (char *)0x10000, (char *)0x20000, (char *)0x10000 },
	.segments = { .low = (char *)0x5000 }, .shift = 7 };
struct heap two = { .memory = { (char *)0xa000, (char *)0x8000, (char *)0x9000, (char *)0x8000 },
	.segments = { .low = (char *)0x6000 }, .shift = 7 };
struct heap *all[2] = { &one, &two };
struct array heaps_ = { LENGTH, 2, all }, *heaps = &heaps_;
struct queue queue_ = { 0, (char *)0x8100, ROOM, 0x300 }, *queue = QUEUE;
char *call_return = (char *)0x12345;
#define OF_HEAPS \
	{ "CodeCache", "_heaps", "GrowableArray<CodeHeap*>*", 1, 0, &heaps }, \
	{ "AbstractInterpreter", "_code", "StubQueue*", 1, 0, &queue }, \
	{ "StubRoutines", "_call_stub_return_address", "address", 1, 0, &call_return }, \
	{ "GrowableArrayBase", "_len", "int", 0, offsetof(struct array, length), 0 }, \
	{ "GrowableArray<int>", "_data", "int*", 0, offsetof(struct array, data), 0 }, \
	{ "StubQueue", "_stub_buffer", "address", 0, offsetof(struct queue, buffer), 0 }, \
	{ "StubQueue", "_buffer_limit", "int", 0, offsetof(struct queue, room), 0 }, \
	{ "StubQueue", "_queue_end", "int", 0, offsetof(struct queue, made), 0 }, \
	{ "CodeHeap", "_memory", "VirtualSpace", 0, offsetof(struct heap, memory), 0 }, \
	{ "CodeHeap", "_segmap", "VirtualSpace", 0, offsetof(struct heap, segments), 0 }, \
	{ "CodeHeap", "_log2_segment_size", "int", 0, offsetof(struct heap, shift), 0 }, \
	{ "VirtualSpace", "_high", "char*", 0, offsetof(struct space, high), 0 }, \
	{ "VirtualSpace", "_low_boundary", "char*", 0, offsetof(struct space, low_boundary), 0 }, \
	{ "VirtualSpace", "_high_boundary", "char*", 0, offsetof(struct space, high_boundary), 0 }, \
	{ "VirtualSpace", "_low", "char*", 0, offsetof(struct space, low), 0 }, \
	{ "HeapBlock::Header", "_used", "bool", 0, USED, 0 }, \
	{ "CodeBlob", "_frame_size", "int", 0, 28, 0 }, \
	{ "CodeBlob", "_frame_complete_offset", COMPLETE, 0, 20, 0 }, \
	{ "CodeBlob", BEGIN, "address", 0, 32, 0 },
struct row rows[] = { OF_HEAPS END };
int version = 21;
#define OF_METHODS \
	{ "Abstract_VM_Version", "_vm_major_version", "int", 1, 0, &version }, \
	{ "Method", "_constMethod", "ConstMethod*", 0, 8, 0 }, \
	{ "ConstMethod", "_constants", "ConstantPool*", 0, POOL, 0 }, \
	{ "ConstMethod", "_constMethod_size", "int", 0, 24, 0 }, \
	{ "ConstMethod", "_flags._flags", "u4", 0, 28, 0 }, \
	{ "ConstMethod", "_code_size", "u2", 0, 34, 0 }, \
	{ "ConstMethod", "_name_index", "u2", 0, 36, 0 }, \
	{ "ConstMethod", "_signature_index", "u2", 0, 38, 0 }, \
	{ "ConstantPool", "_pool_holder", "InstanceKlass*", 0, 16, 0 }, \
	{ "ConstantPool", "_source_file_name_index", "u2", 0, 60, 0 }, \
	{ "Klass", "_name", "Symbol*", 0, 24, 0 }, \
	{ "Symbol", "_length", "u2", 0, 4, 0 }, \
	{ "Symbol", "_body", "u1", 0, 6, 0 },
struct row of_methods[] = { OF_HEAPS OF_METHODS
	{ 0 }
};
struct row of_compiled[] = { OF_HEAPS OF_METHODS
	{ "CodeBlob", "_name", "const char*", 0, 8, 0 },
	{ "CodeBlob", END_OF_CODE, "address", 0, 40, 0 },
	{ "nmethod", "_compile_id", "int", 0, 200, 0 },
	{ OWNER, "_method", "Method*", 0, 152, 0 },
	{ 0 }
};
struct flag { long other; const char *name; void *value; } flags_[] = {
	{ 0, "First", "\7" }, { 0, 0, 0 }, { 0, "DebugNonSafepoints", "\1" } }, *flags = flags_;
uint64_t flag_count = 3;
struct row of_flags[] = {
	{ "JVMFlag", "flags", "JVMFlag*", 1, 0, &flags },
	{ "JVMFlag", "numFlags", "size_t", 1, 0, &flag_count },
	{ "JVMFlag", "_name", "const char*", 0, offsetof(struct flag, name), 0 },
	{ "JVMFlag", "_addr", "", 0, offsetof(struct flag, value), 0 },
	{ 0 }
};
struct type { const char *type, *of; int32_t is_oop, is_integer, is_unsigned; uint64_t size; } types[] = {
	{ "JVMFlag", 0, 0, 0, 0, sizeof(struct flag) }, { "Huge", 0, 0, 0, 0, 1 << 20 }, { 0 } };
struct type of_method_types[] = { { "ConstMethod", 0, 0, 0, 0, 56 }, { "ConstantPool", 0, 0, 0, 0, 72 }, { 0 } };
struct type *gHotSpotVMTypes = TYPES;
uint64_t gHotSpotVMTypeEntryTypeNameOffset = 0, gHotSpotVMTypeEntrySizeOffset = offsetof(struct type, size),
	gHotSpotVMTypeEntryArrayStride = sizeof(struct type);
struct row *gHotSpotVMStructs = ROWS;
uint64_t gHotSpotVMStructEntryTypeNameOffset = 0, gHotSpotVMStructEntryFieldNameOffset = 8,
	gHotSpotVMStructEntryTypeStringOffset = 16, gHotSpotVMStructEntryIsStaticOffset = 24,
	gHotSpotVMStructEntryOffsetOffset = 32, gHotSpotVMStructEntryAddressOffset = 40,
	gHotSpotVMStructEntryArrayStride = STRIDE;
"""
AS_IN_17 = {
    "LENGTH": "2",
    "QUEUE": "&queue_",
    "ROOM": "0x300",
    "USED": "8",
    "COMPLETE": '"int"',
    "BEGIN": '"_code_begin"',
    "END": "{ 0 }",
    "STRIDE": "sizeof(struct row)",
    "ROWS": "rows",
    "TYPES": "types",
    "POOL": "8",
    "END_OF_CODE": '"_code_end"',
    "OWNER": '"CompiledMethod"',
}
Make = Callable[..., HotSpot]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """A JVM in this process, with some of its source otherwise."""
    if not shutil.which("gcc"):
        pytest.skip("no gcc to make a library with")

    def made(**changes: str) -> HotSpot:
        number = len(list(tmp_path.iterdir()))
        path = tmp_path / f"jvm{number}.so"
        options = [f"-D{name}={value}" for name, value in (AS_IN_17 | changes).items()]
        subprocess.run(
            ["gcc", "-shared", "-fPIC", *options, "-x", "c", "-o", path, "-"], input=SOURCE, text=True, check=True
        )
        library = ctypes.CDLL(str(path))
        elf = open_elf(path)
        place = min(find_symbols(elf, [b"gHotSpotVMStructs"])[b"gHotSpotVMStructs"])[0]
        shift = ctypes.addressof(ctypes.c_uint64.in_dll(library, "gHotSpotVMStructs")) - place

        def read(address: int, size: int) -> bytes:
            with open("/proc/self/mem", "rb", buffering=0) as memory:
                return os.pread(memory.fileno(), size, address)

        return HotSpot(HotSpotLibrary.of(elf), shift, read)

    return made


def told(heap: CodeHeap) -> dict[str, int]:
    return {name: getattr(heap.layout, name) for name, *_ in HeapLayout._fields_ if name != "methods"}


def test_heaps_of_a_jvm_as_17_has_them(make: Make) -> None:
    two, one = make().heaps()
    assert (one.start, one.end, two.start, two.end) == (0x10000, 0x20000, 0x8000, 0x9000)
    of_all = {
        "interpreter": 0x8100,
        "interpreter_bytes": 0x300,
        "call_return": 0x12345,
        "header_bytes": 16,
        "frame_size": 28,
        "frame_complete": 20,
        "complete_bytes": 4,
        "code_begin": 32,
        "code_begin_bytes": 8,
        "segment_shift": 7,
        "reserved": 0,
        **dict.fromkeys(("code_end", "kind", "compilation", "compiled"), 0),
    }
    assert told(one) == of_all | {"low": 0x10000, "segments": 0x5000}
    assert told(two) == of_all | {"low": 0x8000, "segments": 0x6000}
    assert (one.grown_to, two.grown_to) == (0x18000, 0x9000)  # no further than it may grow


def test_how_interpreted_methods_lie(make: Make) -> None:
    methods = make(ROWS="of_methods", TYPES="of_method_types").heaps()[0].layout.methods
    assert {name: getattr(methods, name) for name, *_ in JavaLayout._fields_} == {
        "constant": 8,
        "pool": 8,
        "bytes": 24,
        "code_bytes": 34,
        "name": 36,
        "signature": 38,
        "constant_bytes": 56,
        "flags": 28,
        "holder": 16,
        "file": 60,
        "pool_bytes": 72,
        "class_name": 24,
        "text_length": 4,
        "text": 6,
        "lowest_byte": 1,
        "reserved": 0,
    }
    # What is compiled is walked all the same.
    unknown = make(ROWS="of_methods").heaps()[0].layout.methods
    far = make(ROWS="of_methods", TYPES="of_method_types", POOL="72").heaps()[0].layout.methods
    assert bytes(unknown) == bytes(far) == bytes(ctypes.sizeof(JavaLayout))


@pytest.mark.parametrize(
    "changes",
    [{}, {"END_OF_CODE": '"_data_offset"', "BEGIN": '"_code_offset"', "OWNER": '"nmethod"'}],
    ids=["17", "25"],
)
def test_which_method_compiled_code_is_of(make: Make, changes: dict[str, str]) -> None:
    layout = make(ROWS="of_compiled", TYPES="of_method_types", **changes).heaps()[0].layout
    assert [getattr(layout, name) for name in ("code_end", "kind", "compilation", "compiled")] == [40, 8, 200, 152]
    assert make(ROWS="of_compiled", **changes).heaps()[0].layout.kind == 0


def test_options_and_sizes(make: Make) -> None:
    jvm = make(ROWS="of_flags")
    assert (jvm.flag("First"), jvm.flag("DebugNonSafepoints"), jvm.flag("Other")) == (7, 1, None)
    assert jvm.size_of("JVMFlag") == 24
    for name in ("Huge", "Other"):
        with pytest.raises(NotKnownError):
            jvm.size_of(name)


def test_shorter_fields_of_later_versions(make: Make) -> None:
    heap = make(USED="4", COMPLETE='"int16_t"', BEGIN='"_code_offset"').heaps()[0]
    assert (heap.layout.header_bytes, heap.layout.complete_bytes, heap.layout.code_begin_bytes) == (8, 2, 4)


@pytest.mark.parametrize("changes", [{"QUEUE": "0"}, {"ROOM": "0x8000"}], ids=["no-interpreter", "a-part-of-it"])
def test_one_that_is_about_to_start(make: Make, changes: dict[str, str]) -> None:
    with pytest.raises(NotThereYetError):
        make(**changes).heaps()


@pytest.mark.parametrize(
    "changes",
    [
        {"LENGTH": "1000000"},
        {"LENGTH": "-1"},
        {"BEGIN": '"_other"'},
        {"USED": "1 << 20"},
        {"STRIDE": "8"},
        {"END": '[19 ... 5000] = { "a", "b", "c", 0, 0, 0 }'},
    ],
)
def test_what_no_jvm_says_is_not_believed(make: Make, changes: dict[str, str]) -> None:
    with pytest.raises(NotKnownError):
        make(**changes).heaps()


def test_the_programs_have_the_same_layout(tmp_path: Path) -> None:
    if not shutil.which("gcc"):
        pytest.skip("no gcc to ask for the layout")
    names = [name for name, *_ in HeapLayout._fields_]
    lines = [f'printf("%zu ", offsetof(struct code_heap, {name}));' for name in names]
    lines += ['printf("%zu %d", sizeof(struct code_heap), MOST_CODE_HEAPS);']
    source = f'#include <stddef.h>\n#include <stdio.h>\n#include <linux/types.h>\n#include "{SAMPLE_HEADER}"\n'
    (tmp_path / "layout.c").write_text(f"{source}int main(void) {{ {' '.join(lines)} return 0; }}\n")
    subprocess.run(["gcc", "-o", tmp_path / "layout", tmp_path / "layout.c"], check=True)
    offsets = subprocess.run([tmp_path / "layout"], check=True, capture_output=True, text=True).stdout.split()
    mirrored = [getattr(HeapLayout, name).offset for name in names]
    assert [int(each) for each in offsets] == [*mirrored, ctypes.sizeof(HeapLayout), 256]
