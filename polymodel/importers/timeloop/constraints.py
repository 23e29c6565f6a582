"""Convert Timeloop's constraints on loops into `explore:`: factors, orders and spatial dimensions per
level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from polymodel.importers.timeloop.emit import axes_of, windowed
from polymodel.importers.timeloop.maximum import (
    REMEDY,
    AskedLoops,
    IterationBound,
    settle_maxima,
    write_shares,
)
from polymodel.importers.timeloop.nest import listed, written_factors
from polymodel.importers.timeloop.parts import TimeloopLevel
from polymodel.importers.timeloop.problem import EinsumShape
from polymodel.importers.timeloop.reading import Fields, TimeloopReading, count_of
from polymodel.spec.faults import YamlNode, suggestion

OTHERS = "..."


def explore_of(
    reading: TimeloopReading, parts: Sequence[TimeloopLevel], shape: EinsumShape
) -> dict[str, object]:
    """Return the section `explore:` for the constraints on a search; empty if there are none."""
    reader = _ConstraintReader(reading, shape)
    memories: dict[str, dict[str, object]] = {}
    fanouts: dict[str, dict[str, dict[str, object]]] = {}
    every = _asked(reader, parts)
    settle_maxima(reading, shape, reader.used, every)
    for asked in every:
        part = asked.part
        if asked.spatial and part.instances > 1:
            _join(fanouts.setdefault(part.name, {}), reader.spatial(asked))
        elif asked.spatial or part.kind == "container":
            reader.alone(asked)
        elif part.kind == "memory":
            reader.temporal(asked, memories.setdefault(part.name, {}))
    result: dict[str, object] = {}
    finished = {name: reader.finished(rule) for name, rule in memories.items()}
    if windowed(shape.spaces):
        outermost = next((p for p in parts if p.kind == "memory"), None)
        for k, part in enumerate(parts):
            inside = any(p.instances > 1 for p in parts[: k + 1])
            if part.kind == "memory" and part is not outermost and reader.slides(part, inside):
                finished.setdefault(part.name, {})["reuse"] = ["refill", "slide"]
    if any(finished.values()):
        result["memories"] = {name: rule for name, rule in finished.items() if rule}
    if any(rule for dims in fanouts.values() for rule in dims.values()):
        kept = {name: {d: rule for d, rule in dims.items() if rule} for name, dims in fanouts.items()}
        result["fanouts"] = {name: dims for name, dims in kept.items() if dims}
    write_shares(reading, result, parts, shape, every)
    return result


def _asked(reader: _ConstraintReader, parts: Sequence[TimeloopLevel]) -> list[AskedLoops]:
    """Return the constraints on loops of all parts, outermost first, with the bounds that they write."""
    result: list[AskedLoops] = []
    for part in parts:
        for asked in part.asked:
            if asked.spatial or part.kind != "compute":
                fields = Fields(reader.reading, asked.node, asked.path)
                bounds = {f.variable: f for f in reader.factors(fields)}
                result.append(AskedLoops(part, asked.spatial, fields, bounds))
    return result


def _join(rules: dict[str, dict[str, object]], more: dict[str, dict[str, object]]) -> None:
    """Add the rules of another constraint on the same fanout: a loop must obey both."""
    for axis, rule in more.items():
        here = rules.setdefault(axis, {})
        for key, value in rule.items():
            before = here.get(key)
            if isinstance(before, list) and isinstance(value, list):
                here[key] = [v for v in before if v in value]
            elif isinstance(before, dict) and isinstance(value, dict):
                here[key] = value | before
            else:
                here[key] = value


@dataclass
class _ConstraintReader:
    """Reads constraints in terms of one problem."""

    reading: TimeloopReading
    shape: EinsumShape
    used: list[str] = field(init=False)  # variables of several values that some tensor has

    def __post_init__(self) -> None:
        every = {v for s in self.shape.spaces for v in s.variables}
        self.used = [v for v, n in self.shape.sizes.items() if n > 1 and v in every]

    def slides(self, part: TimeloopLevel, inside: bool) -> bool:
        """Return whether a memory may hold a tensor whose tiles overlap, or, `inside` a fanout, a tensor that
        is read and stays during loops above the instances."""
        bypassed = part.held.bypass - part.held.keep
        return part.entries != 0 and any(
            (s.variables - s.alone or (inside and not s.output)) and s.name not in bypassed
            for s in self.shape.spaces
        )

    def alone(self, asked: AskedLoops) -> None:
        """Read constraints where there are no loops: every factor must allow one iteration."""
        listed(self.reading, asked.fields, self.shape)
        asked.fields.ignore("split")
        for factor in asked.bounds.values():
            if not factor.one and factor.relation != "<=":
                self.leave(factor, "there are no loops here")

    def temporal(self, asked: AskedLoops, rule: dict[str, object]) -> None:
        """Add factors and order of the loops of a memory to those that are already in `rule`."""
        factors = dict(rule.get("factors", {}))  # type: ignore[call-overload]  # as it was written below
        for factor in asked.bounds.values():
            if factors.setdefault(factor.variable, factor.written) != factor.written:
                self.leave(factor, "another constraint bounds it")
        if factors:
            rule["factors"] = factors
        order = listed(self.reading, asked.fields, self.shape)
        if order:
            rule["order"] = order

    def finished(self, rule: dict[str, object]) -> dict[str, object]:
        """Return the rule of a memory, with its order reduced to variables that have loops, outermost
        first."""
        factors, order = rule.get("factors", {}), rule.pop("order", [])
        assert isinstance(factors, dict)
        assert isinstance(order, list)
        looped = [v for v in self.used if factors.get(v) not in (1, "<= 1")]
        sequence = [v for v in reversed(order) if v in looped]
        unsaid = [v for v in looped if v not in sequence]
        if sequence and (unsaid or len(sequence) > 1):
            rule["order"] = [OTHERS, *sequence] if unsaid else sequence
        return rule

    def spatial(self, asked: AskedLoops) -> dict[str, dict[str, object]]:
        """Return, per fanout dimension, which variables may be spread over it, and how far."""
        axes = [a.name for a in axes_of(asked.part, ())]
        allowed = self._allowed(asked.fields, asked.part, axes)
        if asked.busy:
            self._share(asked, allowed[axes[0]])
        rules: dict[str, dict[str, object]] = {a: {} for a in axes}
        for axis in axes:
            if allowed[axis] != self.used:
                rules[axis]["variables"] = allowed[axis]
        for factor in asked.bounds.values():
            mine = [a for a in axes if factor.variable in allowed[a]]
            if not mine and factor.relation != "<=" and not factor.one:
                self.leave(factor, "no dimension of the fanout may be spread over by it")
            elif len(mine) > 1 and not factor.one:
                self.leave(factor, f"it may go to {' and to '.join(mine)}, and bounds both together")
            for axis in mine if len(mine) == 1 or factor.one else ():
                factors = rules[axis].setdefault("factors", {})
                assert isinstance(factors, dict)
                factors[factor.variable] = factor.written
        return rules

    def _share(self, asked: AskedLoops, allowed: list[str]) -> None:
        """Take out of `allowed` what may not be spread where some variables have the largest product."""
        mine = {*asked.shared, *(v for v, f in asked.bounds.items() if not f.one)}
        if set(asked.shared) <= {*allowed, *(v for v, n in self.shape.sizes.items() if n == 1)}:
            allowed[:] = [v for v in allowed if v in mine]
            return
        asked.busy = 0
        what = f"`maximize_dims` of {', '.join(asked.shared)} does not bind the search: not all may be spread"
        self.reading.leave(asked.fields.node, what, REMEDY)

    def _allowed(self, fields: Fields, part: TimeloopLevel, axes: Sequence[str]) -> dict[str, list[str]]:
        """Return the variables that may run along each axis: of a permutation, innermost first, those before
        the split run along X, the others along Y."""
        order = listed(self.reading, fields, self.shape)
        split = fields.take("split")
        given = split is not None and split.scalar is not None
        at = count_of(self.reading, split, {}, f"{fields.path}.split", least=0) if given and split else None
        if at is None or not part.shaped:
            return {a: list(self.used) for a in axes}
        rest = [v for v in self.shape.dims.values() if v not in order]
        first, second = order[:at], order[at:]
        if at >= len(order) + len(rest):
            first, second = [*first, *rest], second
        elif at > len(order):  # which of the rest comes first is free
            first, second = [*first, *rest], [*second, *rest]
        else:
            second = [*second, *rest]
        along = {"X": first, "Y": second}
        return {a: [v for v in self.used if v in along[a]] for a in axes}

    def factors(self, fields: Fields) -> Iterator[IterationBound]:
        """Yield the bounds on variables of several values, including those implied by keys such as
        `factors_only`."""
        found = {f.variable: f for f in self._bounds_of(fields, "factors")}
        only = list(self._bounds_of(fields, "factors_only"))
        single: dict[str, YamlNode] = (
            dict.fromkeys(self.used, fields.node) if "factors_only" in fields else {}
        )
        found |= {f.variable: f for f in only}
        tensors = {s.theirs: s.variables for s in self.shape.spaces}
        for word, node in self._spaces(fields, "no_iteration_over_dataspaces"):
            single |= dict.fromkeys(tensors[word], node)
        for word, node in fields.words("no_iteration_over_dimensions") or ():
            if word in self.shape.dims:
                single[self.shape.dims[word]] = node
            else:
                remedy = suggestion(word, self.shape.dims, "dimensions")
                message = f"there is no dimension {word}"
                self.reading.fault(node, message, remedy, fields.path, code="unknown-name")
        over = list(self._spaces(fields, "must_iterate_over_dataspaces"))
        if over:
            within = frozenset().union(*(tensors[word] for word, _ in over))
            single |= {v: over[0][1] for v in self.used if v not in within}
        for v, node in single.items():
            found.setdefault(v, IterationBound(v, "=", 1, node))
        yield from (f for v, f in found.items() if v in self.used)

    def _spaces(self, fields: Fields, key: str) -> Iterator[tuple[str, YamlNode]]:
        tensors = self.shape.tensors
        for word, node in fields.words(key) or ():
            if word == "*":
                yield from ((t, node) for t in tensors)
            elif word in tensors:
                yield word, node
            else:
                remedy = suggestion(word, tensors, "data spaces")
                message = f"there is no data space {word}"
                self.reading.fault(node, message, remedy, fields.path, code="unknown-name")

    def _bounds_of(self, fields: Fields, key: str) -> Iterator[IterationBound]:
        node = fields.take(key)
        if node is None:
            return
        path = f"{fields.path}.{key}"
        if node.entries is not None:
            for entry in node.entries:
                value = self.reading.take(entry)
                text = f"{entry.key}={value.scalar}" if value.kind == "scalar" else entry.key
                yield from self._text(value, text, path)
            return
        for item in node.elements if node.elements is not None else (node,):
            yield from self._text(item, str(item.scalar or ""), path)

    def _text(self, node: YamlNode, text: str, path: str) -> Iterator[IterationBound]:
        example = "write e.g. M=16, M<=16 or M>=2"
        for factor in written_factors(self.reading, node, text, path, example):
            if factor.last != factor.bound:
                what = f"{factor.text} is imperfect, so that it bounds no search here"
                self.reading.leave(node, what, REMEDY, path)
            else:
                yield from self._factor(node, factor.name, factor.sign, factor.bound, path)

    def _factor(
        self, node: YamlNode, name: str, sign: str, bound: int, path: str
    ) -> Iterator[IterationBound]:
        """Yield the bound; 0, or any number beyond the dimension's size, denotes the whole dimension."""
        dims = self.shape.dims
        if name not in dims:
            remedy = suggestion(name, dims, "dimensions")
            self.reading.fault(node, f"there is no dimension {name}", remedy, path, code="unknown-name")
            return
        v = dims[name]
        size = self.shape.sizes.get(v, 1)
        number = bound + (sign == ">") - (sign == "<")
        if sign == "=":
            number = min(number or size, size)
        relation = {"<": "<=", ">": ">="}.get(sign, sign)
        yield IterationBound(v, relation, max(number, 1), node)

    def leave(self, factor: IterationBound, why: str) -> None:
        what = f"{factor.variable} {factor.relation} {factor.number} does not bind the search: {why}"
        self.reading.leave(factor.node, what, REMEDY)
