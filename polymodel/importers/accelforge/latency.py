"""Convert `total_latency` of AccelForge's components: a sum means shared ports, a maximum separate ones.

It may be written over all actions, `sum(a.n_calls / a.throughput for a in actions)`, or in terms of the count
of each, `(read_actions + write_actions) * width / 512e9`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import TYPE_CHECKING

from polymodel.importers.accelforge.values import NoValue
from polymodel.importers.tables import Reading
from polymodel.spec.faults import TextFault, YamlNode

if TYPE_CHECKING:
    from polymodel.importers.accelforge.components import WrittenComponent

LARGEST = 10**30
_PER_ACTION = re.compile(
    r"\s*(?P<how>sum|max)\(\s*(?P<v>\w+)\.n_calls(?P<own>\s*/\s*(?P=v)\.throughput)?"
    r"\s+for\s+(?P=v)\s+in\s+actions\s*\)"
    r"(?P<rest>(\s*/\s*[\w.]+)*)\s*\Z"
)
_COUNTED = re.compile(r"\b(\w+)_actions\b")
_REMEDY = "give each action its `throughput:`"
_CLOSE = 1e-9


def plain_number(value: float) -> int | float:
    """Return whole numbers without a decimal point."""
    return int(value) if value < LARGEST and value == int(value) else value


def total_latency(
    reading: Reading,
    part: WrittenComponent,
    node: YamlNode,
    fields: dict[str, object],
    actions: dict[str, dict[str, object]],
) -> None:
    """Set the throughputs of the actions and the ports of the component according to the text."""
    text = str(node.scalar)
    match = _PER_ACTION.match(text)
    rates = [r.strip() for r in match["rest"].split("/")[1:]] if match is not None else []
    try:
        if match is None:
            how, seconds = _probed(part, text)
        elif bool(match["own"]) == bool(rates):
            how, seconds = "", {}
        else:
            how, seconds = match["how"], _alike(part, rates)
    except NoValue as lacking:
        part.leave(reading, node, "total_latency", f"{lacking.word} has no value here", _REMEDY, "latency")
        return
    if not how:
        why = "it is not a sum or maximum over actions"
        part.leave(reading, node, "total_latency", why, _REMEDY, "latency")
        return
    if match is None and not seconds:
        seconds = dict.fromkeys(actions, Fraction(0))
    if how == "max" and part.kind in ("Memory", "Toll"):
        fields["ports"] = "separate"
    for name, each in seconds.items():
        one = actions.setdefault(name, {"name": name})
        bits = one.get("bits_per_action", 1)
        one.pop("throughput", None)
        if each > Fraction(1, LARGEST):
            one["throughput"] = plain_number(float((bits if isinstance(bits, int) else 1) / each))


def _alike(part: WrittenComponent, rates: list[str]) -> dict[str, Fraction]:
    """Return the seconds of each action, where all actions take the same time."""
    rate = Fraction(1)
    for text in rates:
        value = part.scope.number(text)
        if not 0 < value <= LARGEST:
            raise NoValue(text)
        rate *= Fraction(str(value))
    names = ("compute",) if part.kind == "Compute" else ("read", "write")
    return dict.fromkeys(names, 1 / rate) if rates else {}


def _probed(part: WrittenComponent, text: str) -> tuple[str, dict[str, Fraction]]:
    """Return (sum or max, seconds of each action) for a text in counts of actions; ("", {}) if it has neither
    form."""
    names = sorted({m[1] for m in _COUNTED.finditer(text)})
    if not names:
        # A constant 0 does not depend on the actions, and another constant does not grow with them.
        return ("sum", {}) if part.scope.number(text) == 0 else ("", {})

    def at(counts: Mapping[str, int]) -> float:
        found = {f"{n}_actions": counts.get(n, 0) for n in names}
        try:
            return float(part.scope.inside(found).number(text))
        except TextFault as fault:
            raise NoValue(fault.message) from fault

    each = {n: at({n: 1}) for n in names}
    if any(not 0 <= t <= LARGEST for t in each.values()):
        return "", {}
    draws = [{n: (7 * i + 3 * j) % 11 + 1 for j, n in enumerate(names)} for i in range(1, 6)]
    for how, together in (("sum", sum), ("max", max)):
        if all(_near(at(d), together(d[n] * each[n] for n in names)) for d in draws):
            return how, {n: Fraction(str(t)) for n, t in each.items()}
    return "", {}


def _near(one: float, other: float) -> bool:
    return abs(one - other) <= _CLOSE * max(abs(one), abs(other))
