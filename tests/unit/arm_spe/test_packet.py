"""Packets that no published dump has, from the tables of the manual."""

import pytest

from arm_spe import Kind, dump_packets
from arm_spe.packet import canonical, read_packet
from arm_spe.text import describe_operation, describe_packet


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("6202000600", "EV RETIRED SVE-PARTIAL-PRED SVE-EMPTY-PRED"),
        ("720200000000000100", "EV RETIRED IMPDEF:48"),
        ("530d00", "DATA-SOURCE 13"),
        ("64d2040000", "CONTEXT 0x4d2 el1"),
        ("b40010400000000080", "PBT 0x401000 el0 ns=1"),
        ("b000104000000000b0", "PC 0x401000 el1 ns=1"),
        ("b300200000080000c5", "PA 0x800002000 ns=1 ch=1 pat=5"),
        ("b200000000c0ffffb4", "VA 0xb4ffffc000000000"),
        ("9c1000", "LAT 16 ALT-ISSUE"),
        ("98ff0f", "LAT 4095 TOT"),
        ("22b10102030405060708", "ADDR IMPDEF-17 0x807060504030201"),
        ("219c0500", "LAT 5 RESERVED-12"),
        ("20b00010400000000080", "PC 0x401000 el0 ns=1"),
        ("9e0700", "LAT 7 IMPDEF-6"),
        ("4801", "OTHER COND-SELECT"),
        ("483e", "SVE-OTHER EVLEN 256 FP PRED"),
        ("489e", "SME-OTHER ETS 1024 FP"),
        ("48fc", "SME-OTHER ETS ZA"),
        ("4925", "ST MEMSET"),
        ("4924", "LD RESERVED 0x24"),
        ("4920", "LD MEMCPY"),
        ("4921", "ST MEMCPY"),
        ("4915", "ST MTE-TAG"),
        ("49dc", "LD SVE-SME-REG EVLEN 1024 PRED SG"),
        ("491b", "ST EXCL AR"),
        ("4906", "LD AT"),
        ("4941", "ST GCS"),
        ("4944", "LD GCS COMM"),
        ("4931", "ST NV-SYSREG"),
        ("4910", "LD UNSPEC-REG"),
        ("4a0a", "B IND CR-BL"),
        ("4a16", "B IND GCS CR-RET"),
        ("4a19", "B COND CR-NON-BL-RET"),
        ("4a20", "B RESERVED 0x20"),
        ("4b00", "UNKNOWN 0x4b 0x0"),
        ("6105000000", "UNKNOWN 0x61 0x5"),
        ("6305000000", "UNKNOWN 0x63 0x5"),
    ],
)
def test_text(data: str, text: str) -> None:
    raw = bytes.fromhex(data)
    assert describe_packet(read_packet(raw, 0)) == text
    compiled = b"".join(dump_packets(raw)).decode().splitlines()
    assert compiled[-1].endswith(f" {text}")


@pytest.mark.parametrize("first", [0x02, 0x1F])
def test_one_byte_headers_without_meaning_are_bad(first: int) -> None:
    assert read_packet(bytes([first, 0]), 0).kind == Kind.BAD


def test_an_alignment_packet_of_early_drafts_is_bad() -> None:
    assert read_packet(b"\x20\x00", 0).kind == Kind.BAD


@pytest.mark.parametrize("header", range(0x40, 0x100))
def test_size_rule(header: int) -> None:
    size = 1 + (1 << (header >> 4 & 3))
    packet = read_packet(bytes([header]) + bytes(8), 0)
    assert packet.bytes == size
    assert read_packet(bytes([header]) + bytes(size - 2), 0).kind == Kind.CUT
    extended = read_packet(bytes([0x20, header]) + bytes(8), 0)
    assert extended.bytes == size + 1


def test_every_operation_has_words() -> None:
    for op_class in range(3):
        for payload in range(256):
            words = describe_operation(op_class, payload)
            raw = bytes([0x48 | op_class, payload])
            assert b"".join(dump_packets(raw)).decode().splitlines()[-1].endswith(f" {words}")


@pytest.mark.parametrize(
    ("payload", "address"),
    [
        (0x80FF_0000_0000_1000, 0xFFFF_0000_0000_1000),
        (0xC000_0000_0040_1000, 0x0000_0000_0040_1000),  # an EL2 process in low memory is no kernel
        (0xB4FF_FFC0_0000_0000, 0xFFFF_FFC0_0000_0000),
    ],
)
def test_bit_55_extends_the_address(payload: int, address: int) -> None:
    assert canonical(payload) == address
