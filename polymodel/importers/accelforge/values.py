"""Evaluate numbers and set expressions of AccelForge's files, in the scope of variables and of one Einsum.

Arithmetic, conditions, `weight.bits_per_value` and `len(All)` are evaluated by the parser of expressions.
Other forms (Python calls, lists, attributes of the whole spec) have no value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from polymodel.importers.expressions import evaluate
from polymodel.spec.faults import TextFault
from polymodel.spec.numbers import Value

_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*")
_WIDTH = re.compile(r"([A-Za-z_]\w*)\.bits_per_value\b")
_COUNT = re.compile(r"\blen\(([^()]*)\)")
_CALL = re.compile(r"\bget_array_fanout_(total|reuse_input|reuse_output|reuse_weight)\(\s*spec\s*\)")
_SIGNED = re.compile(r"\bis_hist_signed\(\s*(\w+)\s*\)")
_FANOUT = re.compile(r"\b([A-Za-z_]\w*)\.get_fanout\(\s*\)")
_SAME = re.compile(r"""\b([A-Za-z_]\w*)\s*([=!]=)\s*(?:'([^']*)'|"([^"]*)")""")
_ENDLESS = re.compile(r"""\bfloat\(\s*["']([+-]?)inf(?:inity)?["']\s*\)""")
_LIST = re.compile(r"\[([\d\s.,eE+-]*)\]\s*(?:\*\s*(\d{1,4}))?")
_CHOICE = re.compile(r"(?P<then>.+?)\s+if\s+(?P<test>.+?)\s+else\s+(?P<other>.+)\Z", re.DOTALL)
MOST_TEXT = 4000
MOST_DEPTH = 40


class NoValue(Exception):
    """The text has no value. `word`: the name or the form that has none."""

    def __init__(self, word: str) -> None:
        super().__init__(word)
        self.word = word


@dataclass(frozen=True)
class EinsumView:
    """Properties of one Einsum that expressions may use: the number of tensors in a set, and the bits of a
    value of a set."""

    count: Callable[[str], int]
    width: Callable[[str], int]


@dataclass(frozen=True)
class Scope:
    """Variables by name as they are written, the inner ones first. `fanouts`: those of compute-in-memory
    arrays, and of components as `NAME.get_fanout`."""

    variables: Mapping[str, object] = field(default_factory=dict)
    view: EinsumView | None = None
    fanouts: Mapping[str, int] = field(default_factory=dict)
    known: dict[str, Value | None] = field(default_factory=dict, compare=False)  # variables evaluated so far

    def inside(self, variables: Mapping[str, object]) -> Scope:
        """Return the scope with more variables, which override those of the same name."""
        return replace(self, variables={**self.variables, **variables}, known={})

    def number(self, given: object, open_names: tuple[str, ...] = ()) -> Value:
        """Return the value of a number or expression. Raises NoValue, and TextFault where the text is
        faulty."""
        if isinstance(given, bool):
            return int(given)
        if isinstance(given, (int, float)):
            return given
        if not isinstance(given, str) or len(given) > MOST_TEXT or len(open_names) > MOST_DEPTH:
            raise NoValue("a list" if isinstance(given, (list, tuple)) else "nothing")
        known: dict[str, Value | None] = {}

        def put(prefix: str, value: Value) -> str:
            known[name := f"{prefix}__{len(known)}"] = value
            return name

        text = _CALL.sub(lambda m: put("fanout", self._fanout(m[1])), given)
        text = _FANOUT.sub(lambda m: put("fanout", self._fanout(f"{m[1]}.get_fanout")), text)
        text = _SAME.sub(lambda m: put("same", self._same(m[1], m[2], m[3] or m[4] or "")), text)
        text = _WIDTH.sub(lambda m: put("width", self._view().width(m[1])), text)
        text = _COUNT.sub(lambda m: put("count", self._view().count(m[1])), text)
        text = _SIGNED.sub(lambda m: put("signed", self._signed(m[1])), text)
        text = _ENDLESS.sub(r"(\1inf)", re.sub(r"\bmath\.", "", text))
        for name in dict.fromkeys(_NAME.findall(text)):
            if name in known:
                continue
            if name in self.variables:
                value = self._variable(name, open_names)
            else:
                value = self._counted(name) if self.view is not None else None
            if value is not None:  # without a value it may be in the branch that a condition does not select
                known[name] = value
        try:
            return evaluate(text, known)
        except TextFault as fault:
            raise NoValue(_blamed(text, known, fault)) from fault

    def _variable(self, name: str, open_names: tuple[str, ...]) -> Value | None:
        if name in open_names:
            return None
        if name not in self.known:
            try:
                self.known[name] = self.number(self.variables[name], (*open_names, name))
            except NoValue:
                self.known[name] = None
        return self.known[name]

    def _counted(self, name: str) -> Value | None:
        try:
            return self._view().count(name)
        except (TextFault, NoValue):
            return None

    def _fanout(self, which: str) -> int:
        if which not in self.fanouts:
            raise NoValue(which if "." in which else f"get_array_fanout_{which}")
        return self.fanouts[which]

    def _same(self, name: str, operator: str, text: str) -> int:
        """Return whether a variable that is a text is equal, or not equal, to this text."""
        given = self.variables.get(name)
        if not isinstance(given, str):
            raise NoValue(name)
        return int((given.strip("'\"") == text) == (operator == "=="))

    def _signed(self, name: str) -> int:
        """Return whether a histogram over values from -n to n, with zero in the middle, has any negative
        values."""
        given = self.variables.get(name)
        if isinstance(given, str) and given in self.variables:
            given = self.variables[given]
        values = numbers_in(given)
        return int(any(values[: len(values) // 2]))

    def _view(self) -> EinsumView:
        if self.view is None:
            raise NoValue("what depends on the Einsum")
        return self.view

    def chosen(self, text: str) -> str:
        """Return a set expression with conditions replaced by the side that they choose."""
        if len(text) > MOST_TEXT:
            raise NoValue("a text of this length")
        match = _CHOICE.match(text.strip())
        if match is None:
            return text.strip()
        return self.chosen(match["then"] if self._holds(match["test"]) else match["other"])

    def _holds(self, test: str) -> bool:
        """Return whether a condition holds; a set holds if it has a tensor."""
        try:
            return bool(self.number(test))
        except NoValue:
            if self.view is None:
                raise
            try:
                return bool(self._view().count(test))
            except TextFault as fault:
                raise NoValue(test) from fault


def numbers_in(given: object) -> list[float]:
    """Return a list of numbers, given as a list or as text, `[0] * 7 + [1, 2]`. Raises NoValue."""
    if isinstance(given, (list, tuple)):
        if not all(isinstance(v, (int, float)) for v in given):
            raise NoValue("a list that is not of numbers")
        return [float(v) for v in given]
    text = str(given).strip()[:MOST_TEXT]
    if re.sub(r"[()+\s]", "", _LIST.sub("", text)):
        raise NoValue(text[:40])
    result: list[float] = []
    for match in _LIST.finditer(text):
        try:
            values = [float(v) for v in match[1].split(",") if v.strip()]
        except ValueError as error:
            raise NoValue(text[:40]) from error
        result += values * int(match[2] or 1)
    return result


def _blamed(text: str, known: Mapping[str, object], fault: TextFault) -> str:
    """Return the word because of which a text has no value."""
    words = [w for w in _NAME.findall(text) if w not in known and w not in ("if", "else", "and", "or", "not")]
    missing = [w for w in words if w in fault.message]
    return missing[0] if missing else text if len(text) < 60 else f"{text[:57]}..."
