"""Text for people: without what would steer a terminal, and lists that fit a line."""

from collections.abc import Sequence


def plural(count: int, noun: str, ending: str) -> str:
    """A count with its noun; ``ending`` is what more than one adds to it."""
    return f"{count:,} {noun}{'' if count == 1 else ending}"


def format_seconds(ns: int) -> str:
    """Nanoseconds as seconds, to the millisecond; less than one exactly."""
    return f"{ns / 1e9:.3f} s" if ns >= 1_000_000 or not ns else f"{ns / 1e9:.9f} s"


def percent_of(part: int, whole: int) -> str:
    """A share to a tenth of a percent, never rounded to all or nothing."""
    percent = 100 * part / whole
    if 0 < part < whole and not 0.05 <= percent < 99.95:
        return "<0.1%" if percent < 1 else ">99.9%"
    return f"{percent:.1f}%"


def few(names: Sequence[str], most: int = 6) -> str:
    """The names joined by commas; of more than fit one line only the first, and how many more there are."""
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1} more"


# C0 and C1 controls would let a symbol name move the terminal's cursor or break a line-based format; overrides of the
# direction of writing would let it show itself, and what stands behind it, as something else.
_CONTROLS = dict.fromkeys((*range(32), *range(127, 160), *range(0x2028, 0x202F), *range(0x2066, 0x206A)), "�")


def printable(text: str) -> str:
    """Text for any terminal, JSON reader or UTF-8 file: no controls or overrides of direction, no undecodable bytes."""
    if text.isascii() and text.isprintable():  # nearly all names, of which there are many
        return text
    return text.encode("utf-8", "replace").decode().translate(_CONTROLS)


def all_printable(texts: Sequence[str]) -> Sequence[str]:
    """`printable` of each; of thousands, of which none needs it as a rule, several times as fast."""
    return texts if printable(whole := "".join(texts)) is whole else [*map(printable, texts)]


def first_words(error: Exception) -> str:
    """The first line of what an exception of Arrow's or the system's says."""
    return str(getattr(error, "strerror", None) or str(error) or type(error).__name__).splitlines()[0]
