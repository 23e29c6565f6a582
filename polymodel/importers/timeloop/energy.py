"""Energies and areas of Accelergy's reference tables (ERT, ART): picojoules and square micrometres."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from polymodel.importers.timeloop.parts import TimeloopLevel
from polymodel.importers.timeloop.reading import Fields, TimeloopReading, exact, name_and_count
from polymodel.spec.faults import YamlNode

_READS = ("read", "access")
_WRITES = ("write", "update", "access")
_COMPUTES = ("compute", "mac_random", "mac", "multiply", "mult_random", "add", "access")
_LEAKS = ("leak", "idle")


@dataclass(frozen=True)
class ComponentPrices:
    """Energies of one component in pJ per action (leakage: per cycle) and its area in um^2; None where the
    tables have no value."""

    read: Fraction | None = None
    write: Fraction | None = None
    compute: Fraction | None = None
    leak: Fraction | None = None
    area: Fraction | None = None


@dataclass(frozen=True)
class Energies:
    """Energies and areas by component."""

    prices: Mapping[str, ComponentPrices] = field(default_factory=dict)

    def of(self, name: str) -> ComponentPrices:
        return self.prices.get(name, ComponentPrices())


def energies_of(
    reading: TimeloopReading, ert: YamlNode | None, art: YamlNode | None, parts: tuple[TimeloopLevel, ...]
) -> Energies:
    """Return the energies and areas of these parts; table entries for other names are reported as left
    out."""
    known = {p.name: p for p in parts}
    actions: dict[str, dict[str, Fraction]] = {}
    areas: dict[str, Fraction] = {}
    for table, name in _tables(reading, ert, "ERT"):
        if name not in known:
            reading.leave(
                table.node, f"energies of {name} go to no component", "name it as in the architecture"
            )
            reading.whole(table.node)
            continue
        if name in actions:
            reading.leave(table.node, f"energies of {name} are there already", "keep one table", table.path)
            reading.whole(table.node)
            continue
        actions[name] = _actions(reading, table)
    for table, name in _tables(reading, art, "ART"):
        area = table.amount("area")
        if name not in known:
            reading.leave(
                table.node, f"the area of {name} goes to no component", "name it as in the architecture"
            )
        elif name in areas:
            reading.leave(table.node, f"the area of {name} is there already", "keep one table", table.path)
        elif area is not None:
            areas[name] = exact(area)
    result = {}
    for name in known:
        costs = actions.get(name, {})
        read, write = _first(costs, _READS), _first(costs, _WRITES)
        result[name] = ComponentPrices(
            read, write, _first(costs, _COMPUTES), _first(costs, _LEAKS), areas.get(name)
        )
    return Energies(result)


def _tables(reading: TimeloopReading, node: YamlNode | None, title: str) -> list[tuple[Fields, str]]:
    if node is None:
        return []
    fields = Fields(reading, node, title)
    fields.ignore("version")
    result = []
    for inner in fields.each("tables", "energy_reference_table", "area_reference_table"):
        inner.ignore("primitive_estimation", "primitive_estimations", "estimator", "estimation")
        if inner.need("name", example="name: system.PE.RF[1..16]") is not None:
            whole, _ = name_and_count(inner.text("name"))
            # A dotted name holds ranges of its own: system.PE[0..15].RF.
            result.append((inner, whole.replace("..", " ").rsplit(".", 1)[-1].split("[")[0].strip()))
    return result


def _actions(reading: TimeloopReading, table: Fields) -> dict[str, Fraction]:
    result: dict[str, Fraction] = {}
    for fields in table.each("actions"):
        name, energy = fields.text("name").lower(), fields.number("energy")
        arguments = fields.take("arguments")
        if arguments is not None:
            reading.whole(arguments)
        if energy is None and "energy" in fields:
            continue  # already reported
        if energy is None or not 0 <= energy < float("inf"):
            what = f"{name or 'an action'} has no energy that can be read"
            remedy = "write its energy in pJ, e.g. `energy: 1.5`"
            reading.fault(fields.node, what, remedy, fields.path, code="missing-energy")
        elif name in result and result[name] != exact(energy):
            what = f"{name} has several energies, by arguments: the largest is taken"
            reading.note(fields.node, what, "", fields.path)
            result[name] = max(result[name], exact(energy))
        else:
            result[name] = exact(energy)
    writes = [n for n in _WRITES if n in result]
    if len({result[n] for n in writes}) > 1 and writes[0] == "write":
        what = f"{writes[1]} costs other than write: its price is not used, all that is written costs a write"
        remedy = "set the energy of write by hand"
        reading.leave(table.node, what, remedy, table.path, changes="energy")
    for name in result:
        if name not in {*_READS, *_WRITES, *_COMPUTES, *_LEAKS}:
            what = f"the energy of {name} has no counterpart"
            reading.leave(table.node, what, "name it read, write, compute or leak", table.path)
    return result


def _first(costs: Mapping[str, Fraction], names: tuple[str, ...]) -> Fraction | None:
    return next((costs[n] for n in names if n in costs), None)
