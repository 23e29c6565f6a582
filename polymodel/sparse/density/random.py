"""Random test data: uniform, or thinned rank by rank."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

import numpy as np

from polymodel.errors import Refused
from polymodel.integers import distinct_numbers
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.model import MOST_POINTS, Ints, points_of
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import as_whole, shown

# More nonzeros than this do not fit into the memory of a workstation.
_MOST = 10**9


def random_tensor(
    ranks: Sequence[str],
    shape: Sequence[int],
    density: float | Sequence[float],
    seed: int,
    *,
    name: str = "A",
) -> SparseTensor:
    """Return a random tensor with values 1 .. 9; equal arguments give equal tensors on every machine.

    One density: exactly round(density * points) nonzeros, drawn without replacement (points are numbered,
    never listed; up to 2^63 - 1 of them). One density per rank: every coordinate of the top rank is kept with
    probability density[0], every coordinate of each remaining fiber with density[1], and so on,
    independently; fibers that are empty at the end are removed. The models `Uniform` and `Hierarchical`
    describe these tensors.

    Raises SpecError for densities outside [0, 1] or not one per rank; Refused above 10^9 nonzeros.
    """
    read = Arguments()
    ranks, sizes = read.ranks(ranks, shape)
    asked: object = density
    several = isinstance(asked, Iterable) and not isinstance(asked, str) and _listed(density)
    remedy = "give a share of the points, from 0 to 1" + (", one per rank" if several else "")
    given: tuple[object, ...] = tuple(asked) if isinstance(asked, Iterable) and several else (asked,)
    places = [f"density[{i}]" if several else "density" for i in range(len(given))]
    densities = tuple(read.share(place, d, "", remedy) for place, d in zip(places, given, strict=True))
    if several and len(densities) != len(ranks):
        what = f"{len(densities)} densities for {len(ranks)} ranks"
        read.add(
            "density", what, "give one per rank, or a single number for uniform data", code="wrong-count"
        )
    start = as_whole(seed)
    if start is None or start < 0:
        read.add("seed", f"{shown(seed)} is not a seed", "give a whole number from 0 on", code="wrong-type")
    read.name("name", name)
    read.raise_if_any()
    generator = np.random.default_rng(start)
    if several:
        coords = kept_coordinates(generator, sizes, tuple(float(d) for d in densities))
    else:
        coords = _uniform(generator, sizes, densities[0])
    values = generator.integers(1, 10, coords.shape[1])
    return SparseTensor.from_coo(name, ranks, sizes, coords, values)


def _listed(given: object) -> bool:
    """Whether these are several things side by side."""
    return isinstance(given, Sequence) or np.ndim(given) == 1  # type: ignore[arg-type]  # numpy takes any object


def _uniform(generator: np.random.Generator, shape: tuple[int, ...], density: float | Fraction) -> Ints:
    size = points_of(shape)
    numbers = distinct_below(generator, size, round(Fraction(density) * size))
    coords = np.empty((len(shape), numbers.size), dtype=np.int64)
    for rank in reversed(range(len(shape))):
        numbers, coords[rank] = np.divmod(numbers, shape[rank])
    return coords


def kept_coordinates(
    generator: np.random.Generator, shape: tuple[int, ...], densities: tuple[float, ...]
) -> Ints:
    """Coordinates kept rank by rank. Independent choices are their number, then as many at random."""
    coords = np.zeros((0, 1), dtype=np.int64)
    for size, density in zip(shape, densities, strict=True):
        fibers = coords.shape[1]
        if fibers * size > MOST_POINTS:
            message = f"{fibers} fibers of {size} coordinates: more than 64 bits can number"
            raise Refused(message, code="number-too-large")
        number = int(generator.binomial(fibers * size, density))
        fiber, coordinate = np.divmod(distinct_below(generator, fibers * size, number), size)
        coords = np.concatenate((coords[:, fiber], coordinate[None, :]))
    return coords


def distinct_below(generator: np.random.Generator, size: int, number: int) -> Ints:
    """Return `number` distinct values below `size`, ascending; all sets are equally likely."""
    if number > _MOST:
        message = f"{number:.3g} random nonzeros"
        raise Refused(message, "ask for fewer, or for a model instead of data", code="too-large")
    if 2 * number > size:
        kept = np.ones(size, dtype=bool)
        kept[distinct_below(generator, size, size - number)] = False
        return np.flatnonzero(kept).astype(np.int64)
    result = generator.integers(0, size, number)
    result.sort()
    if result.size:
        # Sorting is faster than the hash table of np.unique.
        result = result[np.concatenate(([True], result[1:] != result[:-1]))]
    while result.size < number:
        # New values among the next ones drawn, in the order of drawing, complete the set.
        drawn = generator.integers(0, size, 2 * (number - result.size) + 16)
        drawn = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
        place = np.minimum(np.searchsorted(result, drawn), max(result.size - 1, 0))
        new = drawn[result[place] != drawn] if result.size else drawn
        result = np.sort(np.concatenate((result, new[: number - result.size])))
    return result


def places_in_lines(generator: np.random.Generator, counts: Ints, length: int) -> tuple[Ints, Ints]:
    """Return the given number of distinct positions below `length` in each line, as lines and positions."""
    dense = 2 * counts > length
    wanted = np.where(dense, length - counts, counts)
    taken = np.zeros(0, dtype=np.int64)
    missing = wanted
    while missing.sum():
        line = np.repeat(np.arange(counts.size), missing)
        fresh = line * length + generator.integers(0, length, line.size)
        taken = distinct_numbers(np.concatenate([taken, fresh]))
        missing = wanted - np.bincount(taken // length, minlength=counts.size)
    # For lines more than half full, the empty positions were chosen.
    which = np.flatnonzero(dense)
    if which.size:
        every = (which[:, None] * length + np.arange(length)).ravel()
        sparse = taken[~dense[taken // length]]
        taken = np.concatenate([sparse, np.setdiff1d(every, taken, assume_unique=True)])
    return taken // length, taken % length
