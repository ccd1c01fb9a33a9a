"""What is pushed, as servers read it: by the messages that Pyroscope and Parca publish, built here by hand."""

import base64
import contextlib
import gzip
import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from builders.fleet import PERIOD, START_NS, make_host_capture, tdprof
from tdprof.cli import push
from tdprof.export import pprof_pb2
from tdprof.export.otlp import failure_in
from tdprof.export.push import Parca, parse_target

Answer = tuple[int, dict[str, str], bytes]
_GRPC_OK = b"\0\0\0\0\0" + b"\x80\0\0\0\x10grpc-status: 0\r\n"


class Server:
    """Keeps requests and answers as it was told, the last answer again and again."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answers: list[Answer] = [(200, {}, b"{}")]
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.requests.append((self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, headers, answer = outer.answers.pop(0) if len(outer.answers) > 1 else outer.answers[0]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)

            def do_GET(self) -> None:
                outer.requests.append((self.path, {}, b""))

            def log_message(self, *given: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.delenv("TDPROF_PUSH_TOKEN", raising=False)
    monkeypatch.setattr(push.time, "sleep", lambda seconds: None)
    started = Server()
    yield started
    started.close()


@pytest.fixture
def capture(tmp_path: Path) -> Path:
    return make_host_capture(tmp_path / "a.capture", "web-1", {"work": 60, "rest": 40})


@pytest.fixture(scope="module")
def write_raw_request() -> Callable[[], Any]:
    """parca.profilestore.v1alpha1.WriteRawRequest, from its field numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="parca.proto", package="parca", syntax="proto3")
    text, data, boolean, message = 9, 12, 8, 11
    for name, fields in {
        "Label": [("name", 1, text, "", 1), ("value", 2, text, "", 1)],
        "LabelSet": [("labels", 1, message, ".parca.Label", 3)],
        "RawSample": [("raw_profile", 1, data, "", 1)],
        "RawProfileSeries": [
            ("labels", 1, message, ".parca.LabelSet", 1),
            ("samples", 2, message, ".parca.RawSample", 3),
        ],
        "WriteRawRequest": [
            ("tenant", 1, text, "", 1),
            ("series", 2, message, ".parca.RawProfileSeries", 3),
            ("normalized", 3, boolean, "", 1),
        ],
    }.items():
        made = file.message_type.add(name=name)
        for field, number, kind, of, label in fields:
            made.field.add(name=field, number=number, type=kind, type_name=of or None, label=label)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made_class: Callable[[], Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("parca.WriteRawRequest"))
    return made_class


@pytest.fixture(scope="module")
def published() -> Any:
    """OTLP's messages as OpenTelemetry publishes them, which share no code with what writes ours."""
    name = "opentelemetry.proto.collector.profiles.v1development.profiles_service_pb2"
    return pytest.importorskip(name, reason="opentelemetry-proto is not installed: tools/setup test")


def functions(pprof: bytes) -> dict[str, int]:
    """Samples by the function at the leaf."""
    profile = pprof_pb2.Profile.FromString(gzip.decompress(pprof))
    strings = profile.string_table
    name = {each.id: strings[each.name] for each in profile.function}
    leaf = {each.id: name[each.line[0].function_id] for each in profile.location}
    found: dict[str, int] = {}
    for sample in profile.sample:
        found[leaf[sample.location_id[0]]] = found.get(leaf[sample.location_id[0]], 0) + sample.value[0]
    return found


