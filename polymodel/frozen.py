"""Frozen dataclasses as the standard library makes them, in a third of the time.

A process that evaluates a small spec makes some 230 of these classes before it does anything. The standard
library compiles six methods of each, one by one: a third of the time of the whole process. Here what
a class needs of its own, `__init__`, `__eq__` and `__hash__`, is compiled at once, when the first of them is
asked for: of half of these classes the process makes no object. The other methods are shared.
Modules that such a process imports take `dataclass` from here; elsewhere either will do.
From Python 3.13 on the standard library compiles the methods of a class at once as well: once that is the
least version, this module goes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

_KNOWN = {"frozen", "eq", "repr"}


class _Made:
    """Stands for a default that a factory creates."""

    def __repr__(self) -> str:
        return "<factory>"


def _dataclass(cls: type | None = None, /, **options: bool) -> Any:
    """`dataclasses.dataclass`: what is not frozen, inherits from what is, or has other options than `eq` and
    `repr`, is made there."""
    if cls is None:
        return lambda given: _dataclass(given, **options)
    if not options.get("frozen") or not set(options) <= _KNOWN or _inherits(cls):
        return dataclasses.dataclass(cls, **options)
    cls.__doc__ = cls.__doc__ or cls.__name__  # else a signature is made up, which takes long
    dataclasses.dataclass(cls, init=False, eq=False, repr=False)
    cls.__dict__["__dataclass_params__"].frozen = True  # what inherits from it has to be frozen, too
    names = _own(cls, options.get("eq", True))
    for name in names:
        setattr(cls, name, _Late(cls, name, names))
    _put(cls, _shared(cls))
    if options.get("repr", True) and "__repr__" not in cls.__dict__:
        setattr(cls, "__repr__", _shown)  # noqa: B010  # mypy takes an assignment for a fault
    return cls


def _inherits(cls: type) -> bool:
    return any("__dataclass_params__" in base.__dict__ for base in cls.__mro__[1:])


def _put(cls: type, methods: Iterable[Callable[..., Any]]) -> None:
    for method in methods:
        method.__qualname__ = f"{cls.__qualname__}.{method.__name__}"
        method.__module__ = cls.__module__
        setattr(cls, method.__name__, method)


class _Late:
    """Stands for a method until it is asked for; then all those of its class are compiled, and replace it."""

    def __init__(self, cls: type, name: str, names: Sequence[str]) -> None:
        self.cls, self.name, self.names = cls, name, names

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        if self.cls.__dict__[self.name] is self:
            _put(self.cls, _compiled(self.cls, self.names))
        return self.cls.__dict__[self.name].__get__(instance, owner)


def _own(cls: type, eq: bool) -> list[str]:
    """The methods that are compiled for a class: of these, the ones that it does not have itself."""
    names = [] if "__init__" in cls.__dict__ else ["__init__"]
    if eq:
        names += [] if "__eq__" in cls.__dict__ else ["__eq__"]
        # Python itself has set `__hash__` to None where a class has an `__eq__` of its own.
        names += ["__hash__"] if cls.__dict__.get("__hash__") is None else []
    return names


def _compiled(cls: type, names: Sequence[str]) -> list[Callable[..., Any]]:
    """`__init__`, `__eq__` and `__hash__`, those of them that are named."""
    known: dict[str, Any] = {"__set": object.__setattr__, "__MADE": _Made()}
    sources = []
    if "__init__" in names:
        sources += _init(cls, known)
    if "__eq__" in names:
        mine, others = (_tuple(of, [f.name for f in fields(cls) if f.compare]) for of in ("self", "other"))
        sources += [
            "def __eq__(self, other):",
            f"  return {mine} == {others} if other.__class__ is self.__class__ else NotImplemented",
        ]
    if "__hash__" in names:
        hashed = [f.name for f in fields(cls) if (f.compare if f.hash is None else f.hash)]
        sources += ["def __hash__(self):", f"  return hash({_tuple('self', hashed)})"]
    methods: dict[str, Callable[..., Any]] = {}
    exec("\n".join(sources), known, methods)
    if "__init__" in methods:
        types = {f.name: f.type for f in fields(cls) if f.init}
        methods["__init__"].__annotations__ = types | {"return": None}
    return list(methods.values())


def _init(cls: type, names: dict[str, Any]) -> list[str]:
    """The lines of `__init__`; what they name is put into `names`."""
    lines = []
    for f in fields(cls):
        default, given = f"__of_{f.name}", f.name
        if f.default_factory is not MISSING:
            names[default] = f.default_factory
            given = f"{default}() if {f.name} is __MADE else {f.name}" if f.init else f"{default}()"
        elif f.default is not MISSING:
            names[default] = f.default
        if f.init or f.default_factory is not MISSING:
            lines.append(f'  __set(self, "{f.name}", {given})')
    if hasattr(cls, "__post_init__"):
        lines.append("  self.__post_init__()")
    in_order = [_parameter(f) for f in fields(cls) if f.init and not f.kw_only]
    by_name = [_parameter(f) for f in fields(cls) if f.init and f.kw_only]
    parameters = ["self", *in_order, *(["*", *by_name] if by_name else [])]
    return [f"def __init__({', '.join(parameters)}):", *(lines or ["  pass"])]


def _parameter(f: Field[Any]) -> str:
    if f.default_factory is not MISSING:
        return f"{f.name}=__MADE"
    return f.name if f.default is MISSING else f"{f.name}=__of_{f.name}"


def _tuple(of: str, names: list[str]) -> str:
    return f"({''.join(f'{of}.{name}, ' for name in names)})"


def _shared(cls: type[Any]) -> tuple[Callable[..., None], Callable[..., None]]:
    """What refuses to set and to delete. Only classes that inherit without being dataclasses have more."""
    own = frozenset(f.name for f in fields(cls))

    def __setattr__(self: object, name: str, value: object) -> None:
        if type(self) is cls or name in own:
            raise FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:
        if type(self) is cls or name in own:
            raise FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    return __setattr__, __delattr__


@recursive_repr()
def _shown(self: Any) -> str:
    shown = (f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass
