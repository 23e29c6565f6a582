"""Build the cascade: tensors, views of them, and one operation per Einsum."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

from polymodel.arithmetic import Affine
from polymodel.errors import Diagnostic, Place
from polymodel.importers.onnx.axes import Axes
from polymodel.importers.onnx.graph import Graph, InvalidNode, Misfit, OnnxNode, Unsupported
from polymodel.importers.onnx.views import AxisSlots, IndexView, rewritten

BITS = {
    "float": 32, "double": 64, "float16": 16, "bfloat16": 16, "bool": 8, "complex64": 64, "complex128": 128,
    "int8": 8, "uint8": 8, "int16": 16, "uint16": 16, "int32": 32, "uint32": 32, "int64": 64, "uint64": 64,
    "int4": 4, "uint4": 4, "int2": 2, "uint2": 2, "float8e4m3fn": 8, "float8e4m3fnuz": 8, "float8e5m2": 8,
    "float8e5m2fnuz": 8, "float8e8m0": 8, "float4e2m1": 4,
}  # fmt: skip

Labels = Sequence[Hashable]


@dataclass(frozen=True)
class Tensor:
    """A stored tensor, with one axis per dimension of more than one element."""

    name: str
    axes: tuple[int, ...]
    dtype: str
    weight: bool
    made: bool = False


@dataclass(frozen=True)
class Access:
    tensor: str
    index: tuple[Affine, ...]


@dataclass(frozen=True)
class BuiltEinsum:
    """One Einsum over slots. `limits`: expressions that must lie in [0, size). `about`: its node. `over`: the
    slots along which the map combines all elements, as a softmax does."""

    name: str
    about: str
    inputs: tuple[Access, ...]
    output: Access
    map: str = ""
    reduce: str = ""
    populate: tuple[str, ...] = ()
    limits: tuple[tuple[Affine, int], ...] = ()
    copy: bool = False
    over: tuple[str, ...] = ()
    scope: tuple[str, ...] = ()


@dataclass(frozen=True)
class Scatter:
    """A dimension of a result whose index is a sum: `size` elements, with `step` times each labelled
    index."""

    size: int
    hint: str
    terms: tuple[tuple[Hashable, int], ...]
    constant: int = 0


@dataclass(frozen=True)
class Options:
    """How the graph is interpreted: `softmax` as `one` Einsum or a `cascade`; `padding` is `skipped` or
    `stored`."""

    softmax: str = "one"
    padding: str = "skipped"


@dataclass
class Builder:
    """The state of the conversion, extended as the nodes are converted in order."""

    graph: Graph
    source: str
    options: Options = field(default_factory=Options)
    slots: AxisSlots = field(default_factory=lambda: AxisSlots(Axes()))
    tensors: dict[str, Tensor] = field(default_factory=dict)
    views: dict[str, IndexView] = field(default_factory=dict)
    operations: list[BuiltEinsum] = field(default_factory=list)
    notes: list[Diagnostic] = field(default_factory=list)
    left_out: list[Diagnostic] = field(default_factory=list)
    stored: dict[tuple[str, tuple[int, ...], tuple[int, ...]], IndexView] = field(default_factory=dict)

    @property
    def axes(self) -> Axes:
        return self.slots.axes

    def note(self, node: OnnxNode, message: str, remedy: str = "") -> None:
        self.notes.append(Diagnostic(message, remedy, str(node), Place(self.source), code="read-otherwise"))

    def known(self, name: str) -> bool:
        """Return whether the value exists, or can become an input."""
        return name in self.views or name in self.graph.values

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a value. Raises Unsupported where it is unknown."""
        if name in self.views:
            return self.views[name].shape
        if name in self.graph.values:
            return self.graph.values[name].shape
        reason = self.graph.unknown.get(name, "its shape is unknown")
        remedy = "give the sizes of the model's inputs (--size), or export it with shapes inferred"
        raise Unsupported(f"of its input {name}: {reason}", remedy)

    def dtype(self, name: str) -> str:
        if name in self.views:
            return self.tensors[self.views[name].tensor].dtype
        return self.graph.values[name].dtype if name in self.graph.values else "float"

    def scalar(self, name: str) -> float | int | None:
        """Return the value of a constant of one element."""
        found = self.graph.constants.get(name)
        if found is None or found.size != 1 or found.dtype.kind not in "biuf":
            return None
        value = found.ravel()[0].item()
        return value if isinstance(value, (int, float)) else None

    def is_weight(self, name: str) -> bool:
        if name in self.views:
            return self.tensors[self.views[name].tensor].weight
        return name in self.graph.weights

    def value(self, name: str, hints: Sequence[str] = ()) -> IndexView:
        """Return the view of a value. One that no node has produced becomes an input; `hints` name its
        ranks."""
        if name not in self.views:
            shape = self.shape(name)
            known = self.graph.values[name]
            if any(s < 1 for s in shape):
                raise InvalidNode(
                    f"its input {name} has shape {list(shape)}: it is empty", "give sizes of at least 1"
                )
            wanted = [*hints, *("",) * len(shape)][: len(shape)]
            named = [a or h for a, h in zip(known.axes, wanted, strict=True)]
            self.views[name] = self.base(name, shape, named, known.dtype, name in self.graph.weights)
        return self.views[name]

    def base(
        self, name: str, shape: Sequence[int], hints: Sequence[str], dtype: str, weight: bool = False
    ) -> IndexView:
        """Create a stored tensor that nothing in the cascade produces. Raises Unsupported where its type has
        no bits."""
        if dtype not in BITS:
            raise Unsupported(f"{name} has elements of type {dtype}", "leave the node out")
        axes = [self.axes.new(s, h) if s > 1 else -1 for s, h in zip(shape, hints, strict=True)]
        self.tensors[name] = Tensor(name, tuple(a for a in axes if a >= 0), dtype, weight)
        return self._stored(name, axes, shape)

    def with_padding(
        self, node: OnnxNode, name: str, shape: tuple[int, ...], before: tuple[int, ...], hints: Sequence[str]
    ) -> IndexView:
        """Return a value with padding around it as a separate input. No Einsum produces zeros, so that a
        tensor filled by an earlier Einsum cannot have padding."""
        key = name, shape, before
        if key not in self.stored:
            wanted = [*hints, *("",) * len(shape)][: len(shape)]
            called = self.fresh(f"{name}_padded")
            self.stored[key] = self.base(called, shape, wanted, self.dtype(name), self.is_weight(name))
            self.note(
                node,
                "its padding is stored: reads of zeros and operations with them are counted; the padded"
                " tensor is an input of its own: no loop is shared with what makes the elements within",
                "padding='skipped' leaves zeros out",
            )
        return self.stored[key]

    def _stored(self, name: str, axes: Sequence[int], shape: Sequence[int]) -> IndexView:
        dims = tuple((self.slots.new(a),) if a >= 0 else () for a in axes)
        index = tuple(Affine.variable(s) for d in dims for s in d)
        return IndexView(name, index, dims, tuple(shape))

    def aligned(
        self, operands: Sequence[tuple[IndexView, Labels]]
    ) -> tuple[list[IndexView], dict[Hashable, tuple[str, ...]]]:
        """Return views with the same slots in dimensions with the same label; dimensions of size 1 match any.
        Raises Wrong for unequal sizes, Misfit where they are split in incompatible ways."""
        first: dict[Hashable, tuple[tuple[str, ...], int]] = {}
        for place, (view, labels) in enumerate(operands):
            for slots, size, label in zip(view.dims, view.shape, labels, strict=True):
                if size == 1:
                    continue
                known, extent = first.setdefault(label, (slots, size))
                if extent != size:
                    message = f"two dimensions that must be equal have sizes {extent} and {size}"
                    raise InvalidNode(message, "check the shapes of its inputs")
                if not self.axes.unify(self.slots.of(known), self.slots.of(slots)):
                    raise Misfit(place)
        table: dict[str, Affine] = {}
        result: dict[Hashable, tuple[str, ...]] = {}
        fine = [self.slots.refined(view) for view, _ in operands]
        for view, (_, labels) in zip(fine, operands, strict=True):
            for slots, label in zip(view.dims, labels, strict=True):
                if slots:
                    same = result.setdefault(label, slots)
                    table |= {s: Affine.variable(t) for s, t in zip(slots, same, strict=True)}
        names = {s: t.terms[0][0] for s, t in table.items()}
        return [
            rewritten(v, table, tuple(tuple(names[s] for s in d) for d in v.dims), v.shape) for v in fine
        ], result

    def einsum(
        self,
        node: OnnxNode,
        out: str,
        labels: Labels,
        operands: Sequence[tuple[IndexView, Labels]],
        *,
        map: str = "",
        reduce: str = "",
        populate: Sequence[str] = (),
        name: str = "",
        dtype: str = "",
        zeros: bool = False,
        copy: bool = False,
        scatter: Mapping[Hashable, Scatter] | None = None,
        over: Labels = (),
    ) -> IndexView:
        """Add an Einsum whose result `out` has a dimension per label (a tuple of labels: merged).

        `zeros`: an operand outside its range adds nothing. `scatter`: dimensions of the result that are not
        an index of an operand. Operands that read one tensor at two indices are copied.
        """
        if not zeros and any(v.padded for v, _ in operands):
            raise Unsupported(
                "it reads zeros that an earlier Pad puts around, which no Einsum makes",
                "only products and sums take up such zeros",
            )
        operands = self._apart(node, list(operands))
        views, slots_of = self.aligned(operands)
        results = [self._result(label, slots_of, scatter or {}) for label in labels]
        tensors = [self.tensors[v.tensor] for v in views]
        kind = dtype or (self.graph.values[out].dtype if out in self.graph.values else tensors[0].dtype)
        if kind not in BITS:
            raise Unsupported(f"{out} has elements of type {kind}", "leave the node out")
        shape = tuple(size for _, _, size in results)
        axes = [axis for axis, _, _ in results]
        weight = all(t.weight for t in tensors)
        self.tensors[out] = Tensor(out, tuple(a for a in axes if a >= 0), kind, weight, not weight)
        if weight:
            self.note(node, "its result is made of weights alone: it is computed once, and taken as a weight")
        else:
            places = [Access(v.tensor, v.index) for v in views]
            accesses = tuple(dict.fromkeys(places))
            map = _called(map, [accesses.index(p) for p in places])
            output = Access(out, tuple(expr for axis, expr, _ in results if axis >= 0))
            narrow = [(expr, size) for axis, expr, size in results if axis < 0 and expr != Affine()]
            limits = tuple(dict.fromkeys((*(li for v in views for li in v.limits), *narrow)))
            about = f"{node.op} {node.name or out}"
            self._check_space((*accesses, output), slots_of, limits)
            self.operations.append(
                BuiltEinsum(
                    name or node.name or out, about, accesses, output, map, reduce, tuple(populate),
                    limits, copy,
                    tuple(s for label in over for s in slots_of.get(label, ())), node.scope,
                )
            )  # fmt: skip
        view = self._stored(out, axes, shape)
        self.views[out] = view
        return view

    def _check_space(
        self,
        accesses: Sequence[Access],
        slots_of: Mapping[Hashable, tuple[str, ...]],
        limits: Sequence[tuple[Affine, int]],
    ) -> None:
        """Raise Unsupported for an iteration space that is empty, or has an index that no tensor has."""
        if not all(self.slots.reaches(expr, size) for expr, size in limits):
            raise Unsupported("all that it reads lies in the zeros around, so that nothing is computed")
        indexed = {t for a in accesses for e in a.index for t in e.variables}
        if any(s not in indexed for found in slots_of.values() for s in found):
            raise Unsupported("it sums over an index that no stored tensor has", "sum before expanding")

    def _result(
        self,
        label: Hashable,
        slots_of: Mapping[Hashable, tuple[str, ...]],
        scatter: Mapping[Hashable, Scatter],
    ) -> tuple[int, Affine, int]:
        """Return axis (-1: of size 1), index and size of one dimension of a result."""
        if label in scatter:
            given = scatter[label]
            expr = Affine((), given.constant)
            for name, step in given.terms:
                expr = expr + self.slots.radix(slots_of.get(name, ())).scaled(step)
            return (self.axes.new(given.size, given.hint) if given.size > 1 else -1), expr, given.size
        group = label if isinstance(label, tuple) else (label,)
        slots = [s for part in group for s in slots_of.get(part, ())]
        axis = self.axes.joined(self.slots.of(slots), "") if slots else -1
        return axis, self.slots.radix(slots), prod(self.slots.size(s) for s in slots)

    def _apart(
        self, node: OnnxNode, operands: list[tuple[IndexView, Labels]]
    ) -> list[tuple[IndexView, Labels]]:
        """Return the operands, with copies of those with incompatible splits, and of a tensor at a second
        index."""
        while True:
            try:
                views, _ = self.aligned(operands)
            except Misfit as found:
                view, labels = operands[found.operand]
                operands[found.operand] = (self.recut(node, view, 0, len(view.dims), view.shape), labels)
                continue
            seen: dict[str, IndexView] = {}
            twice = next(
                (k for k, v in enumerate(views) if v.index != seen.setdefault(v.tensor, v).index), None
            )
            if twice is None:
                return operands
            view, labels = operands[twice]
            operands[twice] = (self.copied(node, view, "an Einsum reads a tensor at one place"), labels)

    def copied(
        self, node: OnnxNode, view: IndexView, why: str = "its index is spread over several ranks"
    ) -> IndexView:
        """Return the view as a separate tensor, filled by a copy Einsum."""
        out = self.fresh(f"{view.tensor}_copy")
        labels = list(range(len(view.dims)))
        result = self.einsum(node, out, labels, [(view, labels)], name=out, copy=True)
        self.note(node, f"{view.tensor} is copied to {out}: {why}")
        return result

    def indexed(
        self, node: OnnxNode, view: IndexView, change: Callable[[IndexView], IndexView | None]
    ) -> IndexView:
        """Apply `change` to a view, or to its copy where the index of the view is spread over several
        ranks."""
        result = change(view)
        if result is None:
            result = change(self.copied(node, view))
        assert result is not None
        return result

    def recut(self, node: OnnxNode, view: IndexView, start: int, end: int, shape: Sequence[int]) -> IndexView:
        """Return a copy whose dimensions from `start` to `end` can be split differently: each of `shape`
        takes whole dimensions."""
        out = self.fresh(f"{view.tensor}_copy")
        labels: list[Hashable] = list(range(len(view.dims)))
        left = list(range(start, end))
        scatter: dict[Hashable, Scatter] = {}
        made: list[Hashable] = []
        for k, size in enumerate(shape):
            taken: list[int] = []
            while left and prod(view.shape[i] for i in taken) < size:
                taken.append(left.pop(0))
            steps = [(i, prod(view.shape[j] for j in taken if j > i)) for i in taken]
            scatter[f"new{k}"] = Scatter(size, "", tuple(steps))
            made.append(f"new{k}")
        results = [*labels[:start], *made, *labels[end:]]
        result = self.einsum(node, out, results, [(view, labels)], name=out, copy=True, scatter=scatter)
        self.note(node, f"{view.tensor} is copied to {out}: it is read in other parts than it is made")
        return result

    def reshaped(
        self, node: OnnxNode, view: IndexView, shape: Sequence[int], hints: Sequence[str]
    ) -> IndexView:
        """Return the view in another shape, or that of a copy if the two shapes split the elements
        differently."""
        result = self.slots.reshaped(view, shape, hints)
        if result is not None:
            return result
        same = [a == b for a, b in zip(view.shape, shape, strict=False)]
        head = (*same, False).index(False)
        tail = 0
        while tail < min(len(view.shape), len(shape)) - head and view.shape[-1 - tail] == shape[-1 - tail]:
            tail += 1
        end = len(view.shape) - tail
        flat = self.recut(node, view, head, end, [prod(view.shape[head:end])])
        again = self.slots.reshaped(flat, shape, hints)
        if again is None:
            raise Unsupported(f"the shapes {list(view.shape)} and {list(shape)} do not fit together")
        return again

    def fresh(self, name: str) -> str:
        """Return a name that no value of the graph has."""
        result, k = name, 2
        while result in self.tensors or self.known(result):
            result, k = f"{name}_{k}", k + 1
        return result

    def alias(self, name: str, view: IndexView) -> None:
        """Record a value that is a view of another one."""
        self.views[name] = view


def _called(word: str, places: Sequence[int]) -> str:
    """Return the operation, whose k-th operand is at `places[k]` of the accesses: x times itself reads x
    once."""
    if list(places) == list(range(len(places))):
        return word
    if "(" in word:
        return re.sub(r"\b_(\d+)", lambda m: f"_{places[int(m[1])]}", word)
    return f"{word or 'mul'}({', '.join(f'_{k}' for k in places)})"