@pytest.mark.parametrize("name", ["http_proxy", "HTTP_PROXY", "all_proxy"])
def test_a_token_for_this_machine_does_not_go_by_a_proxy(
    server: Server, capture: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("TDPROF_PUSH_TOKEN", "secret")
    monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    assert tdprof("push", capture, "--to", f"pyroscope+http://127.0.0.1:{server.port}").status == 0
    assert server.requests[0][1]["authorization"] == "Bearer secret"
    assert tdprof("push", capture, "--to", "pyroscope+http://127.0.0.1:80@elsewhere.invalid").status == 2


def test_pyroscope_gets_a_series_with_labels(server: Server, capture: Path) -> None:
    to = f"pyroscope+http://127.0.0.1:{server.port}/"
    for _ in range(2):
        ran = tdprof("push", capture, "--to", to, "--label", "service_name=web", "--tenant", "team-a")
        assert ran.status == 0
    assert server.requests[0][2] == server.requests[1][2]
    path, headers, body = server.requests[0]
    assert path == "/push.v1.PusherService/Push"
    assert (headers["content-type"], headers["x-scope-orgid"]) == ("application/json", "team-a")
    (series,) = json.loads(body)["series"]
    labels = {each["name"]: each["value"] for each in series["labels"]}
    assert labels == {"__name__": "process_cpu", "service_name": "web", "instance": "web-1"}
    (sample,) = series["samples"]
    assert functions(base64.b64decode(sample["rawProfile"])) == {"work": 60, "rest": 40}
    assert len(sample["ID"]) == 36


def test_pyroscope_gets_names_of_events_that_it_takes_and_others_get_their_own(server: Server, tmp_path: Path) -> None:
    events = {"cpu-clock": 1.0, "cpu_clock": 2.0, "cycles:u": 3.0}
    capture = make_host_capture(tmp_path / "host", "web-1", {"work": 6}, events=events)
    assert tdprof("push", capture, "--to", f"pyroscope+http://127.0.0.1:{server.port}").status == 0
    sent = json.loads(server.requests[0][2])["series"][0]["samples"][0]["rawProfile"]
    profile = pprof_pb2.Profile.FromString(gzip.decompress(base64.b64decode(sent)))
    texts = profile.string_table
    names = [texts[kind.type] for kind in profile.sample_type]
    assert names == ["samples", "cpu_clock", "cpu_clock_2", "cycles_u"]
    assert texts[profile.default_sample_type] == "cpu_clock"
    assert [sum(column) for column in zip(*(sample.value for sample in profile.sample), strict=True)] == [
        36, 6 * PERIOD, 12 * PERIOD, 18 * PERIOD,
    ]  # fmt: skip


def test_parca_gets_a_grpc_web_message(server: Server, capture: Path, write_raw_request: Callable[[], Any]) -> None:
    server.answers = [(200, {"Content-Type": "application/grpc-web+proto"}, _GRPC_OK)]
    assert tdprof("push", capture, "--to", f"parca+http://127.0.0.1:{server.port}").status == 0
    ((path, headers, body),) = server.requests
    assert path == "/parca.profilestore.v1alpha1.ProfileStoreService/WriteRaw"
    assert headers["content-type"] == "application/grpc-web+proto"
    assert (body[0], int.from_bytes(body[1:5], "big")) == (0, len(body) - 5)
    message = write_raw_request()
    message.ParseFromString(body[5:])
    (series,) = message.series
    labels = {each.name: each.value for each in series.labels.labels}
    assert labels == {"__name__": "process_cpu", "service_name": "web-1", "instance": "web-1"}
    assert functions(series.samples[0].raw_profile) == {"work": 60, "rest": 40}


def test_otlp_gets_a_profile_of_each_event(server: Server, tmp_path: Path, published: Any) -> None:
    events = {"cpu-clock": 1.0, "cycles": 2.0}
    capture = make_host_capture(tmp_path / "a.capture", "web-1", {"work": 60, "rest": 40}, events=events)
    server.answers = [(200, {}, b"")]
    for _ in range(2):
        to = f"otlp+http://127.0.0.1:{server.port}"
        assert tdprof("push", capture, "--to", to, "--label", "team=a").status == 0
    assert server.requests[0] == server.requests[1]
    path, headers, body = server.requests[0]
    assert path == "/v1development/profiles"
    assert headers["content-type"] == "application/x-protobuf"
    request = published.ExportProfilesServiceRequest.FromString(body)
    ((resource,), tables) = request.resource_profiles, request.dictionary
    told = {each.key: each.value.string_value for each in resource.resource.attributes}
    assert told == {"service.name": "web-1", "host.name": "web-1", "team": "a"}
    for table in ("mapping", "location", "function", "link", "attribute", "stack"):
        assert not getattr(tables, f"{table}_table")[0].ByteSize()
    text = tables.string_table
    assert text[0] == ""
    assert len(set(text)) == len(text)
    (scope,) = resource.scope_profiles
    found = {}
    for profile in scope.profiles:
        assert len(profile.profile_id) == 16
        assert profile.time_unix_nano == START_NS
        assert profile.duration_nano == 10 * 10**9
        counts: dict[tuple[str, ...], int] = {}
        for sample in profile.samples:
            stack = tables.stack_table[sample.stack_index].location_indices
            lines = [line for each in stack for line in tables.location_table[each].lines]
            names = tuple(text[tables.function_table[line.function_index].name_strindex] for line in lines)
            counts[names] = counts.get(names, 0) + sum(sample.values)
            attributes = [tables.attribute_table[row] for row in sample.attribute_indices]
            known = {text[each.key_strindex]: each.value for each in attributes}
            assert (known["process.pid"].int_value, known["thread.name"].string_value) == (100, "app")
        found[text[profile.sample_type.type_strindex], text[profile.sample_type.unit_strindex]] = counts
    work, rest = ("work", "main"), ("rest", "main")
    assert found == {
        ("samples", "count"): {work: 180, rest: 120},
        ("cpu-clock", "nanoseconds"): {work: 60 * PERIOD, rest: 40 * PERIOD},
        ("cycles", "count"): {work: 120 * PERIOD, rest: 80 * PERIOD},
    }
    [mapping] = {tables.location_table[1].mapping_index}
    assert text[tables.mapping_table[mapping].filename_strindex] == "/srv/app"
    (build_id,) = (tables.attribute_table[row] for row in tables.mapping_table[mapping].attribute_indices)
    assert (text[build_id.key_strindex], build_id.value.string_value) == (
        "process.executable.build_id.gnu",
        "ab" * 20,
    )


def test_what_an_otlp_server_does_not_take_is_told(server: Server, capture: Path, published: Any) -> None:
    to = f"otlp+http://127.0.0.1:{server.port}"

    def answer_of(partial: Any) -> bytes:
        message: bytes = published.ExportProfilesServiceResponse(partial_success=partial).SerializeToString()
        return message

    partial = published.ExportProfilesPartialSuccess(rejected_profiles=2, error_message="no profiles here")
    server.answers = [(200, {}, answer_of(partial))]
    ran = tdprof("push", capture, "--to", to)
    assert ran.error is not None
    assert "no profiles here" in ran.error.message
    warning = published.ExportProfilesPartialSuccess(error_message="all is well")
    server.answers = [(200, {}, answer_of(warning))]
    assert tdprof("push", capture, "--to", to).status == 0


@given(st.binary(max_size=200))
def test_whatever_a_server_answers_is_no_traceback(answer: bytes) -> None:
    assert isinstance(failure_in(answer), str)


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_lengths_are_those_of_protobuf(size: int, write_raw_request: Callable[[], Any]) -> None:
    message = write_raw_request()
    message.ParseFromString(Parca().request(b"x" * size, {"é": "v" * min(size, 1000)}).body[5:])
    assert len(message.series[0].samples[0].raw_profile) == size
    assert message.series[0].labels.labels[0].name == "é"


@pytest.mark.parametrize(
    ("headers", "body", "words"),
    [
        ({}, b"\x80\0\0\0\x26grpc-status: 3\r\ngrpc-message: bad one\r\n", "bad one"),
        ({"grpc-status": "16"}, b"", "gRPC status 16"),
        ({}, b"<html>", "no gRPC-Web answer"),
        ({}, b"\x80\xff\xff\xff\xff", "no gRPC-Web answer"),
    ],
)
def test_what_parca_refuses_is_told(
    server: Server, capture: Path, headers: dict[str, str], body: bytes, words: str
) -> None:
    server.answers = [(200, headers, body)]
    ran = tdprof("push", capture, "--to", f"parca+http://127.0.0.1:{server.port}")
    assert ran.status == 1
    assert words in ran.error.message


@pytest.mark.parametrize("kind", ["pyroscope", "parca", "otlp"])
@pytest.mark.parametrize(
    ("headers", "answer", "words"),
    [
        ({"Content-Type": "text/html; charset=utf-8"}, b"<!doctype html><p>Please log in", "did not take the profile"),
        ({"Content-Length": "200"}, b"", "broke off its answer"),
        ({"Content-Length": "200"}, _GRPC_OK, "broke off its answer"),
    ],
)
def test_an_answer_of_somebody_else_or_half_of_one_is_no_success(
    server: Server, capture: Path, kind: str, headers: dict[str, str], answer: bytes, words: str
) -> None:
    """A proxy's page for logging in has the status 200."""
    server.answers = [(200, headers, answer)]
    ran = tdprof("push", capture, "--to", f"{kind}+http://127.0.0.1:{server.port}")
    assert ran.error is not None
    assert words in ran.error.message


@pytest.mark.parametrize("bytes_left_out", range(1, 22))
def test_half_of_a_grpc_status_is_none(bytes_left_out: int) -> None:
    """The last digit may be missing."""
    assert not Parca().failure({}, _GRPC_OK)
    assert Parca().failure({}, _GRPC_OK[:-bytes_left_out])


def test_a_busy_server_is_asked_again_and_another_one_is_not(server: Server, capture: Path) -> None:
    server.answers = [(429, {"Retry-After": "1"}, b"slow down"), (503, {}, b""), (200, {}, b"{}")]
    to = f"pyroscope+http://127.0.0.1:{server.port}"
    assert tdprof("push", capture, "--to", to).status == 0
    assert len(server.requests) == 3
    server.answers = [(400, {}, b"no \x1b[2Jlabels")]
    ran = tdprof("push", capture, "--to", to)
    assert (ran.status, len(server.requests)) == (1, 4)
    assert "400" in ran.error.message
    assert "\x1b" not in ran.error.message
    server.answers = [(429, {}, b"never")]
    assert "never" in tdprof("push", capture, "--to", to).error.message


SILENT = b""
STUCK = b"HTTP/1.1 503 Busy\r\nContent-Length: 9\r\n\r\n"  # and nothing of the nine bytes
SLOW = b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1000  # a byte now and then


@pytest.mark.parametrize("said", [SILENT, STUCK, SLOW], ids=["silent", "stuck", "slow"])
def test_who_takes_it_and_never_answers_is_not_waited_for(
    said: bytes, capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(push, "_TIMEOUT_S", 60 if said == SLOW else 0.2)
    monkeypatch.setattr(push, "_WHOLE_S", 1.0 if said == SLOW else 60.0)
    other = make_host_capture(tmp_path / "b.capture", "web-2", {"work": 60})
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                first = len(said) if said != SLOW else 0
                connection.sendall(said[:first])
                for at in range(first, len(said)):
                    connection.sendall(said[at : at + 1])
                    if over.wait(0.05):
                        return
                over.wait()

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        ran = tdprof("push", capture, other, "--to", f"pyroscope+http://127.0.0.1:{listener.getsockname()[1]}")
        over.set()
        thread.join()
    assert ran.status == 1
    assert "cannot send to http://127.0.0.1" in ran.error.message
    assert f"0 of 2 profiles were sent, {capture} is the first that was not" in ran.error.message


def test_nothing_follows_a_redirect_and_a_token_goes_nowhere_else(
    server: Server, capture: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TDPROF_PUSH_TOKEN", "secret")
    other = Server()
    server.answers = [(302, {"Location": f"http://127.0.0.1:{other.port}/"}, b"")]
    assert tdprof("push", capture, "--to", f"pyroscope+http://127.0.0.1:{server.port}").status == 1
    assert server.requests[0][1]["authorization"] == "Bearer secret"
    assert not other.requests
    other.close()
    ran = tdprof("push", capture, "--to", "pyroscope+http://192.0.2.1:4040")
    assert "in the clear" in ran.error.message


def test_credentials_are_in_no_message(server: Server, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for target in ("pyroscope+https://me:s3cret@localhost:1", "https://me:s3cret@localhost"):
        ran = tdprof("push", capture, "--to", target)
        assert ran.error is not None
        assert ran.status == 2
        assert "s3cret" not in f"{ran.error.message} {ran.error.hint}"
    monkeypatch.setenv("TDPROF_PUSH_TOKEN", "t0ken")
    server.answers = [(401, {}, b"what is t0ken?")]
    ran = tdprof("push", capture, "--to", f"pyroscope+http://127.0.0.1:{server.port}")
    assert ran.error is not None
    assert ran.error.message.endswith("401 Unauthorized: what is …?")


def test_what_is_typed_wrong_and_who_is_not_there(server: Server, capture: Path, tmp_path: Path) -> None:
    for wrong in ("http://x", "pyroscope+ftp://x", "otlp+grpc://x", "parca", ""):
        assert tdprof("push", capture, "--to", wrong).status == 2
    for label in ("a-b=c", "=x", "x=", "x=\n"):
        assert tdprof("push", capture, "--to", "parca+http://x", "--label", label).status == 2
    assert "no capture" in tdprof("push", tmp_path / "none", "--to", "parca+http://x").error.message
    server.close()
    ran = tdprof("push", capture, "--to", f"parca+http://127.0.0.1:{server.port}")
    assert "cannot send" in ran.error.message
    assert parse_target("parca+https://x/")[1] == "https://x"


def test_too_large_a_profile_is_not_sent(server: Server, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tdprof.export.push.MOST_BYTES", 100)
    ran = tdprof("push", capture, "--to", f"pyroscope+http://127.0.0.1:{server.port}")
    assert "servers take" in ran.error.message
    assert not server.requests
