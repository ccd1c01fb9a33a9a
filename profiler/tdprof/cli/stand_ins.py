"""Keeps out what NumPy and Arrow load and nothing here uses. To be loaded before what loads NumPy."""

import importlib
import importlib.abc
import importlib.util
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_kept_out: set[str] = set()


class _NoDescription(dict[str, list[object]]):
    """What the description of a function's options is read to: no section has a line."""

    def __init__(self, *_: object) -> None:
        super().__init__()

    def __missing__(self, section: str) -> list[object]:
        return []


class _AnyType:
    """What an annotation names, with or without parameters: nothing looks into it while the program runs."""

    def __class_getitem__(cls, _: object) -> type:
        return cls


def _any_type(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return _AnyType


def _of_masked_arrays(name: str) -> object:
    """What only who makes some asks for: then the module itself comes, in place of what stands in for it."""
    if name.startswith("__"):
        raise AttributeError(name)
    if _STAND_INS.pop("numpy.ma", None):
        del sys.modules["numpy.ma"]
    return getattr(importlib.import_module("numpy.ma"), name)


_STAND_INS: dict[str, dict[str, object]] = {
    # Arrow puts the descriptions of its hundred functions together anew in each process; this is all it reads them by.
    "pyarrow.vendored.docscrape": {"NumpyDocString": _NoDescription},
    # NumPy attaches texts for people who ask for help, and builds types for those who check programs.
    "numpy._core._add_newdocs": {},
    "numpy._core._add_newdocs_scalars": {},
    "numpy._typing": {"__getattr__": _any_type},
    "numpy.typing": {"__getattr__": _any_type},
    # Arrow and NumPy ask of each array whether it is one of these.
    "numpy.ma": {"MaskedArray": _AnyType, "is_masked": lambda _: False, "__getattr__": _of_masked_arrays},
}


class _OnDemand(importlib.abc.Loader):
    """Loads a module without what is loaded when it is asked for; one that is put together otherwise as it is.

    Args:
        loader: loads it as it is.
    """

    def __init__(self, loader: importlib.abc.Loader) -> None:
        self._loader = loader

    def exec_module(self, module: ModuleType) -> None:
        empty = dict(vars(module))
        try:
            self._load(module)
        except (ImportError, KeyError, AttributeError, NameError):  # another version
            vars(module).clear()
            vars(module).update(empty)
            self._loader.exec_module(module)

    @abstractmethod
    def _load(self, module: ModuleType) -> None:
        """Load it so, or raise one of these."""


class _FunctionsOnDemand(_OnDemand):
    """Loads `pyarrow.compute` without the wrappers of its 300 functions: each is made when it is asked for."""

    def _load(self, module: ModuleType) -> None:
        compiled = vars(importlib.import_module("pyarrow._compute"))
        whole = compiled["function_registry"]
        registry = whole()
        needed = [name for name in registry.list_functions() if name == "utf8_zero_fill"]  # what it names itself

        class Needed:
            list_functions = staticmethod(lambda: needed)
            get_function = staticmethod(registry.get_function)

        try:
            compiled["function_registry"] = Needed
            self._loader.exec_module(module)
        finally:
            compiled["function_registry"] = whole
        wrap = module._wrap_function

        def make(name: str) -> object:
            try:
                function = registry.get_function(name.removesuffix("_"))  # and_, or_
            except KeyError:
                raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}", name=name) from None
            made: object = wrap(name, function)
            setattr(module, name, made)
            return made

        module.__dict__.update(function_registry=whole, __getattr__=make)


class _FileSystemsOnDemand(_OnDemand):
    """Loads `pyarrow.parquet.core` without Arrow's file systems, clouds' and TLS among them, until it opens a path."""

    _NAMES = ("LocalFileSystem", "FileType", "_ensure_filesystem", "_resolve_filesystem_and_path")

    def _load(self, module: ModuleType) -> None:
        if "pyarrow.fs" in sys.modules:
            self._loader.exec_module(module)
            return

        def on_demand(name: str) -> Callable[..., object]:
            def call(*args: object, **options: object) -> object:
                whole = importlib.import_module("pyarrow.fs")
                vars(module).update({each: getattr(whole, each) for each in self._NAMES})
                called: object = getattr(whole, name)(*args, **options)
                return called

            return call

        of_path = on_demand("_resolve_filesystem_and_path")

        def resolve(path: object, filesystem: object = None, **options: object) -> object:
            if filesystem is None and not isinstance(path, str) and not hasattr(path, "__fspath__"):
                return None, path  # a file
            return of_path(path, filesystem, **options)

        stand_in = ModuleType("pyarrow.fs")
        vars(stand_in).update({name: on_demand(name) for name in self._NAMES}, _resolve_filesystem_and_path=resolve)
        try:
            sys.modules["pyarrow.fs"] = stand_in
            self._loader.exec_module(module)
        finally:
            del sys.modules["pyarrow.fs"]


_ON_DEMAND: dict[str, type[_OnDemand]] = {
    "pyarrow.compute": _FunctionsOnDemand,
    "pyarrow.parquet.core": _FileSystemsOnDemand,
}


class _WithoutUnused(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in _kept_out:
            raise ModuleNotFoundError("not needed by tdprof", name=fullname)
        if fullname in _ON_DEMAND:
            spec = PathFinder.find_spec(fullname, path, target)
            if spec and spec.loader:
                spec.loader = _ON_DEMAND[fullname](spec.loader)
            return spec
        return importlib.util.spec_from_loader(fullname, self) if fullname in _STAND_INS else None

    def exec_module(self, module: ModuleType) -> None:
        module.__dict__.update(_STAND_INS[module.__name__])


sys.meta_path.insert(0, _WithoutUnused())


def keep_out(*modules: str) -> None:
    """From now on these are as if they were not installed."""
    _kept_out.update(modules)
