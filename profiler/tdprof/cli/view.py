"""`tdprof view`: a capture in the browser, in speedscope or as tdprof's own page."""

import contextlib
import io
import mimetypes
import os
import shlex
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO
from urllib.parse import quote

import click

from tdprof.cli.capture_options import capture_argument, find_input, selection_options, symbol_options
from tdprof.cli.output import standard_output, waiting
from tdprof.cli.speedscope import find_speedscope, how_to_install
from tdprof.cli.standard_error import say
from tdprof.errors import TdprofError
from tdprof.model.choices import Selection, SymbolOptions
from tdprof.text import printable

if TYPE_CHECKING:
    from tdprof.cli.local_server import Document, LocalServer
    from tdprof.report.page.data import Page

PAGE = "page.html"
SPEEDSCOPE_PAGE = "speedscope/index.html"
PROFILE = "profile.speedscope.json"
# The page states a stricter one itself; a policy can only be narrowed.
PAGE_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"
SPEEDSCOPE_POLICY = (
    "default-src 'none'; connect-src 'self'; font-src 'self'; img-src 'self' data: blob:;"
    " script-src 'self' 'wasm-unsafe-eval'; style-src 'self' 'unsafe-inline'"
)


@click.command("view")
@capture_argument
@click.option("--speedscope", "opened", flag_value=SPEEDSCOPE_PAGE, help="Open speedscope.")
@click.option("--html", "opened", flag_value=PAGE, help="Open tdprof's own page, as `tdprof export --to html` writes.")
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="The port to serve on (0: any that is free).")
@click.option("--no-browser", is_flag=True, help="Only print where to look.")
@selection_options
@symbol_options
def command(
    capture: Path, opened: str | None, port: int, no_browser: bool, selection: Selection, symbols: SymbolOptions
) -> None:
    """Look at a capture in the browser until Ctrl-C: in speedscope if it is installed, else as tdprof's own page.

    \b
    tdprof view                      the newest capture of this folder
    tdprof view --html               flame graph coloured by metric, functions, the methodology, advice
    tdprof view --no-browser --port 8000    over ssh -L 8000:127.0.0.1:8000 THIS_MACHINE

    Both are served whichever is opened, to this machine alone, below an address that nobody can guess.
    """
    release, lacking = _installed(is_needed=opened == SPEEDSCOPE_PAGE)
    source = find_input(capture)
    # Only now: help, and what is typed wrong, are said without loading NumPy and Arrow.
    from tdprof.cli.loading import load_with_findings, open_input, say_losses, with_function_operations
    from tdprof.cli.local_server import LocalServer
    from tdprof.export.speedscope import has_order
    from tdprof.report.page.data import Page

    with open_input(source, symbols) as opened_capture:
        profile, findings = load_with_findings(opened_capture, capture, selection=selection, by_time=True)
        profile, operations = with_function_operations(opened_capture, profile, selection)
    say_losses(profile.losses, profile.unreadable)
    documents = _documents(Page(profile, findings, operations), release)
    first = opened or (SPEEDSCOPE_PAGE if release else PAGE)
    with LocalServer(documents, port) as server:
        with waiting("preparing the page"):
            server.document(PROFILE if first == SPEEDSCOPE_PAGE else PAGE)
        urls = {PAGE: server.url + PAGE}
        if release:
            title = printable(shlex.join(profile.command)) or capture.name
            words = f"#profileURL={quote(f'../{PROFILE}', safe='')}&title={quote(title, safe='')}"
            # speedscope begins with the order in time, which would show phases that there were not.
            words += "" if has_order(profile, 0) else "&view=left-heavy"
            urls[SPEEDSCOPE_PAGE] = server.url + SPEEDSCOPE_PAGE + words
        try:
            _serve(server, urls, first, lacking, is_browser_wanted=not no_browser)
        except KeyboardInterrupt:
            say("tdprof: stopped")


def _installed(*, is_needed: bool) -> tuple[dict[str, bytes] | None, str]:
    """speedscope's files; where there are none, why."""
    try:
        if release := find_speedscope():
            return release, ""
        error = TdprofError("speedscope is not installed", hint=how_to_install(), status=2)
    except TdprofError as refusal:
        error = refusal
    if is_needed:
        raise TdprofError(error.message, hint=f"{error.hint}; or tdprof view --html", status=2)
    return None, f"{error.message}: {error.hint}"


def _serve(server: "LocalServer", urls: dict[str, str], first: str, lacking: str, *, is_browser_wanted: bool) -> None:
    """Say where to look, open the browser if there is one, and answer it until Ctrl-C."""
    with standard_output():
        for path, url in urls.items():
            print(f"{'page' if path == PAGE else 'speedscope':<10}  {url}")
    if lacking:
        say(f"tdprof: {lacking}")
    with contextlib.ExitStack() as stack:
        is_open = is_browser_wanted and _has_display() and _open_browser(urls[first], stack)
        _serve_until_stopped(server, is_open=is_open)


def _serve_until_stopped(server: "LocalServer", *, is_open: bool) -> None:
    from tdprof.cli.local_server import HOST

    if not is_open:
        port = server.server_port
        say(f"  from another machine: ssh -L {port}:{HOST}:{port} and this one's name")
    say("tdprof: serving until Ctrl-C")
    server.serve_forever()


def _open_browser(url: str, stack: contextlib.ExitStack) -> bool:
    """Let a file that nobody else can read lead the browser there: every user can see a process's arguments.

    The file stays until the stack is closed.
    """
    import html
    import tempfile
    import webbrowser

    page = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tdprof-")), "open.html")
    page.touch(0o600)
    page.write_text(
        f'<!DOCTYPE html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>tdprof</title>'
        f'<meta http-equiv="refresh" content="0; url={html.escape(url)}"><a href="{html.escape(url)}">tdprof</a>\n'
    )
    return webbrowser.open(page.as_uri())


def _has_display() -> bool:
    """Whether a browser opens a window: one that runs in this terminal would take it over."""
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))


def _documents(shown: "Page", release: dict[str, bytes] | None) -> "dict[str, Document]":
    from tdprof.cli.local_server import Document
    from tdprof.export.speedscope import write_speedscope
    from tdprof.profile.categories import with_categories
    from tdprof.report.page.html import write_html

    def page(out: BinaryIO) -> None:
        write_html(shown, out)

    def flame_graphs(out: BinaryIO) -> None:
        write_speedscope(with_categories(shown.profile, shown.findings), out, shown.findings)

    documents = {
        PAGE: Document("text/html; charset=utf-8", _written(page), PAGE_POLICY),
        PROFILE: Document("application/json", _written(flame_graphs)),
    }
    for name, content in (release or {}).items():
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        documents[f"speedscope/{name}"] = Document(kind, partial(bytes, content), SPEEDSCOPE_POLICY)
    return documents


def _written(write: Callable[[BinaryIO], None]) -> Callable[[], bytes]:
    def read() -> bytes:
        out = io.BytesIO()
        write(out)
        return out.getvalue()

    return read
