"""Bytes from real hardware, models and other decoders' tests, with their published decoding.

`spe/vectors.json` names the source of each; it was collected for this project from public mailing lists and tests.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from arm_spe import DecodeCounts, Kind, RecordBatch, RecordDecoder, dump_packets
from arm_spe.dump import dump_reference
from arm_spe.packet import Packet, read_packet
from arm_spe.reference import decode_reference
from arm_spe.text import describe_packet, event_names

VECTORS = json.loads((Path(__file__).parent / "spe" / "vectors.json").read_text())
WITH_PACKETS = [vector for vector in VECTORS if vector["packets"]]


def by_id(vectors: list[dict[str, Any]]) -> Any:
    return pytest.mark.parametrize("vector", vectors, ids=[vector["id"] for vector in vectors])


def number(value: int | str) -> int:
    return value if isinstance(value, int) else int(value, 0)


def fields_of(packet: Packet) -> dict[str, Any]:
    """The vector file's fields, from our packet."""
    payload, top = packet.payload, packet.payload >> 56
    address = payload & (1 << 56) - 1
    match packet.kind:
        case Kind.PC | Kind.TGT:
            return {
                "index": packet.index,
                "addr56": address,
                "el": top >> 5 & 3,
                "ns": top >> 7,
                "nse": top >> 4 & 1,
            }
        case Kind.VA:
            return {"index": 2, "raw": payload, "addr56": address, "tag": top}
        case Kind.PA:
            return {
                "index": 3,
                "addr56": address,
                "ns": top >> 7,
                "ch": top >> 6 & 1,
                "nse": top >> 4 & 1,
                "pat": top & 15,
            }
        case Kind.TOT | Kind.ISSUE | Kind.XLAT:
            return {"index": packet.index, "kind": packet.kind.name, "value": payload}
        case Kind.EVENTS:
            return {
                "size": packet.bytes - 1,
                "value": payload,
                "bits": [bit for bit in range(64) if payload >> bit & 1],
                "names": event_names(payload),
            }
        case Kind.OP:
            return {"class": packet.header & 3, "payload": payload}
        case Kind.SOURCE:
            return {"size": packet.bytes - 1, "value": payload}
        case Kind.CTX1 | Kind.CTX2:
            level = packet.header - 0x63
            return {"index": level - 1, "el": level, "id": payload}
        case Kind.TS:
            return {"value": payload}
        case Kind.PAD:
            return {"count": packet.bytes}
        case Kind.END:
            return {}
    raise AssertionError(packet)


@by_id(WITH_PACKETS)
def test_packets(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["bytes"])
    at = 0
    for expected in vector["packets"]:
        packet = read_packet(data, at)
        assert packet.offset == expected["offset"]
        assert data[at : at + packet.bytes].hex() == expected["hex"]
        assert describe_packet(packet) == expected["text"]
        wanted = {
            name: value if name in ("kind", "bits", "names") else number(value)
            for name, value in expected["fields"].items()
        }
        assert fields_of(packet) == wanted
        at += packet.bytes
    assert at == len(data)


@by_id(WITH_PACKETS)
def test_dump(vector: dict[str, Any]) -> None:
    data = bytes.fromhex(vector["bytes"])
    text = b"".join(dump_packets(data, vector.get("aux_offset") or 0)).decode()
    lines = [line for line in text.splitlines() if "----" not in line]
    base = vector.get("aux_offset") or 0
    expected = [
        f".  {base + packet['offset']:08x}:  {' '.join(f'{b:02x}' for b in bytes.fromhex(packet['hex'])[:16]):47}"
        f" {packet['text']}"
        for packet in vector["packets"]
    ]
    assert lines == expected


@by_id(VECTORS)
@pytest.mark.parametrize("decoder", ["compiled", "reference"])
def test_records(vector: dict[str, Any], decoder: str) -> None:
    data = bytes.fromhex(vector["bytes"])
    if decoder == "compiled":
        source = RecordDecoder(data)
        batches, counts = list(source), source.counts
    else:
        batch, counts = decode_reference(data)
        batches = [batch]
    records = sum(len(batch) for batch in batches)
    assert records == counts.records == vector["complete_records"]
    assert bool(counts.open_records) == vector["open_tail"]
    assert counts.total_bytes == len(data)
    if records:
        check_record(batches[0], vector)


def check_record(batch: RecordBatch, vector: dict[str, Any]) -> None:
    """The first record's columns against the packets up to the first closing one."""
    for packet in vector["packets"]:
        fields = packet["fields"]
        match packet["name"]:
            case "PC":
                assert batch["pc"][0] & (1 << 56) - 1 == number(fields["addr56"])
                assert batch["pc_top"][0] >> 5 & 3 == fields["el"]
            case "TGT":
                assert batch["branch_target"][0] & (1 << 56) - 1 == number(fields["addr56"])
            case "VA":
                assert batch["va"][0] & (1 << 56) - 1 == number(fields["addr56"])
                assert batch["va_top"][0] == fields["tag"]
            case "PA":
                assert batch["pa"][0] == number(fields["addr56"])
            case "EV":
                assert batch["events"][0] == number(fields["value"])
            case "OP":
                assert batch["op_class"][0] == fields["class"]
                assert batch["op"][0] == number(fields["payload"])
            case "LAT":
                names = {"TOT": "total_latency", "ISSUE": "issue_latency", "XLAT": "translation_latency"}
                assert batch[names[fields["kind"]]][0] == fields["value"]
            case "CONTEXT":
                assert batch[f"context_el{fields['el']}"][0] == fields["id"]
            case "DATA-SOURCE":
                assert batch["data_source"][0] == fields["value"]
            case "TS":
                assert batch["timestamp"][0] == fields["value"]
        if packet["name"] in ("TS", "END"):
            break
    if "canonical" in vector:
        assert batch["pc"][0] == number(vector["canonical"]["pc"])
        assert batch["va"][0] == number(vector["canonical"]["va"])


def test_a_bad_buffer_gives_no_record() -> None:
    (vector,) = (vector for vector in VECTORS if vector.get("expect_error"))
    decoder = RecordDecoder(bytes.fromhex(vector["bytes"]))
    assert list(decoder) == []
    assert decoder.counts == DecodeCounts(open_records=1, open_bytes=10)
    assert next(iter(dump_reference(bytes.fromhex(vector["bytes"])))).endswith("not closed before the input ends")
