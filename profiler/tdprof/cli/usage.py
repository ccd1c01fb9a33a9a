"""What was typed wrong, in one line and with what was probably meant; click's own words take four."""

import re
from collections.abc import Iterable
from typing import Any

import click

from tdprof.errors import TdprofError

_IN_WORDS = {
    r"is not a valid (?:integer|float)(?: range)?": "is not a number",
    r"is not in the range (\S+)<=x<=(\S+)": r"is not between \1 and \2",
    r"is not in the range x>=(\S+)": r"is less than \1",
    r"is not in the range x>(\S+)": r"is not more than \1",
}


class SuggestingGroup(click.Group):
    """A group whose unknown subcommands are answered with the nearest known one."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        known = self.list_commands(ctx)
        if args and args[0] not in known and not args[0].startswith("-"):
            hint = f"{ctx.command_path} {_nearest(args[0], known)}".rstrip() + " --help"
            raise TdprofError(f"no command named '{args[0]}'", hint=hint, status=2)
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except click.UsageError as error:
            # An option without its value: click's parser does not say of which subcommand.
            if (
                error.ctx is None
                and ctx.invoked_subcommand
                and (found := self.get_command(ctx, ctx.invoked_subcommand))
            ):
                error.ctx = click.Context(found, info_name=ctx.invoked_subcommand, parent=ctx)
            raise


def is_help(error: click.ClickException) -> bool:
    """Whether it is only the help that a group without a subcommand prints."""
    return isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ()))  # click 8.2


def usage_error(error: click.ClickException) -> TdprofError:
    """What click found wrong, in the form of all our errors."""
    context = getattr(error, "ctx", None)
    path = context.command_path if context else "tdprof"
    message, meant = _sentence(error.format_message()), ""
    if isinstance(error, click.NoSuchOption):
        message = f"no option {error.option_name}"
        meant = _nearest(error.option_name, _options(context))
    elif isinstance(error, click.MissingParameter):
        pass  # click's words name it
    elif isinstance(error, click.BadParameter) and error.param is not None:
        name = _shown_name(error.param)
        message = f"{name}: {_sentence(error.message)}"
        if isinstance(error.param.type, click.Choice) and (value := re.match(r"'(.*?)' ", error.message)):
            close = _nearest(value[1], [str(choice) for choice in error.param.type.choices])
            is_argument = isinstance(error.param, click.Argument)
            meant = close if is_argument or not close else f"{name} {close}"
    return TdprofError(message, hint=f"{path} {meant or '--help'}", status=error.exit_code)


def _sentence(text: str) -> str:
    """Click's sentence as a clause, with numbers called numbers and ranges in words."""
    text = " ".join(text.split())
    for pattern, words in _IN_WORDS.items():
        text = re.sub(pattern, words, text)
    return text[:1].lower() + text[1:].rstrip(".")


def _shown_name(parameter: click.Parameter) -> str:
    """An option; of an argument the word that its usage has, without brackets and what is taken by default."""
    if isinstance(parameter, click.Option):
        return max(parameter.opts, key=len)
    word = re.search(r"[A-Z][A-Z.]*", parameter.metavar or "")
    return word[0] if word else str(parameter.name)


def _options(context: click.Context | None) -> list[str]:
    parameters = context.command.get_params(context) if context else []
    return [
        name for each in parameters if isinstance(each, click.Option) for name in (*each.opts, *each.secondary_opts)
    ]


def _nearest(typed: str, known: Iterable[str]) -> str:
    from difflib import get_close_matches  # only now: most commands are typed right

    return next(iter(get_close_matches(typed, list(known), n=1)), "")
