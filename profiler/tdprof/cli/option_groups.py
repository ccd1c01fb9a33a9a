"""Options of a command in groups: each is added by one decorator and handed on as one value."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
Group = TypeVar("Group")


def adding(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Adds options to a command, in the order in which its help is to name them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Percent(click.FloatRange):
    """A number up to one of hundreds; click's own takes nan for one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        return self.fail(f"{value!r} is not a number", param, ctx) if number != number else number


def list_option(*names: str, **attributes: Any) -> Callable[[Command], Command]:
    """Adds an option whose value is a list with commas. Given again it is the longer list, as perf has it."""

    def joined(_context: click.Context, _option: click.Parameter, typed: tuple[str, ...]) -> str | None:
        return ",".join(typed) if typed else None

    return click.option(*names, multiple=True, callback=joined, **attributes)


def taken(kind: type[Group], typed: dict[str, Any]) -> Group:
    """A group, a dataclass of which each field is an option's name; what it takes is removed from what was typed."""
    return kind(**{each.name: typed.pop(each.name) for each in fields(kind)})  # type: ignore[arg-type]
