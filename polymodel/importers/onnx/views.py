"""Represent a value of the graph as a view of a stored tensor: transposes, reshapes and slices move no data.

A view has one tuple of *slots* (running indices, named by texts) per dimension, outermost first: none for a
dimension of size 1, several for one that a reshape has merged. Each rank of the stored tensor is an affine
expression in the slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import prod
from typing import TypeVar

from polymodel.arithmetic import Affine
from polymodel.importers.onnx.axes import Axes

LONGEST = 2**16  # indices that are examined


@dataclass(frozen=True)
class IndexView:
    """`index`: one expression per rank of `tensor`. `limits`: expressions that must be in [0, size), if this
    does not follow from the sizes of the tensor's ranks. `padded`: indices may be outside, where values are
    zero."""

    tensor: str
    index: tuple[Affine, ...]
    dims: tuple[tuple[str, ...], ...]
    shape: tuple[int, ...]
    limits: tuple[tuple[Affine, int], ...] = ()
    padded: bool = False

    @property
    def slots(self) -> tuple[str, ...]:
        """Every slot, in the order of the dimensions."""
        return tuple(s for d in self.dims for s in d)


class AxisSlots:
    """The axis of every slot. A slot is never used in two views of one operation."""

    def __init__(self, axes: Axes) -> None:
        self.axes = axes
        self.axis: dict[str, int] = {}

    def new(self, axis: int) -> str:
        name = f"s{len(self.axis)}"
        self.axis[name] = axis
        return name

    def size(self, slot: str) -> int:
        return self.axes.size(self.axis[slot])

    def of(self, slots: Sequence[str]) -> tuple[int, ...]:
        return tuple(self.axis[s] for s in slots)

    def radix(self, slots: Sequence[str]) -> Affine:
        """Return the flat index that the slots form, outermost first."""
        total, weight = Affine(), 1
        for slot in reversed(slots):
            total = total + Affine(((slot, weight),))
            weight *= self.size(slot)
        return Affine(tuple(reversed(total.terms)))

    def refined(self, view: IndexView) -> IndexView:
        """Return the view with a separate slot for every leaf of its axes, none of which is used
        elsewhere."""
        fresh = {s: tuple(self.new(leaf) for leaf in self.axes.leaves(self.axis[s])) for s in view.slots}
        table = {s: self.radix(parts) for s, parts in fresh.items()}
        dims = tuple(tuple(p for s in d for p in fresh[s]) for d in view.dims)
        return rewritten(view, table, dims, view.shape)

    def transposed(self, view: IndexView, order: Sequence[int]) -> IndexView:
        dims = tuple(view.dims[i] for i in order)
        return replace(view, dims=dims, shape=tuple(view.shape[i] for i in order))

    def reshaped(self, view: IndexView, shape: Sequence[int], hints: Sequence[str]) -> IndexView | None:
        """Return the same elements in another shape; None if the shapes have no common refinement."""
        kept = [(s, h) for s, h in zip(shape, hints, strict=True) if s > 1]
        if prod(shape) != prod(view.shape):
            return None
        if not self.axes.split(self.of(view.slots), [s for s, _ in kept], [h for _, h in kept]):
            return None
        fine = self.refined(view)
        left = list(fine.slots)
        dims: list[tuple[str, ...]] = []
        for size in shape:
            taken: list[str] = []
            while prod(self.size(s) for s in taken) < size:
                taken.append(left.pop(0))
            dims.append(tuple(taken))
        return replace(fine, dims=tuple(dims), shape=tuple(shape))

    def sliced(self, view: IndexView, dim: int, start: int, step: int, count: int) -> IndexView | None:
        """Return every `step`-th index of one dimension from `start`, `count` of them; None if the result is
        not affine."""
        size = view.shape[dim]
        if (start, step, count) == (0, 1, size):
            return view
        if step == 1 and size % count == 0 and start % count == 0 and count > 1:
            # An aligned part, as a third of a joint projection: the parts become a rank.
            whole = self.reshaped(
                view,
                (*view.shape[:dim], size // count, count, *view.shape[dim + 1 :]),
                ("",) * dim + ("T", "") + ("",) * (len(view.shape) - dim - 1),
            )
            if whole is not None:
                return self.picked(whole, dim, start // count)
        one = self.single(view, dim)
        if one is None:
            return None
        slots: tuple[str, ...] = ()
        expr = Affine((), start)
        if count > 1:
            hint = self.axes.hint(self.axis[one.dims[dim][0]]) if one.dims[dim] else ""
            slots = (self.new(self.axes.new(count, hint)),)
            expr = Affine(((slots[0], step),), start)
        return self.placed(one, dim, expr, (slots,), (count,))

    def picked(self, view: IndexView, dim: int, at: int) -> IndexView:
        """Fix one index of a dimension, which is removed."""
        radix, table = at, {}
        for slot in reversed(view.dims[dim]):
            table[slot] = Affine((), radix % self.size(slot))
            radix //= self.size(slot)
        return rewritten(view, table, _spliced(view.dims, dim, ()), _spliced(view.shape, dim, ()))

    def placed(
        self,
        view: IndexView,
        dim: int,
        expr: Affine,
        slots: tuple[tuple[str, ...], ...],
        sizes: tuple[int, ...],
    ) -> IndexView:
        """Return the view with the only slot of a dimension replaced by an expression in slots of new
        dimensions.

        If the expression can leave the dimension, the view is padded.
        """
        table = {view.dims[dim][0]: expr} if view.dims[dim] else {}
        result = rewritten(view, table, _spliced(view.dims, dim, slots), _spliced(view.shape, dim, sizes))
        low, high = self.range(expr)
        if low >= 0 and high < view.shape[dim]:
            return result
        return replace(result, padded=True, limits=(*result.limits, (expr, view.shape[dim])))

    def range(self, expr: Affine) -> tuple[int, int]:
        """The smallest and the largest value."""
        ends = [(c * (self.size(s) - 1)) for s, c in expr.terms]
        return expr.constant + sum(e for e in ends if e < 0), expr.constant + sum(e for e in ends if e > 0)

    def reaches(self, expr: Affine, size: int) -> bool:
        """Return whether the expression lies in [0, size) for some index; True where the check would take too
        long."""
        if not expr.terms:
            return 0 <= expr.constant < size
        *rest, (slot, step) = sorted(expr.terms, key=lambda t: self.size(t[0]))
        count = self.size(slot)
        if prod(self.size(s) for s, _ in rest) > LONGEST:
            return True
        for values in product(*(range(self.size(s)) for s, _ in rest)):
            at = expr.constant + sum(c * v for (_, c), v in zip(rest, values, strict=True))
            at, up = (at, step) if step > 0 else (at + step * (count - 1), -step)
            first = max(0, -(at // up))  # the first index that is not before the range
            if first < count and at + up * first < size:
                return True
        return False

    def window(
        self,
        view: IndexView,
        dim: int,
        steps: tuple[int, int, int],
        sizes: tuple[int, int],
        hints: tuple[str, str],
    ) -> IndexView | None:
        """Return a dimension as windows over it, with one index for the window and one for the position in
        it.

        `steps`: stride, dilation and the padding before. `sizes`: those of the two dimensions that it
        becomes.
        """
        one = self.single(view, dim)
        if one is None:
            return None
        stride, dilation, before = steps
        expr = Affine((), -before)
        slots: list[tuple[str, ...]] = []
        for size, step, hint in zip(sizes, (stride, dilation), hints, strict=True):
            slots.append((self.new(self.axes.new(size, hint)),) if size > 1 else ())
            expr = expr + Affine(tuple((s, step) for s in slots[-1]))
        if steps == (1, 1, 0) and sizes == (view.shape[dim], 1):
            return replace(
                one, dims=_spliced(one.dims, dim, (one.dims[dim], ())), shape=_spliced(one.shape, dim, sizes)
            )
        return self.placed(one, dim, expr, tuple(slots), sizes)

    def single(self, view: IndexView, dim: int) -> IndexView | None:
        """Return the view with at most one slot in a dimension; None if its slots index several ranks."""
        slots = view.dims[dim]
        if len(slots) < 2:
            return view
        whole = self.new(self.axes.joined(self.of(slots), ""))
        weights = dict(self.radix(slots).terms)
        if any(s in dict(e.terms) for e, _ in view.limits for s in slots):
            return None
        index: list[Affine] = []
        for expr in view.index:
            found = {s: expr.coefficient(s) for s in slots if expr.coefficient(s)}
            if not found:
                index.append(expr)
                continue
            scale = found.get(slots[-1], 0)
            if found != {s: scale * w for s, w in weights.items()}:
                return None
            others = Affine(tuple(t for t in expr.terms if t[0] not in found), expr.constant)
            index.append(others + Affine(((whole, scale),)))
        return replace(view, index=tuple(index), dims=_spliced(view.dims, dim, ((whole,),)))


T = TypeVar("T")


def _spliced(items: tuple[T, ...], at: int, new: tuple[T, ...]) -> tuple[T, ...]:
    return (*items[:at], *new, *items[at + 1 :])


def rewritten(
    view: IndexView, table: Mapping[str, Affine], dims: tuple[tuple[str, ...], ...], shape: tuple[int, ...]
) -> IndexView:
    """Return the view with slots replaced by expressions, and other dimensions."""
    limits = tuple((substituted(e, table), size) for e, size in view.limits)
    index = tuple(substituted(e, table) for e in view.index)
    return replace(view, index=index, dims=dims, shape=shape, limits=limits)


def substituted(expr: Affine, table: Mapping[str, Affine]) -> Affine:
    """Return the expression with slots replaced by expressions."""
    total = Affine((), expr.constant)
    for name, coefficient in expr.terms:
        total = total + table.get(name, Affine.variable(name)).scaled(coefficient)
    return total
