"""What of an ELF file its unwind table is built from.

PLT entries: psABIs of x86-64 (5.2, and ``.plt.sec`` of Intel's CET extension) and AArch64 ("PLT Sequences"). The
outermost frame: both psABIs, "Process Initialization".
"""

import functools
import os
import re
import stat
import struct
import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tdprof.linux.elf import (
    EM_AARCH64,
    EM_X86_64,
    PF_X,
    PT_LOAD,
    SHF_EXECINSTR,
    SHT_DYNSYM,
    Elf,
    ElfSection,
)
from tdprof.linux.elf_compression import CompressionError, uncompressed
from tdprof.linux.go_module import find_go_module
from tdprof.native import unwind_api as binding

if TYPE_CHECKING:
    from tdprof.unwind.v8_builtins import Builtins

_E_ENTRY = 24  # offset in the header
_STT_FUNC = 2
_SYMBOL = struct.Struct("<IBBHQQ")

_MOST_IDENTITY_BYTES = 64  # struct unwind_header of bpf/unwind.h
_PLACE, _LAYOUT = struct.Struct("<QQQQ"), struct.Struct("<I")
LAYOUT_BYTES = _LAYOUT.size

# bpf/unwind.h, enum unwind_cfa and enum unwind_ra
CFA_SP, CFA_PLT, NONE, STOP, SIGNAL, FP_RECORD, FP_GUESS, UNSUPPORTED, CFA_FP_LEFT = 0, 4, 5, 6, 7, 8, 9, 10, 13
RA_CFA, RA_LR, RA_SLOT = 0, 1, 2
FP_SAME = 0x7FFF

