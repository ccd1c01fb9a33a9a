"""The values' decorator does what dataclasses' own does."""

import copy
import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from tdprof.values import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """A file and a line of it."""

    file: str
    line: int = 7
    callers: list[str] = dataclasses.field(default_factory=list)
    _: dataclasses.KW_ONLY
    note: str = dataclasses.field(default="-", repr=False, compare=False)


def pair(**options: bool) -> list[Any]:
    """The same class made by both decorators."""

    def made(decorator: Callable[..., Any]) -> Any:
        class Event:
            """An event."""

            name: str
            rate: int = 99
            groups: tuple[str, ...] = dataclasses.field(default_factory=lambda: ("a", "b"))
            hidden: int = dataclasses.field(default=3, repr=False, compare=False)

        return decorator(**options)(Event)

    return [made(dataclass), made(dataclasses.dataclass)]


FROZEN = {"frozen": True, "slots": True}


@pytest.mark.parametrize(
    "options",
    [FROZEN, FROZEN | {"eq": False}, {"slots": True}, {"slots": True, "eq": False}, FROZEN | {"order": True}, {}],
)
def test_it_makes_what_dataclasses_makes(options):
    for cls in pair(**options):
        one, other = cls("cycles"), cls("cycles", groups=("a", "b"), hidden=4)
        assert repr(one).split(".")[-1] == "Event(name='cycles', rate=99, groups=('a', 'b'))"
        is_equal = options.get("eq", True)
        assert (one == other) is is_equal
        assert one != cls("cycles", 100)
        assert one != "cycles"
        assert cls.__match_args__ == ("name", "rate", "groups", "hidden")
        assert dataclasses.asdict(one) == {"name": "cycles", "rate": 99, "groups": ("a", "b"), "hidden": 3}
        assert dataclasses.replace(one, rate=4).rate == 4
        assert cls.__doc__ == "An event."
        is_hashable = options.get("frozen") or not is_equal
        assert (cls.__hash__ is not None) is is_hashable
        if options.get("frozen"):
            assert (hash(one) == hash(other)) is is_equal
        with pytest.raises(TypeError, match="missing 1 required positional argument: 'name'"):
            cls()


@pytest.mark.parametrize("cls", pair(**FROZEN))
def test_a_value_is_not_changed(cls):
    value = cls("cycles")
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'rate'"):
        value.rate = 1
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'rate'"):
        del value.rate
    assert value.rate == 99


@pytest.mark.parametrize("cls", pair(slots=True))
def test_what_is_not_frozen_is_changed_and_has_no_other_names(cls):
    value = cls("cycles")
    value.rate = 1
    assert value == cls("cycles", 1)
    with pytest.raises(AttributeError):
        value.other = 1
    for other in (copy.copy(value), copy.deepcopy(value)):
        assert (other, other.hidden) == (value, 3)


def test_who_inherits_the_beginning_has_its_own_class():
    class Named(Place):
        """A place with a name."""

    assert type(Named("a.c")) is Named
    assert Named("a.c", 3).line == 3
    assert Place("a.c") != Named("a.c")


def test_lists_are_not_shared_and_what_follows_has_names_only():
    assert Place("a.c").callers is not Place("a.c").callers
    assert Place("a.c", note="b").note == "b"
    with pytest.raises(TypeError):
        Place("a.c", 1, [], "b")  # type: ignore[misc]


def test_values_are_copied_and_pickled():
    place = Place("a.c", 3, ["main"], note="n")
    for other in (copy.copy(place), copy.deepcopy(place), pickle.loads(pickle.dumps(place))):
        assert other == place
        assert other.note == "n"


def test_own_methods_stay():
    @dataclass(frozen=True, slots=True)
    class Own:
        a: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 5

        def __repr__(self) -> str:
            return "own"

    assert Own(1) == Own(2)
    assert hash(Own(1)) == 5
    assert repr(Own(1)) == "own"


def test_one_field_alone_is_compared_and_a_class_inherits_fields():
    @dataclass(frozen=True, slots=True)
    class Base:
        a: int

    @dataclass(frozen=True, slots=True)
    class Derived(Base):
        b: int = 2

    assert Base(1) == Base(1)
    assert Base(1) != Derived(1)
    assert Derived(1, 3) == Derived(b=3, a=1)
    assert hash(Base(1)) == hash(Base(1))
