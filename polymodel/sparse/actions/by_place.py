"""Average position-dependent probabilities of tiles over the atoms of each class.

All atoms of a class have the same transfer counts, so the mean over them is exact even if their probabilities
differ. Probabilities of tensors that share a rank variable are multiplied position by position.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import prod
from string import ascii_letters

import numpy as np

from polymodel.frozen import dataclass
from polymodel.sparse.actions.counters import Ints, group_numbers
from polymodel.sparse.actions.data import TensorData
from polymodel.sparse.actions.links import Condition
from polymodel.sparse.actions.storage import LoopTiles
from polymodel.sparse.actions.tally import Atoms, Floats, LinkTally
from polymodel.sparse.density.model import MOST_PLACES, DensityModel


@dataclass(frozen=True, eq=False)
class PlacedTiles:
    """The tiles of a condition's leader: the tile shape, and the rank variable of each rank (None for a rank
    with a single tile). `parts`: for tiles that do not start at multiples of one size, such as those with
    gaps, the tile of each coordinate of each rank; `tile` is then the largest."""

    condition: Condition
    model: DensityModel
    tile: tuple[int, ...]
    variables: tuple[str | None, ...]
    parts: tuple[Ints, ...] | None = None

    @classmethod
    def of(cls, tally: LinkTally, condition: Condition, data: TensorData) -> PlacedTiles | None:
        """Return the tiles. Return None where they are not tiles of the density model."""
        if data.model is None or data.placeless or data.actual is not None:
            return None
        used = tally.structure.led(condition.leader)
        if len(used.accesses) > 1:
            return None
        tiles = LoopTiles(tally.structure, condition.leader, condition.digits)
        parts = tiles.parts(data.model.shape)
        if parts is None:
            return None
        names = tuple(x.terms[0][0] for x in tiles.access.projection)
        variables = tuple(name if name in tiles.groups else None for name in names)
        sizes = tuple(int(np.bincount(part).max()) for part in parts)
        return cls(condition, data.model, sizes, variables, None if tiles.regular() else parts)

    def nonempty(self) -> Floats | None:
        """Return P(nonempty) of every tile, with one axis per rank; None where the model does not provide
        it."""
        if self.parts is None:
            return self.model.nonempty_by_place(self.tile)
        return self.model.nonempty_by_parts(self.parts)

    @property
    def along(self) -> tuple[str, ...]:
        """The rank variables along which tiles differ."""
        return tuple(v for v in self.variables if v is not None)


@dataclass(frozen=True, eq=False)
class _AtomGroups:
    """Groups of atoms of one axis that are equivalent for all conditions: one representative atom of each
    group, and the number of its atoms in each class."""

    weights: Floats
    atoms: Ints


def class_means(tally: LinkTally, every: Sequence[PlacedTiles]) -> Floats | None:
    """Return, for each combination of classes, the mean of the product of the tiles' probabilities (one
    condition per leader). Return None where there are too many positions, or a model does not give the
    probabilities."""
    result = np.ones([1] * len(tally.axes))
    for together in _components(every):
        mean = _simple_mean(tally, together[0]) if len(together) == 1 else None
        mean = _joint_mean(tally, together) if mean is None else mean
        if mean is None:
            return None
        result = result * mean
    return result


def _components(every: Sequence[PlacedTiles]) -> Iterator[list[PlacedTiles]]:
    """Yield connected components: conditions that share rank variables, directly or through other
    conditions."""
    left = list(every)
    while left:
        found, names = [left.pop(0)], set[str]()
        while names != {v for p in found for v in p.along}:
            names = {v for p in found for v in p.along}
            found += [p for p in left if names & {*p.along}]
            left = [p for p in left if p not in found]
        yield found


def _joint_mean(tally: LinkTally, together: Sequence[PlacedTiles]) -> Floats | None:
    """Return the mean, computed as a sum over all distinct positions."""
    found = _joint_sums(tally, together, tally.labels)
    return None if found is None else _shaped(tally, *found)


def most_of_an_instance(
    tally: LinkTally, every: Sequence[PlacedTiles], instances: Mapping[str, Ints]
) -> float | None:
    """Return the largest expected number of operations of an instance, which is the sum of the tiles'
    probabilities over its points. `tally`: the operations. `instances`: for each rank variable, the part that
    each value belongs to."""
    labels = [instances[a.variable] for a in tally.axes]
    if any(label.size != a.extent.size for a, label in zip(tally.axes, labels, strict=True)):
        return None
    result, alone = 1.0, {a.variable: n for n, a in enumerate(tally.axes)}
    for together in _components(every):
        found = _joint_sums(tally, together, labels)
        if found is None:
            return None
        result *= float(found[1].max(initial=0.0))
        alone = {v: n for v, n in alone.items() if n not in found[0]}
    for n in alone.values():
        result *= int(np.bincount(labels[n]).max(initial=0))
    return result


def _joint_sums(
    tally: LinkTally, together: Sequence[PlacedTiles], labels: Sequence[Ints]
) -> tuple[list[int], Floats] | None:
    """Return the axes of these tiles, and the sum of the product of their probabilities over all atoms with
    equal labels."""
    at = {a.variable: n for n, a in enumerate(tally.axes)}
    names = [v for v in at if any(v in p.along for p in together)]
    letter = dict(zip(names, ascii_letters, strict=False))
    numbers = [tally.conditions.index(p.condition) for p in together]
    cells = {v: _cells(tally.axes[at[v]], labels[at[v]], numbers) for v in names}
    operands, subscripts = [], []
    for p in together:
        number = tally.conditions.index(p.condition)
        if prod(cells[v].atoms.size for v in p.along) > MOST_PLACES:
            return None
        chances = p.nonempty()
        if chances is None:
            return None
        index = [tally.axes[at[v]].groups[number][cells[v].atoms] for v in p.along]
        chances = chances.reshape([n for n, v in zip(chances.shape, p.variables, strict=True) if v])
        operands.append(chances[np.ix_(*index)])
        subscripts.append("".join(letter[v] for v in p.along))
    for v in names:
        operands.append(cells[v].weights)
        subscripts.append(letter[v].upper() + letter[v])
    out = "".join(letter[v].upper() for v in names)
    return [at[v] for v in names], np.einsum(f"{','.join(subscripts)}->{out}", *operands, optimize=True)


def _simple_mean(tally: LinkTally, one: PlacedTiles) -> Floats | None:
    """Return the mean over the points of a matrix. Runs of equal classes form rectangles, whose expected
    nonzeros are added."""
    if any(t != 1 for t in one.tile) or len(one.along) != 2:
        return None
    at = {a.variable: n for n, a in enumerate(tally.axes)}
    number = tally.conditions.index(one.condition)
    runs = []
    for v in one.along:
        labels = _by_group(tally, at[v], number)
        if labels is None:
            return None
        starts = np.flatnonzero(np.concatenate(([True], labels[1:] != labels[:-1])))
        runs.append((starts, np.diff(np.append(starts, labels.size)), labels[starts]))
    (row, height, of_row), (column, width, of_column) = runs
    if row.size * column.size > MOST_PLACES:
        return None
    grid = np.indices((row.size, column.size)).reshape(2, -1)
    rects = np.stack([row[grid[0]], column[grid[1]], height[grid[0]], width[grid[1]]], axis=1)
    held = one.model.expected_in(rects)
    if held is None:
        return None
    kinds = [tally.picks[at[v]].size for v in one.along]
    where = of_row[grid[0]] * kinds[1] + of_column[grid[1]]
    sums: Floats = np.bincount(where, weights=held, minlength=kinds[0] * kinds[1]).astype(np.float64)
    return _shaped(tally, [at[v] for v in one.along], sums.reshape(kinds))


def _by_group(tally: LinkTally, axis: int, number: int) -> Ints | None:
    """Return the class of each value where every atom is a single value, else None."""
    groups, labels = tally.axes[axis].groups[number], tally.labels[axis]
    if groups.size != int(groups.max(initial=-1)) + 1:
        return None
    result = np.empty(groups.size, np.int64)
    result[groups] = labels
    return result


def _cells(atoms: Atoms, labels: Ints, numbers: Sequence[int]) -> _AtomGroups:
    columns = [labels, *(atoms.groups[i] for i in numbers if i in atoms.groups)]
    kind = group_numbers(columns, labels.size)
    _, first, count = np.unique(kind, return_index=True, return_counts=True)
    weights = np.zeros((int(labels.max(initial=-1)) + 1, first.size))
    weights[labels[first], np.arange(first.size)] = count
    return _AtomGroups(weights, first)


def _shaped(tally: LinkTally, axes: Sequence[int], sums: Floats) -> Floats:
    """Convert sums over the classes of some axes to means, with one dimension per axis of the tally."""
    shape = [1] * len(tally.axes)
    for n in axes:
        shape[n] = tally.picks[n].size
    ordered = np.transpose(sums, np.argsort(axes)).reshape(shape)
    number = np.ones([1] * len(tally.axes))
    for n in axes:
        along = [1] * len(tally.axes)
        along[n] = -1
        number = number * np.bincount(tally.labels[n], minlength=shape[n]).reshape(along)
    result: Floats = np.minimum(ordered / number, 1.0)
    return result
