"""Rows of call-frame information as pyelftools reads them, in the words of ``builders.unwind_table``."""

from collections.abc import Iterator
from pathlib import Path

from elftools.common.exceptions import DWARFError
from elftools.dwarf.callframe import FDE, CFARule, RegisterRule
from elftools.elf.elffile import ELFFile

from tdprof.unwind import sections

FP = {sections.EM_X86_64: 6, sections.EM_AARCH64: 29}
SP = {sections.EM_X86_64: 7, sections.EM_AARCH64: 31}
RA = {sections.EM_X86_64: 16, sections.EM_AARCH64: 30}


def elftools_rows(path: Path, machine: int, section: str) -> Iterator[tuple[int, int, list[tuple[int, str]]]]:
    """Start, end and rows of each FDE in a section; a rule with an expression is empty.

    Signal frames are left out, and what pyelftools cannot read.
    """
    with open(path, "rb") as file:
        information = ELFFile(file).get_dwarf_info()
        entries = information.EH_CFI_entries() if section == ".eh_frame" else information.CFI_entries()
        for entry in entries:
            if not isinstance(entry, FDE) or entry.cie.augmentation_dict.get("S"):
                continue
            try:
                rows = entry.get_decoded().table
            except (DWARFError, ValueError):  # an instruction that it does not know
                continue
            if any(_is_above_cfa(row.get(30)) for row in rows):
                continue  # glibc's _dl_runtime_resolve on aarch64: see docs/unwinding.md
            start = entry["initial_location"]
            texts = {row["pc"]: _describe(row, machine) for row in rows}  # of two for one address the last holds
            yield start, start + entry["address_range"], list(texts.items())


def _is_above_cfa(saved: RegisterRule | None) -> bool:
    """Whether a return address would be where its caller's own frame is."""
    return saved is not None and isinstance(saved.arg, int) and saved.type == RegisterRule.OFFSET and saved.arg >= 0


def _describe(row: dict, machine: int) -> str:
    cfa: CFARule = row["cfa"]
    if cfa.expr is not None or cfa.reg not in (SP[machine], FP[machine]):
        return ""
    text = f"{'sp' if cfa.reg == SP[machine] else 'fp'}{cfa.offset:+d}"
    fp: RegisterRule | None = row.get(FP[machine])
    if fp and fp.type == RegisterRule.OFFSET:
        text += f" fp=cfa{fp.arg:+d}"
    elif fp and fp.type not in (RegisterRule.SAME_VALUE, RegisterRule.UNDEFINED):
        return ""
    ra: RegisterRule | None = row.get(RA[machine])
    if ra and ra.type == RegisterRule.OFFSET:
        return text + f" ra=cfa{ra.arg:+d}"
    return text + " ra=lr" if ra is None or ra.type == RegisterRule.SAME_VALUE else ""
