"""`tdprof push`: captures to a profile store that is there already."""

import gzip
import io
import os
import re
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from tdprof.cli.capture_options import CAPTURE_PATH, Input, find_input, symbol_options
from tdprof.cli.output import waiting
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.model.choices import SymbolOptions
from tdprof.recorder.patience import Call
from tdprof.text import plural, printable

if TYPE_CHECKING:
    from tdprof.export.push import PushRequest, PushTarget

TOKEN_VARIABLE = "TDPROF_PUSH_TOKEN"
_TIMEOUT_S = 60  # without a word
_WHOLE_S = 180.0  # for a whole answer
_ATTEMPTS = 4
_LONGEST_WAIT_S = 60.0
_MOST_ANSWER_BYTES = 1 << 16
_AGAIN = (429, 502, 503, 504)
_THIS_MACHINE = re.compile(r"https?://(localhost|127\.0\.0\.1|\[::1\])(:\d+)?(/|$)", re.ASCII)
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}", re.ASCII)


@click.command("push")
@click.argument("captures", nargs=-1, required=True, type=CAPTURE_PATH, metavar="CAPTURE…")
@click.option("--to", "target", required=True, metavar="KIND+URL", help="The server; see the examples.")
@click.option("--label", "labels", multiple=True, metavar="NAME=VALUE", help="Of each profile. May be repeated.")
@click.option("--tenant", metavar="ID", help="Whose they are, where a server has several (X-Scope-OrgID).")
@symbol_options
def command(
    captures: Sequence[Path], target: str, labels: Sequence[str], tenant: str | None, symbols: SymbolOptions
) -> None:
    """Send captures, one profile each, to Pyroscope or Parca, or to what takes OTLP's profiles (experimental).

    \b
    tdprof push my.capture --to pyroscope+http://localhost:4040 --label service_name=web
    tdprof push my.capture --to parca+https://parca.example:443
    tdprof push my.capture --to otlp+http://localhost:4318

    A profile has all events and functions with their names; its labels are what --label says, service_name (the host's
    name, unless given) and instance (the host). Metrics and intervals do not go with it: these servers keep counts.
    TDPROF_PUSH_TOKEN is sent as a bearer token, over https or to this machine.
    """
    given = dict(_parse_label(text) for text in labels)
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.export.push import parse_target

    kind, address = parse_target(target)
    headers = _headers(address, tenant)
    for sent, source in enumerate([find_input(capture) for capture in captures]):
        try:
            with waiting(f"sending {source.path}"):
                _send(kind, address, _request(kind, source, given, symbols), headers)
        except TdprofError as error:
            told = f"; {sent} of {len(captures)} profiles were sent, {source.path} is the first that was not"
            message = error.message + (told if len(captures) > 1 else "")
            raise TdprofError(message, hint=error.hint, status=error.status) from error
    if kind.is_experimental:
        say("tdprof: note: OTLP's profiles are no stable protocol yet: look whether the server has what was sent")
    say(f"tdprof: {plural(len(captures), 'profile', 's')} sent to {printable(address)}")


def _parse_label(text: str) -> tuple[str, str]:
    name, _, value = text.partition("=")
    if not _LABEL.fullmatch(name) or not value.isprintable() or not 0 < len(value) <= 2048:
        raise TdprofError(f"'{text}' cannot be a label", hint="--label service_name=web", status=2)
    return name, value


def _headers(address: str, tenant: str | None) -> dict[str, str]:
    headers = {"User-Agent": "tdprof"}
    if tenant is not None:
        if not tenant.isascii() or not tenant.isprintable():
            raise TdprofError("--tenant: not a name that a header can hold", hint="--tenant team-a", status=2)
        headers["X-Scope-OrgID"] = tenant
    if token := os.environ.get(TOKEN_VARIABLE):
        if not address.startswith("https://") and not _THIS_MACHINE.match(address):
            raise TdprofError(f"{TOKEN_VARIABLE} is not sent over a network in the clear", hint="https://…", status=2)
        headers["Authorization"] = f"Bearer {token}"
    return headers


