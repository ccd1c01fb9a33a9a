"""Options of a command in groups: each is added by one decorator and handed on as one value."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

Command = TypeVar("Command", bound=Callable[..., Any])
Group = TypeVar("Group")


def adding(*options: Callable[[Any], Any]) -> Callable[[Command], Command]:
    """Adds options to a command, in the order in which its help is to name them."""

    def decorate(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


def taken(kind: type[Group], typed: dict[str, Any]) -> Group:
    """A group, a dataclass of which each field is an option's name; what it takes is removed from what was typed."""
    return kind(**{each.name: typed.pop(each.name) for each in fields(kind)})  # type: ignore[arg-type]
