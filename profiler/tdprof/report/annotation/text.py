"""An annotated function for people: columns of what lines and instructions took, then their text."""

from collections.abc import Iterator, Sequence
from pathlib import PurePath

from rich.console import Console
from rich.text import Text

from tdprof.model.annotation import Annotation, Code, CodeLine, Cost, SourceLine, SourcePart
from tdprof.report.columns import as_text
from tdprof.report.metric_text import doubt_legend, metric_cell
from tdprof.report.summary import format_value
from tdprof.text import plural, printable

# Of the function's samples of an event, in percent; as `perf annotate` colours.
_HOT, _WARM = 5.0, 0.5
_MOST_METRICS = 4
_MOST_LETTERS = 4  # of a source line for each column: some have no width; to measure them all takes much memory


def render_text(annotation: Annotation, console: Console, *, event: int) -> str:
    """The whole annotation as the console's width and colours allow.

    Args:
        event: whose samples lead; the other events' shares stand beside it.
    """
    lines = [*_header(annotation, event)]
    most = _MOST_LETTERS * console.width
    parts = [_code(annotation, part, event, most) for part in annotation.code]
    for part in parts or [_source(annotation, source, event, most) for source in annotation.sources]:
        lines += [Text(), *part]
    lines = [_cut(line, console.width) for line in lines]
    if not parts and any(_metric_names(source.lines) for source in annotation.sources):
        lines += doubt_legend(console.width)
    return as_text(console, lines)


def _cut(line: Text, width: int) -> Text:
    """A line that no terminal of this width breaks."""
    line.expand_tabs(8)
    if line.cell_len > width:
        line.truncate(width, overflow="ellipsis")
    return line


def _header(annotation: Annotation, event: int) -> Iterator[Text]:
    yield Text(f"{annotation.name}", style="bold")
    if annotation.module:
        yield Text(f"in {annotation.module}", style="dim")
    order = [event, *(i for i in range(len(annotation.events)) if i != event)]
    for i in order:
        info, cost = annotation.events[i], annotation.cost
        total = int(annotation.totals[i])
        if not total and i != event:
            continue
        share = f"{cost.weight[i] / total:.1%}" if total else "no samples"
        inlined = (
            f", of them {int(cost.inlined_samples[i]):,} in functions inlined there" if cost.inlined_samples[i] else ""
        )
        yield Text(
            f"{printable(info.name)}: {share} of all, {format_value(int(cost.weight[i]), info.unit)} in "
            f"{plural(int(cost.samples[i]), 'sample', 's')}{inlined}"
        )
    for note in annotation.notes:
        yield Text(f"note: {note}", style="yellow")


def _whole(annotation: Annotation, event: int) -> float:
    """What 100 % of a column is: all that the function took, inlined into it included."""
    lines = [line.cost for part in annotation.code for line in part.lines if line.cost]
    costs = lines or [line.cost for source in annotation.sources for line in source.lines if line.cost]
    return float(sum(int(cost.weight[event]) for cost in costs))


class _Columns:
    """The cells in front of a line: shares of the events, samples of the leading one."""

    def __init__(self, annotation: Annotation, event: int) -> None:
        self._event = event
        self._others = [i for i, total in enumerate(annotation.totals.tolist()) if total and i != event]
        self._whole = [_whole(annotation, i) for i in range(len(annotation.events))]
        self._names = [printable(info.name) for info in annotation.events]

    def heading(self) -> str:
        others = "".join(f"  {self._names[i]:>{self._width(i)}}" for i in self._others)
        return f"{'share':>6}  {'samples':>7}{others}"

    def cells(self, cost: Cost | None) -> Text:
        text = Text(self._share(cost, self._event).rjust(6), style=self._style(cost, self._event))
        samples = int(cost.samples[self._event]) if cost else 0
        text.append(f"  {f'{samples:,}' if samples else '':>7}")
        for i in self._others:
            text.append("  " + self._share(cost, i).rjust(self._width(i)), style=self._style(cost, i))
        return text

    def _width(self, event: int) -> int:
        return max(6, len(self._names[event]))

    def _percent(self, cost: Cost | None, event: int) -> float:
        if cost is None or not self._whole[event]:
            return 0.0
        return 100 * float(cost.weight[event]) / self._whole[event]

    def _share(self, cost: Cost | None, event: int) -> str:
        return f"{percent:.2f}%" if (percent := self._percent(cost, event)) else ""

    def _style(self, cost: Cost | None, event: int) -> str:
        percent = self._percent(cost, event)
        return "bold red" if percent >= _HOT else "yellow" if percent >= _WARM else ""


