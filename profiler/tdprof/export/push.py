"""pprof as the requests that profile stores take over HTTP.

Pyroscope: the Connect call ``push.v1.PusherService/Push`` of Grafana Pyroscope's server API, as JSON. Parca: the gRPC
call ``parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw``, framed as gRPC-Web, which goes over HTTP/1.1.
OTLP: see `tdprof.export.otlp`.
"""

import base64
import gzip
import json
import re
import uuid
from collections.abc import Mapping
from typing import Protocol

from tdprof.errors import TdprofError
from tdprof.export import otlp, pprof_pb2
from tdprof.export.wire import field, text
from tdprof.values import dataclass

# Pyroscope's usual limit on a profile (max_profile_size_bytes), before compression.
MOST_BYTES = 4 << 20
_PUSH = "/push.v1.PusherService/Push"
_WRITE_RAW = "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw"
_PROTOBUF = "application/x-protobuf"
_TRAILER = 0x80  # of a gRPC-Web frame's flags
_FRAME_HEADER_BYTES = 5
# Pyroscope refuses a sample type with "-" (its ValidateProfile), and parts names of its own at ":".
_NO_PYROSCOPE_TYPE = re.compile(r"[^A-Za-z0-9_]", re.ASCII)


@dataclass(frozen=True, slots=True)
class PushRequest:
    """What to send: a path below the server's address, headers and body."""

    path: str
    headers: Mapping[str, str]
    body: bytes


class PushTarget(Protocol):
    """A kind of server."""

    is_experimental: bool

    def request(self, pprof: bytes, labels: Mapping[str, str]) -> PushRequest:
        """The request for one profile, with its labels; the same for the same profile."""

    def failure(self, headers: Mapping[str, str], body: bytes) -> str:
        """What the answer with status 200 says went wrong; "" if nothing did."""


class Pyroscope:
    """Grafana Pyroscope, or what takes its API."""

    is_experimental = False

    def request(self, pprof: bytes, labels: Mapping[str, str]) -> PushRequest:
        pprof = _with_pyroscope_types(pprof)
        # Of its content: who sends it again sends the same.
        identity = uuid.uuid5(uuid.NAMESPACE_OID, f"{sorted(labels.items())} {pprof.hex()}")
        series = {
            "labels": [{"name": name, "value": value} for name, value in sorted(labels.items())],
            "samples": [{"ID": str(identity), "rawProfile": base64.b64encode(pprof).decode()}],
        }
        body = json.dumps({"series": [series]}).encode()
        return PushRequest(_PUSH, {"Content-Type": "application/json", "Connect-Protocol-Version": "1"}, body)

    def failure(self, headers: Mapping[str, str], body: bytes) -> str:
        try:
            is_message = isinstance(json.loads(body), dict)
        except (ValueError, RecursionError):
            is_message = False
        return "" if is_message else "the answer is not Pyroscope's"


def _with_pyroscope_types(pprof: bytes) -> bytes:
    """The same with such names of sample types as Pyroscope takes, no two alike: cpu_clock for cpu-clock."""
    profile = pprof_pb2.Profile.FromString(gzip.decompress(pprof))
    names: dict[str, str] = {}
    for row, kind in enumerate(profile.sample_type):
        name = profile.string_table[kind.type]
        typed = _NO_PYROSCOPE_TYPE.sub("_", name)
        names[name] = f"{typed}_{row}" if typed in names.values() else typed
    texts = {name: len(profile.string_table) + number for number, name in enumerate(names)}
    for kind in (*profile.sample_type, profile.period_type):
        kind.type = texts.get(profile.string_table[kind.type], kind.type)
    profile.default_sample_type = texts.get(
        profile.string_table[profile.default_sample_type], profile.default_sample_type
    )
    profile.string_table.extend(names.values())
    return gzip.compress(profile.SerializeToString(deterministic=True), mtime=0)


class Parca:
    """Parca, or what takes its API."""

    is_experimental = False

    def request(self, pprof: bytes, labels: Mapping[str, str]) -> PushRequest:
        pairs = [text(1, name) + text(2, value) for name, value in sorted(labels.items())]
        label_set = b"".join(field(1, pair) for pair in pairs)
        series = field(1, label_set) + field(2, field(1, pprof))
        message = field(2, series)
        headers = {"Content-Type": "application/grpc-web+proto", "X-Grpc-Web": "1", "TE": "trailers"}
        return PushRequest(_WRITE_RAW, headers, b"\0" + len(message).to_bytes(4, "big") + message)

    def failure(self, headers: Mapping[str, str], body: bytes) -> str:
        told = _lowered(headers) | _trailers(body)
        status = told.get("grpc-status", "")
        if status == "0":
            return ""
        return told.get("grpc-message") or (f"gRPC status {status}" if status else "the answer is no gRPC-Web answer")


class Otlp:
    """Whatever takes OTLP's profiles over HTTP."""

    is_experimental = True

    def request(self, pprof: bytes, labels: Mapping[str, str]) -> PushRequest:
        message = otlp.make_request(pprof_pb2.Profile.FromString(gzip.decompress(pprof)), labels)
        return PushRequest(otlp.PATH, {"Content-Type": _PROTOBUF}, message)

    def failure(self, headers: Mapping[str, str], body: bytes) -> str:
        kind = _lowered(headers).get("content-type", _PROTOBUF).partition(";")[0].strip().lower()
        return otlp.failure_in(body) if kind == _PROTOBUF else f"the answer is not OTLP's, but {kind}"


def _lowered(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _trailers(body: bytes) -> dict[str, str]:
    """What the last frame of a gRPC-Web answer says, as headers."""
    while len(body) >= _FRAME_HEADER_BYTES:
        end = _FRAME_HEADER_BYTES + int.from_bytes(body[1:_FRAME_HEADER_BYTES], "big")
        if body[0] & _TRAILER and len(body) >= end:
            lines = body[_FRAME_HEADER_BYTES:end].decode("utf-8", "replace").splitlines()
            return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = body[end:]
    return {}


_TARGETS: Mapping[str, PushTarget] = {"pyroscope": Pyroscope(), "parca": Parca(), "otlp": Otlp()}


def parse_target(typed: str) -> tuple[PushTarget, str]:
    """Read ``pyroscope+http://HOST:PORT`` and the like: what is spoken, and to whom.

    Raises:
        TdprofError: it is no such address.
    """
    kind, _, address = typed.partition("+")
    if "@" in address.partition("//")[2].partition("/")[0] or "@" in kind:
        raise TdprofError(
            "--to: a user or password in an address is not sent, and would be in every log",
            hint="TDPROF_PUSH_TOKEN in the environment, which is sent as a bearer token",
            status=2,
        )
    if kind not in _TARGETS or not address.startswith(("http://", "https://")):
        raise TdprofError(
            f"'{typed}' is nothing to push to",
            hint="--to pyroscope+http://HOST:4040 parca+http://HOST:7070 or otlp+http://HOST:4318 (or https)",
            status=2,
        )
    return _TARGETS[kind], address.rstrip("/")
