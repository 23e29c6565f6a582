"""Values at even distances: the values that an inferred Einsum executes if consumers omit the others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from polymodel.analysis.symbolic.spaces import LoopAxis, Stride, Strides, Window
from polymodel.arithmetic import Affine
from polymodel.errors import NotSeparable
from polymodel.workload.einsum import Einsum


def all_numbers(sizes: Iterable[int | str | None]) -> bool:
    return all(isinstance(s, int) for s in sizes)


def in_strides(
    name: str,
    axes: Sequence[LoopAxis],
    path: Sequence[LoopAxis],
    windows: Mapping[str, Window],
    strides: Strides,
    numbers: bool,
) -> tuple[LoopAxis, ...]:
    """Own loops; those over variables with omitted values get tiles counted in the executed values.

    `path`: the deciding loops. `numbers`: whether no loop of the mapping has a symbol.
    """
    most: dict[str, int] = {}
    for v in strides:
        each = [a.level("each").sizes for a in path if a.variable == v]
        tiles = [max(s for s in sizes if isinstance(s, int)) for sizes in each if all_numbers(sizes)]
        most[v] = windows[v].scale * min([windows[v].extent, *tiles]) + windows[v].start
    spread = {a.variable for a in axes if a.spatial}
    result = []
    for a in axes:
        if a.variable not in strides:
            result.append(a)
            continue
        every = strides[a.variable].every
        tile = a.tile if a.start is None and isinstance(a.tile, int) else 0
        count = -(-tile // every)  # the number of executed values in the first tile
        # No smaller tile has two values, and tiles without a value are not stamps. Instances without a value
        # do exist: whether all fit is known if no size is a symbol, since legality has been decided in that
        # case. If tiles divide the stride, each value is at the start of a tile; otherwise some instances run
        # later.
        aligned = tile > 0 and every % tile == 0
        apart = tile < every and (aligned or a.variable not in spread) and (numbers or not a.spatial)
        if not tile or (most[a.variable] > count and tile % every and not apart):
            raise NotSeparable(
                f"only every {every}th value of {a.variable} executes in {name}, and its tiles are not "
                f"multiples of {every}",
                code="unsupported-inference",
            )
        most[a.variable] = min(most[a.variable], count)
        result.append(replace(a, tile=count))
    return tuple(result)


def only_every(einsum: Einsum, strides: Strides, windows: Mapping[str, Window]) -> Einsum:
    """The Einsum with each variable that has a stride expressed by the number of its executed value."""

    def in_strides(expr: Affine) -> Affine:
        result = Affine((), expr.constant)
        for v, c in expr.terms:
            stride = strides.get(v, Stride(1, 0))
            result = result + Affine(((v, c * stride.every),), c * stride.base)
        return result

    bounds = tuple(
        (w.low, w.low + w.scale * w.extent + w.start - 1) if v in strides else bound
        for v, bound in zip(einsum.rank_variables, einsum.bounds, strict=True)
        for w in (windows.get(v) or Window(1, 0, 1, 0, (), 0),)
    )
    accesses = tuple(replace(a, projection=tuple(map(in_strides, a.projection))) for a in einsum.accesses)
    limits = tuple(c for c in einsum.constraints if not strides.keys() & set(c.expr.variables))
    return replace(einsum, bounds=bounds, accesses=accesses, constraints=limits)


def refuse_outside(einsum: Einsum, v: str, window: Window, stride: Stride) -> None:
    low, high = einsum.bound(v)
    last = window.low + window.scale * window.extent + window.start - 1
    if stride.every * window.low + stride.base < low or stride.every * last + stride.base > high:
        raise NotSeparable(
            f"a consumer reads elements along {v} that {einsum.name} never produces",
            code="unsupported-inference",
        )