def _source(annotation: Annotation, source: SourcePart, event: int, most: int) -> Iterator[Text]:
    columns = _Columns(annotation, event)
    has_inlined = any(line.cost is not None and line.cost.inlined_samples[event] for line in source.lines)
    has_latency = any(line.latency for line in source.lines)
    metrics = {name: _metric_cells(source.lines, name) for name in _metric_names(source.lines)}
    yield Text(printable(source.path), style="bold")
    heading = columns.heading() + ("  inlined" if has_inlined else "")
    heading += "".join(f"  {name:>{_width(name, cells)}}" for name, cells in metrics.items())
    heading += "  cycles    p99  ops" if has_latency else ""
    yield Text(heading + "   line", style="bold")
    previous = 0
    for row, line in enumerate(source.lines):
        if previous and line.line > previous + 1:
            yield Text("…".rjust(len(heading) + 3), style="dim")
        previous = line.line
        text = columns.cells(line.cost)
        if has_inlined:
            text.append(_inlined(line.cost, event).rjust(9))
        for name, cells in metrics.items():
            text.append("  ").append(" " * (_width(name, cells) - cells[row].cell_len)).append_text(cells[row])
        if has_latency:
            text.append(_latency(line))
        text.append(f"{line.line or '?':>7}", style="dim")
        text.append(f"  {'(no line)' if not line.line else '' if line.text is None else line.text[:most]}")
        yield text


def _inlined(cost: Cost | None, event: int) -> str:
    """The part of a line's samples that are in functions inlined there."""
    if cost is None or not cost.inlined_weight[event]:
        return ""
    return f"{cost.inlined_weight[event] / cost.weight[event]:.0%}"


def _metric_names(lines: Sequence[SourceLine]) -> list[str]:
    """The metrics that most lines have enough samples for."""
    counts: dict[str, int] = {}
    for line in lines:
        for name, value in line.metrics:
            if value.is_significant:
                counts[name] = counts.get(name, 0) + 1
    return sorted(counts, key=lambda name: -counts[name])[:_MOST_METRICS]


def _metric_cells(lines: Sequence[SourceLine], name: str) -> list[Text]:
    """A metric of each line; blank where it is not known."""
    values = (next((value for each, value in line.metrics if each == name), None) for line in lines)
    return [Text() if value is None else metric_cell(value) for value in values]


def _width(name: str, cells: Sequence[Text]) -> int:
    return max(len(name), *(cell.cell_len for cell in cells))


def _latency(line: SourceLine) -> str:
    latency = line.latency
    return f"  {latency.mean:>6.1f}  {latency.p99:>5.0f}  {latency.operations:>3,}" if latency else " " * 20


def _code(annotation: Annotation, part: Code, event: int, most: int) -> Iterator[Text]:
    columns = _Columns(annotation, event)
    yield Text(f"{part.name or '(code not at hand)'} in {PurePath(part.module).name or '?'}", style="bold")
    yield Text(columns.heading() + "   address", style="bold")
    blank = " " * len(columns.heading())
    stands: tuple[tuple[str, str, int], ...] = ()
    for line in part.lines:
        frames = tuple(line.frames)
        if frames != stands and frames:
            stands = frames
            yield Text(f"{blank}   {_place(annotation, frames)[:most]}", style="cyan")
        yield columns.cells(line.cost).append_text(_instruction(line))


def _place(annotation: Annotation, frames: Sequence[tuple[str, str, int]]) -> str:
    """The source line of an instruction; where it was inlined, from which function, and into which line."""
    name, file, number = frames[0]
    where = f"{PurePath(printable(file)).name or '?'}:{number or '?'}"
    text = annotation.texts.get((file, number), "").strip()
    if len(frames) > 1:
        chain = ", ".join(
            f"into {outer} {PurePath(printable(path)).name or '?'}:{line or '?'}" for outer, path, line in frames[1:]
        )
        where += f" [{name}, inlined {chain}]"
    return f"{where}  {text}".rstrip()


def _instruction(line: CodeLine) -> Text:
    text = Text(f"{line.instruction.address:>10x}  ")
    text.append(line.instruction.text)
    if line.target:
        text.append(f"  <{line.target}>", style="dim")
    return text