def _request(kind: "PushTarget", source: Input, given: Mapping[str, str], symbols: SymbolOptions) -> "PushRequest":
    from tdprof.cli.loading import load_with_findings, open_input, say_losses
    from tdprof.export.pprof import write_pprof
    from tdprof.export.push import MOST_BYTES

    with open_input(source, symbols, keeps_time=False) as opened:
        host = printable(opened.manifest.host.hostname) or "unknown"
        profile, _ = load_with_findings(opened, source.path, with_spe=False)
    say_losses(profile.losses, profile.unreadable)
    pprof = io.BytesIO()
    write_pprof(profile, pprof)
    if (size := len(gzip.decompress(pprof.getvalue()))) > MOST_BYTES:
        raise TdprofError(
            f"{source.path} makes a profile of {size >> 20} MiB: servers take {MOST_BYTES >> 20}",
            hint="shorter segments: tdprof record --switch-output=1m",
        )
    labels = {"__name__": "process_cpu", "service_name": host, "instance": host, **given}
    return kind.request(pprof.getvalue(), labels)


def _send(kind: "PushTarget", address: str, request: "PushRequest", headers: Mapping[str, str]) -> None:
    """Send it, again after a while where the server is busy.

    Raises:
        TdprofError: it does not take it.
    """
    import http.client  # slow to load, and help does without
    import urllib.error
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        """What is sent, a token with it, is for this server alone."""

        def redirect_request(self, *given: object) -> None:
            return None

    handlers: list[urllib.request.BaseHandler] = [NoRedirects()]
    if _THIS_MACHINE.match(address):  # then a proxy, which may be elsewhere, has no part in it
        handlers.append(urllib.request.ProxyHandler({}))
    opener = urllib.request.build_opener(*handlers)
    url = f"{address}{request.path}"
    message = urllib.request.Request(url, request.body, {**headers, **request.headers}, method="POST")

    def ask() -> _Answer:
        try:
            with opener.open(message, timeout=_TIMEOUT_S) as answer:
                body = answer.read(_MOST_ANSWER_BYTES)
                if len(body) < _MOST_ANSWER_BYTES and answer.length:  # told for parts of a body by no error
                    raise http.client.IncompleteRead(body, answer.length)
                return _Answer(answer.status, answer.reason, dict(answer.headers), body)
        except urllib.error.HTTPError as error:
            with error:
                return _Answer(error.code, error.reason, dict(error.headers), error.read(_MOST_ANSWER_BYTES))

    for attempt in range(_ATTEMPTS):
        try:
            answer = _within(_WHOLE_S, ask)
        except http.client.IncompleteRead as error:
            raise TdprofError(
                f"{address} broke off its answer: it may have taken the profile, or not",
                hint="look there, or send again",
            ) from error
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = getattr(error, "reason", None) or error
            raise TdprofError(f"cannot send to {address}: {reason}", hint="is the server there?") from error
        if answer.status not in _AGAIN or attempt == _ATTEMPTS - 1:
            break
        time.sleep(_patience(answer.headers.get("Retry-After"), attempt))
    if not 200 <= answer.status < 300:
        words = answer.body.decode("utf-8", "replace").strip()
        words = f"{answer.status} {answer.reason}{f': {words}' if words else ''}"
    else:
        words = kind.failure(answer.headers, answer.body)
    if words:
        if token := os.environ.get(TOKEN_VARIABLE):
            words = words.replace(token, "…")  # some show what they were asked
        raise TdprofError(f"{address} did not take the profile: {printable(words)[:500]}")


class _Answer(NamedTuple):
    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes


def _within(seconds: float, ask: Callable[[], _Answer]) -> _Answer:
    """An answer that is whole by then: a server that sends a byte now and then would else be waited for without end.

    Raises:
        TimeoutError: it is not.
        OSError, ValueError, http.client.HTTPException: there is none.
    """
    call = Call(ask)
    threading.Thread(target=call.run, daemon=True).start()
    if not call.wait(seconds):
        raise TimeoutError(f"no whole answer within {seconds:g} s")
    return call.result(0, "the server")


def _patience(told: str | None, attempt: int) -> float:
    """Seconds to wait, as the server says, or twice as long each time."""
    if told and told.isascii() and told.isdigit():
        return min(float(told), _LONGEST_WAIT_S)
    return 2.0**attempt
