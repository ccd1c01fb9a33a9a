"""The decorator of values: what `dataclasses.dataclass` makes, in less time where they have slots."""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NoReturn

_NOT_GIVEN = object()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(cls=None, /, **options):
        """As `dataclasses.dataclass` has it. Of a class with slots only `__init__` is compiled, once it is called.

        Before Python 3.13 that one compiles six methods of each class, one by one, which takes half a millisecond, and
        what `report` and `record` load has ninety classes.
        """
        if cls is None:
            return lambda made: dataclass(made, **options)
        if cls.__doc__ is None:
            cls.__doc__ = cls.__name__  # else `inspect` is loaded, and works out a signature
        if not _is_plain(cls, options):
            return dataclasses.dataclass(cls, **options)
        is_frozen = options.get("frozen", False)
        own = set(vars(cls))
        made = dataclasses.dataclass(cls, init=False, repr=False, eq=False, slots=True)
        methods = {"__init__": _init_when_called(made, is_frozen=is_frozen), "__repr__": _repr}
        if is_frozen:
            methods |= {"__getstate__": _state, "__setstate__": _set_state}
        if options.get("eq", True):
            methods |= _comparison(made, is_frozen=is_frozen)
        for name, method in methods.items():
            if name not in own:
                setattr(made, name, method)
        if is_frozen:
            made.__setattr__, made.__delattr__ = _refuse_to_set, _refuse_to_delete
        return made


def _is_plain(cls: type, options: dict[str, bool]) -> bool:
    has_slots = options.get("slots", False) and options.keys() <= {"frozen", "slots", "eq"}
    takes_all = all(value.init for value in vars(cls).values() if isinstance(value, dataclasses.Field))
    return has_slots and takes_all and not hasattr(cls, "__post_init__")


def _init_when_called(cls: Any, *, is_frozen: bool) -> Callable[..., None]:
    """`__init__`, in whose place the compiled one comes: of most classes that a command loads it makes no value."""

    def begin(self: object, /, *values: object, **named: object) -> None:
        cls.__init__ = _init(cls, is_frozen=is_frozen)
        cls.__init__(self, *values, **named)

    return begin


def _init(cls: type, *, is_frozen: bool) -> object:
    names: dict[str, object] = {"set_": object.__setattr__, "NOT_GIVEN": _NOT_GIVEN}
    by_place: list[str] = ["self"]
    by_name: list[str] = []
    body: list[str] = []
    for field in dataclasses.fields(cls):
        name = parameter = value = field.name
        if field.default is not dataclasses.MISSING:
            names[f"default_{name}"] = field.default
            parameter = f"{name}=default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[f"make_{name}"] = field.default_factory
            parameter, value = f"{name}=NOT_GIVEN", f"make_{name}() if {name} is NOT_GIVEN else {name}"
        (by_name if field.kw_only else by_place).append(parameter)
        body.append(f" set_(self, {name!r}, {value})\n" if is_frozen else f" self.{name} = {value}\n")
    if by_name:
        by_name.insert(0, "*")
    exec(f"def __init__({', '.join(by_place + by_name)}):\n{''.join(body) or ' pass'}", names)
    return names["__init__"]


def _comparison(cls: type, *, is_frozen: bool) -> dict[str, object]:
    names = [field.name for field in dataclasses.fields(cls) if field.compare]
    compared: Callable[[object], object]
    if len(names) > 1:
        compared = attrgetter(*names)
    else:  # for a single name that one returns no tuple

        def compared(value: object) -> object:
            return tuple(getattr(value, name) for name in names)

    def equals(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: object) -> int:
        return hash(compared(self))

    return {"__eq__": equals, "__hash__": hashed if is_frozen else None}


def _repr(self: object) -> str:
    fields = ((field.name, getattr(self, field.name)) for field in dataclasses.fields(self) if field.repr)  # type: ignore[arg-type]
    return f"{type(self).__qualname__}({', '.join(f'{name}={value!r}' for name, value in fields)})"


def _state(self: object) -> list[object]:
    return [getattr(self, field.name) for field in dataclasses.fields(self)]  # type: ignore[arg-type]


def _set_state(self: object, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):  # type: ignore[arg-type]
        object.__setattr__(self, field.name, value)


def _refuse_to_set(self: object, name: str, value: object) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
