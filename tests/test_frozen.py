"""Frozen dataclasses of our own making are those of the standard library, in all that can be seen of them."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
import sys
from dataclasses import FrozenInstanceError, field, replace
from functools import cached_property
from typing import ClassVar

import pytest

from polymodel.frozen import dataclass as ours

THEIRS = dataclasses.dataclass


def _classes(made: object) -> dict[str, type]:
    """The same classes, made by either."""

    @made(frozen=True)
    class Plain:
        """One of each kind of field."""

        a: int
        b: tuple[int, ...] = (1, 2)
        kind: ClassVar[str] = "plain"
        c: list[int] = field(default_factory=list, compare=False)
        d: int = field(default=3, repr=False)
        e: int = field(default=4, init=False)
        f: dict[str, int] = field(default_factory=dict, init=False, hash=False)
        g: str = field(default="g", kw_only=True)

        @cached_property
        def doubled(self) -> int:
            return 2 * self.a

    @made(frozen=True, eq=False)
    class Identical:
        """Compared by identity."""

        a: int

    @made(frozen=True, repr=False)
    class Checked:
        """With methods of its own."""

        a: int

        def __post_init__(self) -> None:
            if self.a < 0:
                raise ValueError("below 0")

        def __repr__(self) -> str:
            return f"<{self.a}>"

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Checked)

        def __hash__(self) -> int:
            return 7

    @made(frozen=True)
    class Empty:
        """Without fields."""

    @made(frozen=True)
    class Below(Plain):
        """Inherits."""

        a: int = 5

    class Free(Plain):
        """No dataclass itself, so that it may have more."""

    return {c.__name__: c for c in (Plain, Identical, Checked, Empty, Below, Free)}


OURS, STANDARD = _classes(ours), _classes(THEIRS)
Plain = OURS["Plain"]
Plain.__qualname__ = "Plain"  # where pickle finds it


@pytest.mark.parametrize("name", OURS)
def test_fields_signatures_and_patterns_are_the_same(name: str) -> None:
    ours, theirs = OURS[name], STANDARD[name]
    shown = [[(f.name, f.type, f.init, f.repr, f.compare, f.kw_only) for f in dataclasses.fields(c)]
             for c in (ours, theirs)]  # fmt: skip
    assert shown[0] == shown[1]
    assert str(inspect.signature(ours)) == str(inspect.signature(theirs))
    assert ours.__match_args__ == theirs.__match_args__
    assert ours.__doc__ == theirs.__doc__


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("Plain", {"a": 1}),
        ("Plain", {"a": 1, "b": (3,), "c": [5], "d": 6, "g": "h"}),
        ("Identical", {"a": 1}),
        ("Checked", {"a": 1}),
        ("Empty", {}),
        ("Below", {}),
        ("Below", {"a": 1, "g": "h"}),
        ("Free", {"a": 1}),
    ],
)
def test_instances_are_the_same(name: str, values: dict[str, object]) -> None:
    ours, theirs = OURS[name](**values), STANDARD[name](**values)
    assert vars(ours) == vars(theirs)
    assert repr(ours).removeprefix("_classes.<locals>.") == repr(theirs).removeprefix("_classes.<locals>.")
    for of in (ours, theirs):
        again = type(of)(**values)
        assert (of == again) is (name != "Identical")
        assert (hash(of) == hash(again)) is (name != "Identical")
        assert of != 1
    if name != "Identical":
        assert hash(ours) == hash(theirs)
    assert vars(copy.deepcopy(ours)) == vars(theirs)


@pytest.mark.parametrize("classes", [OURS, STANDARD])
def test_what_differs_is_unequal_and_replaced(classes: dict[str, type]) -> None:
    one = classes["Plain"](1)
    assert one != classes["Plain"](2)
    assert one == classes["Plain"](1, c=[9])
    assert replace(one, a=2, g="h") == classes["Plain"](2, g="h")
    assert one.doubled == 2


@pytest.mark.parametrize("classes", [OURS, STANDARD])
def test_frozen_is_frozen(classes: dict[str, type]) -> None:
    for of in (classes["Plain"](1), classes["Below"](1)):
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'a'"):
            of.a = 2
        with pytest.raises(FrozenInstanceError, match="cannot assign to field 'new'"):
            of.new = 2
        with pytest.raises(FrozenInstanceError, match="cannot delete field 'a'"):
            del of.a
    free = classes["Free"](1)
    free.new = 2
    assert free.new == 2
    with pytest.raises(FrozenInstanceError):
        free.a = 2


@pytest.mark.parametrize("classes", [OURS, STANDARD])
def test_wrong_arguments_are_told_alike(classes: dict[str, type]) -> None:
    with pytest.raises(TypeError, match=r"Plain.__init__\(\) missing 1 required positional argument: 'a'"):
        classes["Plain"]()
    with pytest.raises(TypeError, match=r"Identical.__init__\(\) got an unexpected keyword argument 'z'"):
        classes["Identical"](a=1, z=2)
    with pytest.raises(ValueError, match="below 0"):
        classes["Checked"](-1)


def test_pickled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "Plain", Plain)
    found = pickle.loads(pickle.dumps(Plain(1, c=[2])))
    assert found == Plain(1)
    assert found.c == [2]


def test_other_options_are_left_to_the_standard_library() -> None:
    @ours
    class Mutable:
        a: int = 0

    @ours(frozen=True, order=True)
    class Ordered:
        a: int

    found = Mutable()
    found.a = 2
    assert found == Mutable(2)
    assert Ordered(1) < Ordered(2)