_ENDBR64 = b"\xf3\x0f\x1e\xfa"
_BTI_C = b"\x5f\x24\x03\xd5"
# How the first entry of a PLT begins, mold's with three instructions, and what others begin with
_STORES_X16_X30 = b"\xf0\x7b\xbf\xa9"
_PUSHES_MAP, _PUSH_R11, _JUMPS_BY_GOT = b"\xff\x35", b"\x41\x53", b"\xff\x25"
_ENTRY_BYTES = 16
_START_BYTES = {EM_X86_64: 22, EM_AARCH64: 28}  # of musl's _start, which has no call-frame information
# The entry of glibc's dynamic linker, which lets libraries initialise before it leaves for the program's; aarch64's has
# call-frame information. RTLD_START of sysdeps/x86_64/dl-machine.h
_LOADER_START = re.compile(rb"(?:\xf3\x0f\x1e\xfa)?\x48\x89\xe7\xe8.{4}\x49\x89\xc4.{16,120}?\x41\xff\xe4", re.DOTALL)
# Of a builtin; V8 knows all by name, in stripped files too (BUILTIN_LIST_BASE in src/builtins/builtins-definitions.h).
_V8_NAME = b"InterpreterEntryTrampoline\0"
_MOST_CONSTANTS = 256 << 20  # bytes of a file that has V8 in it; Node's have 50 MB
# glibc's __start_context, to which a context's function returns though nothing called it from there: its call-frame
# information is of a function that is called. sysdeps/unix/sysv/linux/{x86_64/__start_context.S,aarch64/setcontext.S}
_CONTEXT_START = {
    EM_X86_64: re.compile(
        rb"\x48\x89\xdc\x48\x8b\x3c\x24\x48\x85\xff\x74.(?:\xe8.{4}\x48\x89\xc7\xe8.{4}\xf4)?", re.DOTALL
    ),
    EM_AARCH64: re.compile(
        rb"\x1f\x20\x03\xd5\xe0\x03\x13\xaa[\x00\x20\x40\x60\x80\xa0\xc0\xe0]..\xb5...[\x14-\x17]", re.DOTALL
    ),
}
# What its setcontext and swapcontext end with on x86-64: the stack pointer is the other context's already, on whose
# stack the return address is not yet, or is where a function begins. On aarch64 swapcontext lets x30 be where contexts
# go on in itself, which its call-frame information does not know.
# sysdeps/unix/sysv/linux/{x86_64,aarch64}/{set,swap}context.S
_CONTEXT_SWITCH = {
    EM_X86_64: re.compile(rb"\x48\x8b\xa2\xa0\x00\x00\x00(.{20,400}?\x31\xc0\xc3)", re.DOTALL),
    EM_AARCH64: re.compile(
        rb"\x1f\xf8\x0b\xa9[\x1e\x3e\x5e\x7e\x9e\xbe\xde\xfe]..[\x10\x30\x50\x70]"
        rb"(.{80,600}?\xfe\x03\x01\xaa)(?=\xc0\x03\x5f\xd6)",
        re.DOTALL,
    ),
}
_MAKES_CONTEXTS = b"\0makecontext\0"
_NAMES_LIBRARY = b".so"  # one that is needed, or its own
# Behind make_fcontext of Boost.Context, to which a fiber's function returns: no call-frame information is there.
_FIBER_START = {
    EM_X86_64: re.compile(rb"(?<=\xff\xe3)(?:\xf3\x0f\x1e\xfa)?\x48\x31\xff\xe8.{4}\xf4", re.DOTALL),
    EM_AARCH64: re.compile(rb"(?<=\xc0\x03\x5f\xd6)\x00\x00\x80\xd2...[\x94-\x97]", re.DOTALL),
}
_MAKES_FIBERS = (b"\0make_fcontext\0", b"\0libboost_context.so")
# libgcc's __morestack, from where it has changed stacks to where it gives its frame back: RBP is on the older one.
# libgcc/config/i386/morestack.S
_MORE_STACK = re.compile(
    rb"\x55\x48\x89\xe5\x49\x81\xc2.{4}\x41\x52\x50\x57.{20,160}?\x48\x89\xc4(.{60,300}?)\x5d\xc3", re.DOTALL
)
_SPLITS_STACKS = b"\0__morestack\0"
_MOST_NAME_BYTES = {".dynstr": 64 << 10, ".strtab": 64 << 20}  # the library is small
_MOST_STATIC_TEXT = 32 << 20  # of a program without symbols that is searched for it
_VDSO_SIGNAL_RETURN = b"__kernel_rt_sigreturn"


def table_input(elf: Elf, debug: Elf | None, identity: bytes) -> binding.TableInput:
    """Collect the sections.

    Args:
        elf: the program, or the vDSO.
        debug: its separate debug file, whose ``.debug_frame`` serves where the program has none; or None.
        identity: what the table will be known by.
    """
    text = elf.section(".text")
    module = find_go_module(elf)
    # What Go's own table does not say, of a version that is not known, keeps frame pointers.
    go = module.table if module else elf.section(".gopclntab") or elf.section(".data.rel.ro.gopclntab")
    names = _names(elf)
    bottoms = [*_contexts(elf, text), *_fiber_start(elf, text, names), *_split_stack(elf, text, names)]
    vdso_signal = [*_vdso_signal(elf)]
    stretches = [*_plt(elf), *vdso_signal, *bottoms, *_data_among_code(elf)]
    if go and text:
        stretches.append(_stretch(text.address, text.address + text.size, FP_RECORD))
    else:
        stretches += _start(elf, text)
    stretches += _no_code(elf)
    own_frame = debug_frame(elf)
    frame_file = elf if own_frame or not debug else debug
    symbols = _section(elf, elf.section(".symtab") or elf.section(".dynsym"))
    if builtins := _v8_builtins(elf):
        stretches.append(
            binding.Stretch(builtins.start, builtins.end, binding.Rule(FP_GUESS, 0, FP_SAME, 0), binding.BUILTINS)
        )
        if not elf.section(".symtab"):
            symbols = binding.Section(bytes(symbols.data) + _function_rows(builtins))
    return binding.TableInput(
        machine=elf.machine,
        segments=_segments(elf),
        eh_frame=_section(elf, elf.section(".eh_frame")),
        eh_frame_hdr=_section(elf, elf.section(".eh_frame_hdr")),
        debug_frame=_section(frame_file, own_frame or debug_frame(frame_file)),
        gopclntab=_section(elf, go),
        symbols=symbols,
        read_code=functools.partial(_read_code, elf),
        text_address=module.text if module else 0,
        stretches=_disjoint(stretches),
        identity=identity,
        is_vdso=bool(vdso_signal),
    )


def file_identity(elf: Elf, status: os.stat_result) -> bytes:
    """The build-id, and where code lies in the file and how much, of a file that root's or our own is; else also the
    file's place and when it was last written.

    What others can write could bear any build-id, and its table must not be taken for that of the real file. A stripped
    file has the build-id of the whole one, but its code may lie elsewhere in it; and programs that are given a build-id
    (``--build-id=0x…``) keep it when they change.
    """
    place = _PLACE.pack(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    layout = b"".join(struct.pack("<QQQ", s.elf_address, s.file_offset, s.bytes) for s in _segments(elf))
    build_id = shared_identity(elf.build_id)
    is_trusted = status.st_uid in (0, os.geteuid()) and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    known = build_id + _LAYOUT.pack(zlib.crc32(layout))
    return known if build_id and is_trusted else known + place


def shared_identity(build_id: str) -> bytes:
    """What the identities of all files with a build-id begin with, if nobody but root and us could have written them;
    ``LAYOUT_BYTES`` more tell the whole from the stripped one."""
    return bytes.fromhex(build_id)[: _MOST_IDENTITY_BYTES - _PLACE.size - LAYOUT_BYTES]


def _v8_builtins(elf: Elf) -> "Builtins | None":
    constants = elf.section(".rodata")
    if not constants or constants.size > _MOST_CONSTANTS or _V8_NAME not in bytes(elf.section_data(constants)):
        return None
    # Loading NumPy takes as long as the tables of many files, and the recorder itself does without it.
    from tdprof.unwind.v8_builtins import find_builtins

    return find_builtins(elf)


def _function_rows(builtins: "Builtins") -> bytes:
    """As a symbol table has them, which a stripped file lacks."""
    places = zip(builtins.starts.tolist(), builtins.sizes.tolist(), strict=True)
    return b"".join(_SYMBOL.pack(0, _STT_FUNC, 0, 0, start, size) for start, size in places)


def _segments(elf: Elf) -> list[binding.Segment]:
    found = [s for s in elf.segments if s.type == PT_LOAD and s.flags & PF_X and 0 < s.file_size < 1 << 32]
    found.sort(key=lambda s: s.address)
    return [binding.Segment(s.address, s.offset, s.file_size, 0) for s in found[: binding.MOST_SEGMENTS]]


def _read_code(elf: Elf, address: int, size: int) -> memoryview:
    for segment in elf.segments:
        if segment.type == PT_LOAD and 0 <= address - segment.address < segment.file_size:
            return elf.content.read(segment.offset + address - segment.address, size)
    return memoryview(b"")


def _section(elf: Elf, section: ElfSection | None) -> binding.Section:
    """Empty where it cannot be uncompressed: then the file has no such information."""
    if section is None:
        return binding.Section()
    try:
        return binding.Section(uncompressed(elf, section), section.address)
    except CompressionError:
        return binding.Section(b"", section.address)


def debug_frame(elf: Elf) -> ElfSection | None:
    """The section of a file with call-frame information for debuggers, perhaps compressed."""
    return elf.section(".debug_frame") or elf.section(".zdebug_frame")


def _stretch(start: int, end: int, cfa: int, ra: int = RA_CFA, offset: int = 0) -> binding.Stretch:
    return binding.Stretch(start, end, binding.Rule(cfa, ra, FP_SAME, offset))


def _plt(elf: Elf) -> Iterator[binding.Stretch]:
    """Nothing is on the stack at first; a lazy entry of x86-64 pushes its number, the first entry one word more.

    Static programs have no first entry that differs, and mold's entries push nothing.
    """
    for section in elf.sections:
        if not section.name.startswith((".plt", ".iplt")) or not section.flags & SHF_EXECINSTR:
            continue
        start, end = section.address, section.address + section.size
        code = bytes(elf.section_data(section)[: 3 * _ENTRY_BYTES])
        if elf.machine == EM_AARCH64:
            # The first entry stores x16 and x30 and leaves for the dynamic linker.
            stored = 4 * code.startswith(_BTI_C) + 4
            if code[:stored].endswith(_STORES_X16_X30) and section.size >= 32:
                yield _stretch(start, start + stored, CFA_SP, RA_LR)
                yield binding.Stretch(start + stored, start + 32, binding.Rule(CFA_SP, RA_SLOT, -8, 16))
                start += 32
            yield _stretch(start, end, CFA_SP, RA_LR)
        elif elf.machine == EM_X86_64 and code.startswith(_PUSHES_MAP):
            yield _stretch(start, start + 6, CFA_SP, offset=16)
            yield _stretch(start + 6, start + _ENTRY_BYTES, CFA_SP, offset=24)
            entry = code[_ENTRY_BYTES:]
            # The push ends at byte 9 behind an endbr64, else at 11; of others (lld's -z retpolineplt) nothing is known.
            if entry.startswith((_ENDBR64, _JUMPS_BY_GOT)):
                yield _stretch(start + _ENTRY_BYTES, end, CFA_PLT, offset=9 if entry.startswith(_ENDBR64) else 11)
        elif elf.machine == EM_X86_64:
            if code.startswith(_ENDBR64 + _PUSH_R11 + _PUSHES_MAP):
                yield _stretch(start, start + 6, CFA_SP, offset=8)
                yield _stretch(start + 6, start + 12, CFA_SP, offset=16)
                yield _stretch(start + 12, start + 32, CFA_SP, offset=24)
                start += 32
            yield _stretch(start, end, CFA_SP, offset=8)


def _start(elf: Elf, text: ElfSection | None) -> Iterator[binding.Stretch]:
    """A program's first instructions, where nothing called from."""
    (entry,) = struct.unpack("<Q", elf.content.read(_E_ENTRY, 8))
    if text and text.address <= entry < text.address + text.size:
        size = _START_BYTES.get(elf.machine, 0)
        if elf.machine == EM_X86_64:
            found = _LOADER_START.match(elf.section_data(text), entry - text.address)
            size = len(found[0]) if found else size
        yield _stretch(entry, min(entry + size, text.address + text.size), STOP)


def _contexts(elf: Elf, text: ElfSection | None) -> Iterator[binding.Stretch]:
    """The bottom of contexts' stacks, with a byte before it, since return addresses are looked up there; and where the
    stack of one is left for another's, of which there is no caller to be told."""
    pattern = _CONTEXT_START.get(elf.machine)
    table = elf.section(".dynstr")
    names = elf.section_data(table).tobytes() if table else b""
    if pattern is None or text is None:
        return
    # A static program has it without its name; a static-pie one has a table of dynamic names, which names no library.
    if _MAKES_CONTEXTS not in names and (_NAMES_LIBRARY in names or text.size > _MOST_STATIC_TEXT):
        return
    if found := pattern.search(elf.section_data(text)):
        start, end = text.address + found.start() - 1, text.address + found.end()
        yield binding.Stretch(start, end, binding.Rule(STOP, RA_CFA, FP_SAME, 0), binding.CERTAIN)
        for found in _CONTEXT_SWITCH[elf.machine].finditer(elf.section_data(text)):
            start, end = text.address + found.start(1), text.address + found.end(1)
            yield binding.Stretch(start, end, binding.Rule(UNSUPPORTED, RA_CFA, FP_SAME, 0), binding.WITHIN)


def _names(elf: Elf) -> bytes:
    """Of symbols and of libraries, where they do not take too long to be searched."""
    tables = [(elf.section(name), most) for name, most in _MOST_NAME_BYTES.items()]
    return b"".join(elf.section_data(table) for table, most in tables if table and table.size <= most)


def _fiber_start(elf: Elf, text: ElfSection | None, names: bytes) -> Iterator[binding.Stretch]:
    """The bottom of fibers' stacks, likewise, in the library or in a program with symbols that it was linked into."""
    pattern = _FIBER_START.get(elf.machine)
    if pattern is None or text is None or not any(name in names for name in _MAKES_FIBERS):
        return
    for found in pattern.finditer(elf.section_data(text)):
        yield _stretch(text.address + found.start() - 1, text.address + found.end(), STOP)


def _split_stack(elf: Elf, text: ElfSection | None, names: bytes) -> Iterator[binding.Stretch]:
    """Where a function runs on a piece of stack that was made for it, in a program with symbols."""
    if elf.machine != EM_X86_64 or text is None or _SPLITS_STACKS not in names:
        return
    if found := _MORE_STACK.search(elf.section_data(text)):
        start, end = text.address + found.start(1), text.address + found.end(1)
        yield binding.Stretch(start, end, binding.Rule(CFA_FP_LEFT, RA_CFA, -24, 24), binding.WITHIN)


def _data_among_code(elf: Elf) -> Iterator[binding.Stretch]:
    """What of executable segments is in no section of code: some linkers put all that is only read into one segment."""
    code = [(s.address, s.address + s.size) for s in elf.sections if s.flags & SHF_EXECINSTR and s.size]
    for segment in _segments(elf):
        at, end = segment.elf_address, segment.elf_address + segment.bytes
        inside = sorted((first, last) for first, last in code if at <= first and last <= end)
        for first, last in inside:
            if at < first:
                yield _stretch(at, first, NONE)
            at = max(at, last)
        if inside and at < end:
            yield _stretch(at, end, NONE)


def _vdso_signal(elf: Elf) -> Iterator[binding.Stretch]:
    """Where a signal handler returns to in aarch64's vDSO, which has no call-frame information."""
    symbols = next((s for s in elf.sections if s.type == SHT_DYNSYM), None)
    if elf.machine != EM_AARCH64 or symbols is None or symbols.link >= len(elf.sections) or symbols.size > 1 << 16:
        return
    names = bytes(elf.section_data(elf.sections[symbols.link]))
    data = elf.section_data(symbols)
    for at in range(0, len(data) - _SYMBOL.size + 1, _SYMBOL.size):
        name, _, _, _, value, size = _SYMBOL.unpack_from(data, at)
        if names[name : name + len(_VDSO_SIGNAL_RETURN) + 1] == _VDSO_SIGNAL_RETURN + b"\0":
            # A return address is looked up one byte before it.
            yield _stretch(value - 4, value + max(size, 8), SIGNAL)


def _no_code(elf: Elf) -> Iterator[binding.Stretch]:
    """Constants that lie in a segment with code, behind it: else they would be taken for its last function."""
    code = [section for section in elf.sections if section.flags & SHF_EXECINSTR and section.size]
    for segment in _segments(elf):
        end = segment.elf_address + segment.bytes
        last = max((s.address + s.size for s in code if segment.elf_address <= s.address < end), default=end)
        if last < end:
            yield _stretch(last, end, NONE)


def _disjoint(stretches: list[binding.Stretch]) -> list[binding.Stretch]:
    kept: list[binding.Stretch] = []
    for stretch in sorted(stretches, key=lambda s: s.start):
        if stretch.start < stretch.end and (not kept or kept[-1].end <= stretch.start):
            kept.append(stretch)
    return kept
