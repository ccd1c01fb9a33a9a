"""Words for packets and operations, as `perf report -D` prints them where perf has words.

`spe/native/text.c` is the compiled twin; a test holds both to the same output.
"""

from arm_spe.packet import Kind, Packet, is_address, is_counter

EVENT_NAMES: dict[int, str] = {
    0: "EXCEPTION-GEN",
    1: "RETIRED",
    2: "L1D-ACCESS",
    3: "L1D-REFILL",
    4: "TLB-ACCESS",
    5: "TLB-REFILL",
    6: "NOT-TAKEN",
    7: "MISPRED",
    8: "LLC-ACCESS",
    9: "LLC-REFILL",
    10: "REMOTE-ACCESS",
    11: "ALIGNMENT",
    16: "TXN",
    17: "SVE-PARTIAL-PRED",
    18: "SVE-EMPTY-PRED",
    19: "L2D-ACCESS",
    20: "L2D-MISS",
    21: "HITM",
    22: "LFB",
    23: "SNOOPED",
    24: "STREAMING-SVE",
    25: "SMCU",
}
"""Events packet: bit → name. Other bits are implementation-defined or reserved."""

_ADDRESS_NAMES = ["PC", "TGT", "VA", "PA", "PBT"]
_COUNTER_NAMES = {0: "TOT", 1: "ISSUE", 2: "XLAT", 4: "ALT-ISSUE"}
_CALL_RETURN = ["", " CR-BL", " CR-RET", " CR-NON-BL-RET"]


def describe_operation(op_class: int, payload: int) -> str:
    """An operation packet in words.

    Args:
        op_class: bits 1:0 of the header: 0 other, 1 load/store/atomic, 2 branch or exception return.
        payload: the operation byte.
    """
    if op_class == 0:
        return _describe_other(payload)
    if op_class == 1:
        return ("ST" if payload & 1 else "LD") + _describe_access(payload)
    if payload & 0xE0:
        return f"B RESERVED 0x{payload:02x}"
    return (
        "B"
        + " COND" * (payload & 1)
        + " IND" * (payload >> 1 & 1)
        + " GCS" * (payload >> 2 & 1)
        + _CALL_RETURN[payload >> 3 & 3]
    )


def _describe_other(payload: int) -> str:
    if payload & 0xF8 == 0:
        simd, floating = payload >> 2 & 1, payload >> 1 & 1
        return "OTHER" + " ASE" * simd + " FP" * floating + (" COND-SELECT" if payload & 1 else " INSN-OTHER")
    floating_text = " FP" * (payload >> 1 & 1)
    if payload & 0x89 == 0x08:
        return f"SVE-OTHER EVLEN {32 << (payload >> 4 & 7)}" + floating_text + " PRED" * (payload >> 2 & 1)
    if payload & 0x89 == 0x88:
        # The size code's low bit is bit 2; 15 means the whole ZA array.
        code = (payload >> 4 & 7) << 1 | payload >> 2 & 1
        size = str(128 << code) if code < 12 else "ZA" if code == 15 else "RESERVED"
        return f"SME-OTHER ETS {size}" + floating_text
    return f"OTHER RESERVED 0x{payload:02x}"


_ACCESS_NAMES = {0x00: " GP-REG", 0x04: " SIMD-FP", 0x10: " UNSPEC-REG", 0x14: " MTE-TAG", 0x30: " NV-SYSREG"}


def _describe_access(payload: int) -> str:
    if payload & 0xE2 == 0x02:
        return " AT" * (payload >> 2 & 1) + " EXCL" * (payload >> 3 & 1) + " AR" * (payload >> 4 & 1)
    if payload & 0xFE in _ACCESS_NAMES:
        return _ACCESS_NAMES[payload & 0xFE]
    if payload & 0xFE == 0x20:
        return " MEMCPY"
    if payload == 0x25:
        return " MEMSET"
    if payload & 0x0A == 0x08:
        length = f" SVE-SME-REG EVLEN {32 << (payload >> 4 & 7)}"
        return length + " PRED" * (payload >> 2 & 1) + " SG" * (payload >> 7)
    if payload & 0xFA == 0x40:
        return " GCS" + " COMM" * (payload >> 2 & 1)
    return f" RESERVED 0x{payload:02x}"


def event_names(value: int) -> list[str]:
    """The set bits of an events packet by name; those without one as one last item ``IMPDEF:12,15``."""
    bits = [bit for bit in range(64) if value >> bit & 1]
    names = [EVENT_NAMES[bit] for bit in bits if bit in EVENT_NAMES]
    unnamed = [str(bit) for bit in bits if bit not in EVENT_NAMES]
    return names + ([f"IMPDEF:{','.join(unnamed)}"] if unnamed else [])


def _describe_address(packet: Packet) -> str:
    payload, top = packet.payload, packet.payload >> 56
    if packet.kind == Kind.VA:
        return f"VA 0x{payload:x}"
    address = f" 0x{payload & (1 << 56) - 1:x}"
    if packet.kind == Kind.PA:
        return f"PA{address} ns={top >> 7} ch={top >> 6 & 1} pat={top & 15:x}"
    return f"{_ADDRESS_NAMES[packet.kind]}{address} el{top >> 5 & 3} ns={top >> 7}"


def describe_packet(packet: Packet) -> str:
    """A packet in words, without its bytes."""
    kind, payload = packet.kind, packet.payload
    if kind <= Kind.PBT:
        return _describe_address(packet)
    if kind <= Kind.ALT:
        return f"LAT {payload} {_COUNTER_NAMES[packet.index]}"
    match kind:
        case Kind.EVENTS:
            return " ".join(["EV", *event_names(payload)])
        case Kind.OP:
            return describe_operation(packet.header & 3, payload)
        case Kind.CTX1 | Kind.CTX2:
            return f"CONTEXT 0x{payload:x} el{1 if kind == Kind.CTX1 else 2}"
        case Kind.SOURCE:
            return f"DATA-SOURCE {payload}"
        case Kind.TS:
            return f"TS {payload}"
        case Kind.END | Kind.PAD:
            return kind.name
        case Kind.BAD:
            return "BAD"
        case Kind.CUT:
            return "CUT"
    sort = "IMPDEF" if kind == Kind.IMPDEF else "RESERVED"
    if packet.index and is_address(packet.header & 0xFF):
        return f"ADDR {sort}-{packet.index} 0x{payload:x}"
    if packet.index and is_counter(packet.header & 0xFF):
        return f"LAT {payload} {sort}-{packet.index}"
    return f"UNKNOWN 0x{packet.header:x} 0x{payload:x}"
