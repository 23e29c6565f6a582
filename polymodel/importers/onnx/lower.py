"""Convert slots to rank variables: there is a rank per part of an axis, unless an index covers the whole
axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from polymodel.arithmetic import Affine
from polymodel.importers.onnx.axes import Axes
from polymodel.importers.onnx.build import Builder, BuiltEinsum
from polymodel.importers.onnx.views import substituted


@dataclass(frozen=True)
class AccessIndices:
    """One access, with an axis and an index for each rank."""

    tensor: str
    ranks: tuple[tuple[int, Affine], ...]

    @property
    def exprs(self) -> tuple[Affine, ...]:
        return tuple(e for _, e in self.ranks)

    @property
    def variables(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(v for e in self.exprs for v in e.variables))


@dataclass(frozen=True)
class Lowered:
    """One Einsum over variables, with the fields of `Operation`."""

    name: str
    about: tuple[str, ...]
    inputs: tuple[AccessIndices, ...]
    output: AccessIndices
    map: str
    reduce: str
    populate: tuple[str, ...]
    limits: tuple[tuple[Affine, int], ...]
    copy: bool
    over: tuple[str, ...]
    scope: tuple[str, ...]

    @property
    def lines(self) -> tuple[AccessIndices, ...]:
        return (*self.inputs, self.output)


class Variables:
    """The axis of every variable."""

    def __init__(self, b: Builder) -> None:
        self.axes: Axes = b.axes
        self.axis: dict[str, int] = {}
        self._slots = b.slots.axis
        self._table: dict[str, Affine] = {}

    def size(self, variable: str) -> int:
        return self.axes.size(self.axis[variable])

    def of(self, slot: str) -> Affine:
        """Return the variables of a slot, one for each part of its axis."""
        if slot not in self._table:
            leaves = self.axes.leaves(self._slots[slot])
            weight, terms = 1, []
            for k, leaf in reversed(list(enumerate(leaves))):
                name = f"{slot}.{k}"
                self.axis[name] = leaf
                terms.append((name, weight))
                weight *= self.axes.size(leaf)
            self._table[slot] = Affine(tuple(reversed(terms)))
        return self._table[slot]

    def expanded(self, expr: Affine) -> Affine:
        return substituted(expr, {s: self.of(s) for s in expr.variables})


def lowered(b: Builder) -> tuple[list[Lowered], Variables]:
    """Return the operations over variables, with ranks on which all accesses of a tensor agree."""
    variables = Variables(b)
    whole: set[tuple[str, int]] = set()
    for operation in b.operations:
        for access in (*operation.inputs, operation.output):
            for k, (axis, expr) in enumerate(zip(b.tensors[access.tensor].axes, access.index, strict=True)):
                if digits(variables, variables.expanded(expr), b.axes.leaves(axis)) is None:
                    whole.add((access.tensor, k))
    return [_lowered(b, variables, whole, o) for o in b.operations], variables


def digits(variables: Variables, expr: Affine, leaves: Sequence[int]) -> tuple[Affine, ...] | None:
    """Return the index of each part of an axis, if the index of the whole axis is composed of them; else
    None."""
    sizes = [variables.axes.size(leaf) for leaf in leaves]
    left, constant = dict(expr.terms), expr.constant
    weight, result = 1, []
    for size in reversed(sizes):
        digit = constant // weight % size
        fitting = [v for v, c in left.items() if c == weight and variables.size(v) == size]
        if len(fitting) > 1 or (fitting and digit):
            return None
        result.append(Affine.variable(fitting[0]) if fitting else Affine((), digit))
        if fitting:
            del left[fitting[0]]
        else:
            constant -= digit * weight
        weight *= size
    return tuple(reversed(result)) if not left and not constant else None


def _lowered(b: Builder, variables: Variables, whole: set[tuple[str, int]], o: BuiltEinsum) -> Lowered:
    def line(tensor: str, index: Sequence[Affine]) -> AccessIndices:
        ranks: list[tuple[int, Affine]] = []
        for k, (axis, expr) in enumerate(zip(b.tensors[tensor].axes, index, strict=True)):
            full, leaves = variables.expanded(expr), b.axes.leaves(axis)
            parts = None if (tensor, k) in whole else digits(variables, full, leaves)
            if parts is None:
                ranks.append((leaves[0] if len(leaves) == 1 else b.axes.root(axis), full))
            else:
                ranks += zip(leaves, parts, strict=True)
        return AccessIndices(tensor, tuple(ranks))

    limits = tuple((variables.expanded(e), size) for e, size in o.limits)
    over = tuple(v for s in o.over for v in variables.of(s).variables)
    return Lowered(
        o.name, (o.about,), tuple(line(a.tensor, a.index) for a in o.inputs),
        line(o.output.tensor, o.output.index), o.map, o.reduce, o.populate, limits, o.copy, over, o.scope,
    )  # fmt: skip


def limits_of(variables: Variables, e: Lowered, names: Mapping[str, str]) -> list[str]:
    """Return ranges that do not follow from the sizes of ranks, as constraints over named variables."""
    table = {v: Affine.variable(n) for v, n in names.items()}
    said = {(str(expr), variables.axes.size(axis)) for line in e.lines for axis, expr in line.ranks}
    wanted = [(expr, size) for expr, size in e.limits if (str(expr), size) not in said]
    for v in dict.fromkeys(v for line in e.lines for v in line.variables):
        if (v, variables.size(v)) not in said:
            wanted.append((Affine.variable(v), variables.size(v)))
    return [f"0 <= {substituted(expr, table)} < {size}" for expr, size in dict.fromkeys(wanted)]
