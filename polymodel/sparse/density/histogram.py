"""Model skewed data: the numbers of nonzeros of rows or fibers are known, their positions inside are
random."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.hypergeometric import Hypergeometric
from polymodel.sparse.density.laws import LONGEST, RARE, Law, deviation
from polymodel.sparse.density.model import (
    MOST_PLACES,
    ByPlace,
    DensityModel,
    Floats,
    Fullness,
    Ints,
    edge_classes,
    points_of,
)
from polymodel.sparse.density.placed import Placed, TilesOfShape
from polymodel.sparse.density.random import places_in_lines
from polymodel.sparse.density.reader import Path, Reader
from polymodel.sparse.density.regions import OfLines, Regions
from polymodel.sparse.tensor import SparseTensor

# Limits of the entries of all probabilities tabulated for one tiling, and of one block of work.
_MOST, _BLOCK = 1 << 27, 1 << 21


@dataclass(frozen=True, eq=False)
class RankNnz(Placed):
    """`histogram[i]` nonzeros in fiber i of the ranks `along` (one number per row: along = the top rank).

    Inside a fiber all placements are equally likely: a part of it is hypergeometric, and fibers are
    independent. The histogram has one axis per rank of `along`; `RankNnz.from_tensor` counts it. SpecError
    for a histogram of another length, entries below 0 or above a fiber's points.
    """

    histogram: Ints
    along: tuple[str, ...]
    # Points of a fiber, of which the shape may have only a part.
    _fiber: int = field(default=0, init=False, repr=False, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        points_of(self.shape)
        read = Arguments()
        kept = read.names("along", self.along)
        for i, rank in enumerate(kept):
            read.one_of(f"along[{i}]", rank, self.ranks, "a histogram along")
        if not kept and not read.faults:
            message = "a histogram along no rank counts nothing"
            read.add("along", message, "name ranks of the tensor", code="missing-argument")
        given = read.array("histogram", self.histogram)
        if given.dtype.kind not in "iuf":
            message = "it holds something else than numbers"
            read.add("histogram", message, "give the nonzeros of each fiber", code="wrong-type")
        read.raise_if_any()
        wanted = tuple(self.shape[self.ranks.index(r)] for r in kept)
        if given.shape != wanted:
            what = f"the histogram along {list(kept)} has {given.shape} entries, not {wanted}"
            remedy = "one number of nonzeros per coordinate"
            raise SpecError([Diagnostic(what, remedy, "histogram", code="shape-mismatch")])
        room = self.size // prod(wanted)
        with np.errstate(invalid="ignore"):
            wrong = np.argwhere(~((given >= 0) & (given <= room) & (given == np.floor(given))))
        if len(wrong):
            place = tuple(int(x) for x in wrong[0])
            what = f"{len(wrong)} entries of the histogram are not a whole number of 0 to {room}"
            first = f"the first is {given[place]} at {place if len(place) > 1 else place[0]}"
            raise SpecError(
                [
                    Diagnostic(
                        f"{what}, {first}", f"a fiber has {room} points", "histogram", code="out-of-range"
                    )
                ]
            )
        counts = given.astype(np.int64)
        counts.flags.writeable = False
        object.__setattr__(self, "histogram", counts)
        object.__setattr__(self, "along", kept)
        object.__setattr__(self, "_fiber", room)

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={s:,}" for r, s in zip(self.ranks, self.shape, strict=True))
        fibers = f"{self.histogram.size:,} fibers of {', '.join(self.along)}"
        return f"RankNnz({sizes}, {int(self.expected_nnz):,} nonzeros in {fibers})"

    @classmethod
    def of(
        cls,
        ranks: Sequence[str],
        shape: Sequence[int],
        histogram: ArrayLike,
        along: Sequence[str] | None = None,
    ) -> RankNnz:
        """Make a model of the top rank unless `along` names others."""
        read = Arguments()
        names, sizes = read.ranks(ranks, shape)
        read.raise_if_any()
        kept = names[:1] if along is None else read.names("along", along)
        numbers = read.array("histogram", histogram)
        read.raise_if_any()
        return cls(names, sizes, numbers, kept)

    @classmethod
    def from_tensor(cls, tensor: SparseTensor, along: Sequence[str] | None = None) -> RankNnz:
        """Count the histogram of a tensor, by default of its rows."""
        read = Arguments()
        kept = tensor.ranks[:1] if along is None else read.names("along", along)
        for i, rank in enumerate(kept):
            read.one_of(f"along[{i}]", rank, tensor.ranks, "a histogram along")
        read.raise_if_any()
        sizes = tuple(tensor.shape[tensor.ranks.index(r)] for r in kept)
        points_of(sizes, "a histogram")
        numbers = np.zeros(tensor.nnz, dtype=np.int64)
        for rank, size in zip(kept, sizes, strict=True):
            numbers = numbers * size + tensor.rank(rank)
        return cls.of(
            tensor.ranks, tensor.shape, np.bincount(numbers, minlength=prod(sizes)).reshape(sizes), kept
        )

    @classmethod
    def written(cls, reader: Reader, path: Path, given: object) -> DensityModel | None:
        """Return the model with these parameters of a YAML file; None after a fault, which the reader has
        recorded."""
        keys = reader.keys(path, given, ("rank", "ranks", "histogram", "file"), ("histogram", "file"))
        if not keys:
            return None
        where = next((k for k in ("rank", "ranks") if k in keys), "")
        if "rank" in keys and "ranks" in keys:
            message = "both rank and ranks are given"
            reader.add((*path, "ranks"), message, "give one", code="conflicting-arguments")
        along = reader.named((*path, where), keys[where]) if where else reader.ranks[:1]
        if "file" in keys:
            data = reader.file((*path, "file"), keys["file"])
            if data is None or along is None:
                return None
            return reader.made(path, lambda: cls.from_tensor(data, along))
        histogram = _table(keys["histogram"])
        if histogram is None:
            message = "a histogram is a list of numbers"
            reader.add((*path, "histogram"), message, "nested lists for several ranks", code="wrong-type")
            return None
        if along is None:
            return None
        return reader.made((*path, "histogram"), lambda: cls.of(reader.ranks, reader.shape, histogram, along))

    @property
    def _inside(self) -> int:
        """Return the number of points of a fiber that are in the shape."""
        return self.size // self.histogram.size

    @property
    def expected_nnz(self) -> float:
        return float(self.histogram.sum()) * self._inside / self._fiber

    def alike(self, tile: tuple[int, ...]) -> bool:
        return bool((self.histogram == self.histogram.flat[0]).all())

    def part(self, touched: Sequence[range]) -> RankNnz:
        """Return the model of a part. The nonzeros of a part of a fiber are hypergeometric."""
        axes = [self.ranks.index(r) for r in self.along]
        some = np.ix_(*(np.arange(t.start, t.stop, t.step) for t in (touched[a] for a in axes)))
        # A fiber may have more nonzeros than its part has points, so that these are set after the checks.
        none = np.zeros([len(touched[a]) for a in axes], np.int64)
        result = RankNnz(self.ranks, tuple(map(len, touched)), none, self.along)
        object.__setattr__(result, "histogram", self.histogram[some])
        object.__setattr__(result, "_fiber", self._fiber)
        return result

    def by_place(self) -> ByPlace:
        return ByPlace(tuple(self.ranks.index(r) for r in self.along), self.histogram, self._fiber)

    def nonempty_by_place(self, tile: tuple[int, ...]) -> Floats | None:
        """Return P(nonempty) of every tile; a tile is empty if its part of each fiber is empty."""
        if prod(-(-s // t) for s, t in zip(self.shape, tile, strict=True)) > MOST_PLACES:
            return None
        return self.nonempty_by_parts([np.arange(s) // t for s, t in zip(self.shape, tile, strict=True)])

    def nonempty_by_parts(self, parts: Sequence[Ints]) -> Floats | None:
        sizes = [np.bincount(part) for part in parts]
        if max(prod(size.size for size in sizes), self.histogram.size) > MOST_PLACES:
            return None
        along = [self.ranks.index(r) for r in self.along]
        others = [i for i in range(len(parts)) if i not in along]
        points = np.ones([sizes[i].size for i in others], dtype=np.int64)
        for number, i in enumerate(others):
            points = points * sizes[i].reshape([-1 if k == number else 1 for k in range(len(others))])
        ordered = [np.argsort(parts[i], kind="stable") for i in along]
        widths, kind = np.unique(points, return_inverse=True)
        nonzeros, fiber = np.unique(self.histogram, return_inverse=True)
        laws = [Hypergeometric(self._fiber, int(n)) for n in nonzeros]
        each = []
        for width in widths:
            value = np.array([float(law.log_p_empty(np.array(width))) for law in laws])
            logs = np.maximum(value, -800.0)[fiber].reshape(self.histogram.shape)
            logs = logs[np.ix_(*ordered)]
            for axis, i in enumerate(along):
                logs = np.add.reduceat(logs, np.cumsum(sizes[i]) - sizes[i], axis=axis)
            each.append(-np.expm1(logs))
        result = np.stack(each, axis=-1)[..., kind.reshape(points.shape)]
        return np.transpose(result, np.argsort([*along, *others]))

    def known_rows(self) -> Ints | None:
        if self.ranks[0] not in self.along or self._inside < self._fiber:
            return None
        axis = self.along.index(self.ranks[0])
        others = tuple(a for a in range(self.histogram.ndim) if a != axis)
        result: Ints = self.histogram.sum(axis=others)
        return result

    def fullest_part(self, parts: Sequence[Ints]) -> tuple[float, Fullness] | None:
        """Return the maximum sum of counts of whole fibers; for parts of fibers, the same as for tiles."""
        along = [self.ranks.index(r) for r in self.along]
        others = [i for i in range(len(parts)) if i not in along]
        cut = self._inside < self._fiber
        if cut or any(parts[i].any() or parts[i].size != self.shape[i] for i in others):
            return super().fullest_part(parts)
        histogram = self.histogram[tuple(slice(parts[i].size) for i in along)]
        number = np.zeros(histogram.shape, np.int64)
        for axis, i in enumerate(along):
            shape = [1] * len(along)
            shape[axis] = -1
            number = number * (int(parts[i].max(initial=0)) + 1) + parts[i].reshape(shape)
        sums = np.zeros(int(number.max(initial=0)) + 1, np.int64)
        np.add.at(sums, number.reshape(-1), histogram.reshape(-1))
        return int(sums.max()), "exact"

    def square_multiplies(self) -> float:
        """Return the expected multiplications by itself. Given its nonzeros, a row uses all columns with
        equal probability, so that each row is multiplied by the mean row."""
        if len(self.along) != 1:
            return super().square_multiplies()
        return self.expected_nnz * self.expected_nnz / self.shape[0]

    def regions(self) -> Regions:
        if len(self.along) != 1 or self._inside < self._fiber:
            return super().regions()
        axis = self.ranks.index(self.along[0])
        return OfLines.of(self.histogram, self.shape[1 - axis], axis)

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        if len(self.along) != 1 or len(self.shape) != 2 or self._inside < self._fiber:
            return super().draw(seed, name)
        axis = self.ranks.index(self.along[0])
        line, place = places_in_lines(np.random.default_rng(seed), self.histogram, self.shape[1 - axis])
        coords = np.stack([place, line] if axis else [line, place])
        return self.ones_at(coords, name)

    def make_tiling(self, tile: tuple[int, ...]) -> TilesOfShape:
        axes = [self.ranks.index(r) for r in self.along]
        others = [a for a in range(len(tile)) if a not in axes]
        blocks = _Blocks.of(self.histogram, tuple(tile[a] for a in axes))
        sizes, counts = edge_classes(
            np.array([tile[a] for a in others], dtype=np.int64), tuple(self.shape[a] for a in others)
        )
        kept = counts > 0
        return _FiberBlocks(
            self._fiber, blocks, prod(tile[a] for a in others), sizes.prod(axis=-1)[kept], counts[kept]
        )


@dataclass(frozen=True, eq=False)
class _Blocks:
    """Blocks of fibers: the nonzeros of the fibers, ordered by block; the start of each block; which blocks
    are full."""

    fibers: Ints
    starts: Ints
    full: Ints

    @classmethod
    def of(cls, histogram: Ints, tile: tuple[int, ...]) -> _Blocks:
        number = np.zeros(histogram.shape, dtype=np.int64)
        full = np.ones(histogram.shape, dtype=bool)
        for axis, size in enumerate(tile):
            shape = [1] * histogram.ndim
            shape[axis] = -1
            place = np.arange(histogram.shape[axis]) // size
            number = number * (int(place[-1]) + 1) + place.reshape(shape)
            full &= (place < histogram.shape[axis] // size).reshape(shape)
        order = np.argsort(number.ravel(), kind="stable")
        ordered = number.ravel()[order]
        starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
        return cls(histogram.ravel()[order], starts, full.ravel()[order][starts])

    def sums(self, values: Floats | Ints) -> Floats:
        """Return one value per fiber, summed over each block."""
        result: Floats = np.add.reduceat(values.astype(np.float64), self.starts)
        return result


@dataclass(frozen=True, eq=False)
class _FiberBlocks(TilesOfShape):
    """Blocks of fibers of `points` points each, divided into tiles of `inside` points of a fiber (full
    tiles), or into `counts` tiles of `sizes` points."""

    points: int
    blocks: _Blocks
    inside: int
    sizes: Ints
    counts: Floats

    def _moments(self, inside: int) -> tuple[Floats, Floats, Floats]:
        """Return mean, variance and ln P(0) of the tile of `inside` points of each block's fibers."""
        # The distribution of a part of a fiber is symmetric in the fiber's nonzeros and the part's points.
        law = Hypergeometric(self.points, inside)
        values, place = np.unique(self.blocks.fibers, return_inverse=True)
        place = place.reshape(-1)
        with np.errstate(invalid="ignore"):
            log_empty = self.blocks.sums(law.log_p_empty(values)[place])
        return (
            self.blocks.sums(law.mean(values)[place]),
            self.blocks.sums(law.variance(values)[place]),
            log_empty,
        )

    @cached_property
    def _full(self) -> tuple[Floats, Floats, Floats]:
        mean, variance, log_empty = self._moments(self.inside)
        full = self.blocks.full
        return mean[full], variance[full], log_empty[full]

    @property
    def mean(self) -> float:
        return float(self._full[0].mean())

    @property
    def variance(self) -> float:
        return float(self._full[1].mean() + self._full[0].var())

    @property
    def empty(self) -> float:
        return float(np.exp(self._full[2]).mean())

    @property
    def nonempty(self) -> float:
        return sum(
            float(count * -np.expm1(self._moments(int(size))[2]).sum())
            for size, count in zip(self.sizes, self.counts, strict=True)
        )

    @property
    def squares(self) -> float:
        total = 0.0
        for size, count in zip(self.sizes, self.counts, strict=True):
            mean, variance, _ = self._moments(int(size))
            total += float(count * (variance + mean**2).sum())
        return total

    @cached_property
    def law(self) -> Law:
        mean, variance, _ = self._full
        high = _reach(mean, variance)
        if high * self.blocks.fibers.size > _MOST or high > LONGEST:
            return Law(self.mean, self.variance, normals=(mean, variance, np.ones(mean.size)))
        total = np.zeros(high + 1)
        for pmf, chosen in self._written(self.inside, high):
            total += pmf[self.blocks.full[chosen]].sum(axis=0)
        return Law(self.mean, self.variance, 0, total / total.sum())

    @cached_property
    def greatest(self) -> tuple[float, bool]:
        """Expected maximum occupancy, and whether it is a bound. Tiles of one block share its nonzeros, so
        that independent tiles give a lower bound unless a block is one tile."""
        if self.inside == self.points:
            return float(self.blocks.sums(self.blocks.fibers).max()), False
        mean, variance, _ = self._moments(int(self.sizes.max()))
        high = _reach(mean, variance)
        if high * self.blocks.fibers.size > _MOST or high > LONGEST:
            return self._greatest_normal(high), True
        return float(-np.expm1(self._log_below(high)).sum()), True

    def below(self, s: Ints) -> Floats:
        if self.inside == self.points:
            return (s >= self.greatest[0]).astype(np.float64)
        mean, variance, _ = self._moments(int(self.sizes.max()))
        high = _reach(mean, variance)
        if high * self.blocks.fibers.size > _MOST or high > LONGEST:
            message = "the law of the fullest tile of very full tiles"
            raise Refused(message, "ask expected_max", code="unsupported-density")
        result: Floats = np.exp(self._log_below(high))[np.minimum(s, high)]
        return result

    def _log_below(self, high: int) -> Floats:
        """Return ln P(no tile has more than 0 .. high nonzeros), with tiles taken as independent."""
        log_below = np.zeros(high + 1)
        for size, count in zip(self.sizes, self.counts, strict=True):
            for pmf, _ in self._written(int(size), high):
                above = np.cumsum(pmf[:, :0:-1], axis=1)[:, ::-1]
                with np.errstate(divide="ignore"):
                    log_below[:-1] += count * np.log1p(-np.minimum(above, 1.0)).sum(axis=0)
        return log_below

    def _greatest_normal(self, high: int) -> float:
        """Return E[max] of normal distributions, where occupancies are too large to list."""
        from scipy.special import log_ndtr

        stride = max(1, high // 8192) | 1
        s = np.arange(stride // 2, high + stride, stride)
        log_below = np.zeros(s.size)
        for size, count in zip(self.sizes, self.counts, strict=True):
            mean, variance, _ = self._moments(int(size))
            step = max(1, _BLOCK // s.size)
            for start in range(0, mean.size, step):
                part = slice(start, start + step)
                score = (s + 0.5 - mean[part, None]) / np.sqrt(np.maximum(variance[part, None], 1e-12))
                log_below += count * log_ndtr(score).sum(axis=0)
        return stride * float(-np.expm1(log_below).sum())

    def _written(self, inside: int, high: int) -> Iterator[tuple[Floats, Ints]]:
        """Yield the probabilities of 0 .. high nonzeros in the tile of `inside` points, for several blocks at
        a time."""
        values, place = np.unique(self.blocks.fibers, return_inverse=True)
        place = place.reshape(-1)
        law = Hypergeometric(self.points, inside)
        ends = np.append(self.blocks.starts[1:], place.size)
        single = ends - self.blocks.starts == 1
        length = 1 << int(high + 1).bit_length()
        step = max(1, _BLOCK // length)
        alone = np.flatnonzero(single)
        for start in range(0, alone.size, step):
            chosen = alone[start : start + step]
            kinds, which = np.unique(place[self.blocks.starts[chosen]], return_inverse=True)
            yield law.table(values[kinds], high)[which.reshape(-1)], chosen
        several = np.flatnonzero(~single)
        for start in range(0, several.size, step):
            chosen = several[start : start + step]
            rows = np.repeat(np.arange(chosen.size), (ends - self.blocks.starts)[chosen])
            fibers = np.concatenate([place[self.blocks.starts[b] : ends[b]] for b in chosen])
            yield _convolved(law, values, fibers, rows, high), chosen


def _convolved(law: Hypergeometric, values: Ints, fibers: Ints, rows: Ints, high: int) -> Floats:
    """Return distributions of the sums over rows of independent fibers (numbers of their `values`), by
    logarithms of transforms."""
    from scipy.sparse import coo_array

    length = 1 << int(high + 1).bit_length()
    kinds, which = np.unique(fibers, return_inverse=True)
    number = int(rows[-1]) + 1
    often = coo_array((np.ones(rows.size), (rows, which.reshape(-1))), shape=(number, kinds.size)).tocsc()
    size, turn = np.zeros((number, length // 2 + 1)), np.zeros((number, length // 2 + 1))
    step = max(1, _BLOCK // length)
    for start in range(0, kinds.size, step):
        part = slice(start, start + step)
        transform = np.fft.rfft(law.table(values[kinds[part]], high), n=length, axis=1)
        with np.errstate(divide="ignore"):
            size += often[:, part] @ np.log(np.abs(transform))
        turn += often[:, part] @ np.angle(transform)
    pmf = np.fft.irfft(np.exp(size + 1j * turn), n=length, axis=1)[:, : high + 1]
    # Smaller values are rounding errors of the transform.
    return np.where(pmf < 1e-15, 0.0, pmf)


def _reach(mean: Floats, variance: Floats) -> int:
    """Return an occupancy that a tile exceeds only with probability e^-40."""
    return int(mean.max() + deviation(RARE, float(variance.max()), 1.0)) + 1


def _table(given: object) -> NDArray[Any] | None:
    """Return numbers in equally nested lists of equal length; None if they are not."""
    try:
        result: NDArray[Any] = np.array(given)
    except ValueError:
        return None
    return result if result.dtype.kind in "iuf" and result.ndim else None
