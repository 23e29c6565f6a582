"""Settle what Timeloop's constraints say of products and of all dimensions: `maximize_dims`,
`default_max_factor` and a least utilisation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from math import prod

from polymodel.importers.expressions import evaluate
from polymodel.importers.timeloop.emit import axes_of
from polymodel.importers.timeloop.largest import largest_factors
from polymodel.importers.timeloop.parts import TimeloopLevel
from polymodel.importers.timeloop.problem import EinsumShape
from polymodel.importers.timeloop.reading import LARGEST, Fields, TimeloopReading
from polymodel.spec.faults import TextFault, YamlNode, suggestion

REMEDY = "say it in `explore:` (docs/howto/explore.md)"
_UNEVEN = "write the factors, and `spatial_sizes: all`, in `explore:` (docs/explore.md)"
_MAXIMIZE = "maximize_dims"
_CAPACITY = "maximize_dims_capacity"


@dataclass(frozen=True)
class IterationBound:
    """A bound on the number of iterations over a variable: `=`, `<=` or `>=` a number."""

    variable: str
    relation: str
    number: int
    node: YamlNode

    @property
    def one(self) -> bool:
        """Return whether the bound leaves one iteration."""
        return self.relation != ">=" and self.number == 1

    @property
    def written(self) -> int | str:
        return self.number if self.relation == "=" else f"{self.relation} {self.number}"


@dataclass
class AskedLoops:
    """A constraint on the loops of a part as it is read. `bounds`: by variable, each of several values.

    `shared`: variables of which several choices have the largest product, and `busy`, that product with the
    factors that are fixed: the instances in use.
    """

    part: TimeloopLevel
    spatial: bool
    fields: Fields
    bounds: dict[str, IterationBound]
    shared: tuple[str, ...] = ()
    busy: int = 0


def settle_maxima(
    reading: TimeloopReading, shape: EinsumShape, used: Sequence[str], every: Sequence[AskedLoops]
) -> None:
    """Add the bounds that `maximize_dims` and `default_max_factor` imply to those of `every` constraint.

    Dimensions are maximised as Timeloop does: those over instances first, from the innermost part out, then
    those of temporal loops; each within what all factors that are fixed leave of its size.
    """
    settling = _Settling(reading, shape, every)
    for spatial in (True, False):
        for asked in reversed(every):
            if asked.spatial == spatial:
                settling.maximise(asked)
    for asked in every:
        most = asked.fields.count("default_max_factor")
        bound = settling.level(asked)
        for v in used:
            if most is not None and v not in bound and v not in asked.shared and most < shape.sizes[v]:
                asked.bounds[v] = IterationBound(v, "<=", most, asked.fields.node)


@dataclass
class _Settling:
    reading: TimeloopReading
    shape: EinsumShape
    every: Sequence[AskedLoops]
    left: dict[str, int] = field(init=False)  # of each size, what fixed factors leave
    unsettled: set[str] = field(default_factory=set)  # variables of which several factors are possible

    def __post_init__(self) -> None:
        self.left = dict(self.shape.sizes)
        levels = {(a.part.name, a.spatial): self.level(a) for a in self.every}
        for bounds in levels.values():
            for f in bounds.values():
                if f.relation == "=":
                    self._fix(f.variable, f.number)

    def _fix(self, variable: str, number: int) -> None:
        self.left[variable] = -(-self.left[variable] // number)

    def level(self, asked: AskedLoops) -> dict[str, IterationBound]:
        """Return the bounds of all constraints on the same loops."""
        same = [a for a in self.every if (a.part.name, a.spatial) == (asked.part.name, asked.spatial)]
        return {v: f for a in same for v, f in a.bounds.items()}

    def maximise(self, asked: AskedLoops) -> None:
        node = asked.fields.take(_MAXIMIZE)
        if node is None:
            return
        groups = list(self._groups(node, asked.fields))
        capacity = self._capacity(asked, node) if groups else None
        for group in groups if capacity is not None else ():
            bounds = self.level(asked)
            taken = [v for v in group if v in bounds]
            if taken or self.unsettled & set(group) or asked.shared:
                why = (
                    f"{taken[0]} is bounded there already"
                    if taken
                    else "several factors of others are possible"
                )
                self._leave(node, group, why)
                continue
            fixed = prod(f.number for f in bounds.values() if f.relation != "<=")
            self._group(asked, node, group, capacity // fixed if capacity else 0)

    def _group(self, asked: AskedLoops, node: YamlNode, group: Sequence[str], capacity: int) -> None:
        """Fix the factors of one list: the largest that fit, alone or as a product."""
        found = largest_factors({v: self.left[v] for v in group}, max(capacity, 1))
        if found.uneven:
            v = found.uneven
            why = f"the {self.left[v]} values of {v} are parted unevenly, which keeps more in use"
            self._leave(node, group, why, _UNEVEN)
        elif found.factors is not None:
            for v, number in found.factors.items():
                if self.shape.sizes[v] > 1:
                    asked.bounds[v] = IterationBound(v, "=", number, node)
                self._fix(v, number)
        elif self._one_product(asked, found.product, capacity):
            fixed = prod(f.number for f in self.level(asked).values())
            asked.shared, asked.busy = tuple(group), found.product * fixed
            self.unsettled.update(group)
        else:
            why = f"several factors have the largest product, {found.product}"
            self._leave(node, group, why, "write one choice as `factors`")
            self.unsettled.update(group)

    def _one_product(self, asked: AskedLoops, product: int, capacity: int) -> bool:
        """Return whether a number of instances in use says that factors have this product: there is one
        dimension, the factors of others are fixed, and what is left is too little for another loop."""
        one = asked.spatial and len(axes_of(asked.part, ())) == 1 and _CAPACITY not in asked.fields
        fixed = all(f.relation == "=" for f in self.level(asked).values())
        return one and fixed and capacity // product == 1

    def _groups(self, node: YamlNode, fields: Fields) -> Iterator[tuple[str, ...]]:
        """Yield the lists of variables; a list of names is one of them."""
        path = fields.below(_MAXIMIZE)
        items = node.elements if node.elements is not None else (node,)
        nested = [i for i in items if i.elements is not None]
        if nested and len(nested) < len(items):
            what = "names stand beside lists of names"
            self.reading.fault(node, what, "write e.g. [[R, S], [C, M]]", path, code="wrong-type")
            return
        for names in [i.elements or () for i in nested] or [items]:
            group: dict[str, None] = {}
            for name in names:
                if name.kind != "scalar" or name.scalar is None:
                    continue
                for word in re.split(r"[\s,]+", str(name.scalar).strip()):
                    if word in self.shape.dims:
                        group[self.shape.dims[word]] = None
                    else:
                        remedy = suggestion(word, self.shape.dims, "dimensions")
                        message = f"there is no dimension {word}"
                        self.reading.fault(name, message, remedy, path, code="unknown-name")
            if group:
                yield tuple(group)

    def _capacity(self, asked: AskedLoops, node: YamlNode) -> int | None:
        """Return how many iterations there may be together; None where the file does not say it."""
        given = asked.fields.take(_CAPACITY)
        if given is None or given.scalar is None:
            if asked.spatial:
                return asked.part.instances
            what = f"`{_MAXIMIZE}` of temporal loops does not bind the search without `{_CAPACITY}`"
            self.reading.leave(node, what, f"add `{_CAPACITY}`, the number of iterations", asked.fields.path)
            return None
        text = re.sub(r"(?<![\w.])attributes\.", f"{asked.part.name}.attributes.", str(given.scalar))
        try:
            value = evaluate(self.reading.inlined(text), asked.fields.scope)
        except TextFault:
            value = 0
        if not 1 <= value <= LARGEST:
            what = f"`{_MAXIMIZE}` does not bind the search: {given.scalar} is no number of iterations here"
            self.reading.leave(given, what, REMEDY, asked.fields.path)
            return None
        return int(value)

    def _leave(self, node: YamlNode, group: Sequence[str], why: str, remedy: str = REMEDY) -> None:
        what = f"`{_MAXIMIZE}` of {', '.join(group)} does not bind the search: {why}"
        self.reading.leave(node, what, remedy)


def write_shares(
    reading: TimeloopReading,
    explore: dict[str, object],
    parts: Sequence[TimeloopLevel],
    shape: EinsumShape,
    every: Sequence[AskedLoops],
) -> None:
    """Add least shares of instances in use to `explore`: of products that `maximize_dims` asks for, and of
    all instances together."""
    least: dict[tuple[str, str], float] = {}
    for asked in every:
        if asked.busy:
            (axis,) = axes_of(asked.part, ())
            least[asked.part.name, axis.name] = _rounded(asked.busy, axis.fanout)
    every_axis = [(p.name, a.name) for p in parts for a in axes_of(p, ())]
    for path, node, share in _least_uses(reading, parts):
        if len(every_axis) == 1 or share == 1:
            least |= {a: max(share, least.get(a, 0)) for a in every_axis}
        elif every_axis and any(s.density is not None for s in shape.spaces):
            what = "a least utilisation of several fanouts together bounds no search on sparse data"
            reading.leave(node, what, "write `min_utilisation` of each in `explore:` (docs/explore.md)", path)
        elif every_axis:
            explore["limits"] = [f"utilisation >= {share}"]
    shares: dict[str, dict[str, float]] = {}
    for (part, dimension), share in least.items():
        shares.setdefault(part, {})[dimension] = share
    if shares:
        explore["min_utilisation"] = shares


def _rounded(busy: int, fanout: int) -> float:
    """Return the share of `busy` instances, rounded down to digits that tell it from that of one less."""
    scale = 10 ** (len(str(fanout)) + 2)
    return float(busy * scale // fanout / scale)


def _least_uses(
    reading: TimeloopReading, parts: Sequence[TimeloopLevel]
) -> Iterator[tuple[str, YamlNode, float]]:
    """Yield path, node and share of each constraint on the utilisation of all instances together."""
    innermost = [p for p in parts if p.kind == "memory"][-1:]
    for part in parts:
        for path, node in part.least:
            fields = Fields(reading, node, path)
            share = fields.number("min")
            if share is None:
                continue
            why = "it is that of all instances together, which stands at the innermost storage"
            why = "" if part in innermost else why
            why = why if 0 <= share <= 1 else f"{share} is no share from 0 to 1"
            if why:
                remedy = "write `min_utilisation` in `explore:` (docs/explore.md)"
                reading.leave(node, f"the least utilisation does not bind the search: {why}", remedy, path)
            elif share > 0:
                yield path, node, float(share)
