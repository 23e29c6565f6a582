"""Model nonzeros in blocks: one model for which blocks exist, another for the content of each; also 2:4
sparsity of blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.arguments import Arguments
from polymodel.sparse.density.hierarchical import Hierarchical
from polymodel.sparse.density.laws import CountLaws
from polymodel.sparse.density.model import DensityModel, Floats, Ints, edge_classes
from polymodel.sparse.density.reader import Path, Reader, is_number
from polymodel.sparse.density.regions import NEVER, Kinds, Regional, Regions
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import not_a

# The most tiles of one tiling that are listed; beyond that, some rows of tiles represent all.
_MOST = 1 << 18
# Limit of numbers of blocks x nonzeros of a tabulated distribution, and entries of a block of work.
_WRITTEN, _ENTRIES = 1 << 22, 1 << 21
# Reads a model inside a model, given its description, ranks and sizes.
Within = Callable[[Reader, Path, object, tuple[str, ...], tuple[int, ...]], DensityModel | None]


@dataclass(frozen=True)
class Blocks(Regional):
    """Blocks of `size` rows and columns that start at multiples of it. `arrangement`: a model of the matrix
    of blocks, which determines which blocks exist. `fill`: a model of the content of one block.

    Blocks are filled independently. A last block that is cut off by the end of the matrix holds what that
    part of a block would. Where tiles cut blocks, the parts of a tile are taken to be independent. Tiles that
    share a block are positively dependent, so that E[max] is a bound there, as it is where it is one for the
    arrangement.
    """

    size_of_block: tuple[int, int]
    arrangement: DensityModel
    fill: DensityModel

    def __post_init__(self) -> None:
        super().__post_init__()
        read = Arguments()
        block = tuple(read.sizes("size", self.size_of_block))
        if len(block) != 2 or min(block, default=0) < 1:
            message = f"a block of {list(block)}"
            remedy = "give two sizes of at least 1, e.g. [4, 4]"
            read.add("size", message, remedy, code="not-positive-integer")
            read.raise_if_any()
        for name in ("arrangement", "fill"):
            if not isinstance(getattr(self, name), DensityModel):
                example = "pass e.g. pm.Uniform.of(...)"
                raise not_a("density model", f"Blocks: {name}", getattr(self, name), example)
        grid = tuple(-(-s // b) for s, b in zip(self.shape, block, strict=True))
        for name, wanted in (("arrangement", grid), ("fill", block)):
            own = getattr(self, name).shape
            if own != wanted:
                these = "a block is" if name == "fill" else "the matrix of blocks is"
                what = f"{name}: a model of {list(own)}, and {these} {list(wanted)}"
                read.add(name, what, f"give one of the shape {list(wanted)}", code="shape-mismatch")
        read.raise_if_any()
        object.__setattr__(self, "size_of_block", (block[0], block[1]))
        # Called here so that an arrangement without statistics of rectangles is refused at once.
        self.arrangement.regions()

    def __repr__(self) -> str:
        sizes = " x ".join(f"{r}={s:,}" for r, s in zip(self.ranks, self.shape, strict=True))
        block = " x ".join(map(str, self.size_of_block))
        inside = f"{self.arrangement.expected_nnz:,.6g} blocks of {block}, {self.fill.density:.3g} full"
        return f"Blocks({sizes}, {inside}; {self.expected_nnz:,.6g} nonzeros)"

    @classmethod
    def of(
        cls,
        ranks: Sequence[str],
        shape: Sequence[int],
        size: Sequence[int],
        arrangement: DensityModel,
        fill: DensityModel | float = 1.0,
    ) -> Blocks:
        """Make a model. `fill`: a model of one block, or the density of a block, whose points are then
        independent."""
        if isinstance(fill, (int, float)):
            fill = _coins(tuple(ranks), tuple(size), fill)
        return cls(tuple(ranks), tuple(shape), (size[0], size[1]), arrangement, fill)

    @classmethod
    def written_with(cls, reader: Reader, path: Path, given: object, within: Within) -> DensityModel | None:
        """Return the model with these parameters of a YAML file. `within` reads the models inside it."""
        keys = reader.keys(path, given, ("size", "arrangement", "fill"))
        if not isinstance(given, Mapping):
            return None
        missing = [k for k in ("size", "arrangement") if k not in keys]
        if missing:
            message = f"blocks need {' and '.join(missing)}"
            reader.add(path, message, "give size, arrangement and fill", code="missing-key")
            return None
        sizes = keys["size"] if isinstance(keys["size"], Sequence) else [keys["size"]] * 2
        block = [reader.whole((*path, "size"), s, 1, float("inf"), "block size") for s in sizes]
        if len(block) != 2 or len(reader.ranks) != 2:
            what = f"blocks of {list(sizes)} in {len(reader.ranks)} ranks"
            remedy = "blocks have two sizes, and matrices two ranks"
            reader.add((*path, "size"), what, remedy, code="wrong-count")
            return None
        if block[0] is None or block[1] is None:
            return None
        size = (block[0], block[1])
        grid = tuple(-(-s // b) for s, b in zip(reader.shape, size, strict=True))
        arrangement = within(reader, (*path, "arrangement"), keys["arrangement"], reader.ranks, grid)
        inside = keys.get("fill", 1.0)
        if is_number(inside):
            inside = {"hierarchical": [1.0, inside]}
        fill = within(reader, (*path, "fill"), inside, reader.ranks, size)
        if arrangement is None or fill is None:
            return None
        return reader.made(path, lambda: cls(reader.ranks, reader.shape, size, arrangement, fill))

    @property
    def independent(self) -> bool:
        """True if rectangles that cut no block are independent."""
        return self.arrangement.independent

    def apart(self, tile: tuple[int, int]) -> bool:
        blocks = [-(-t // b) for t, b in zip(tile, self.size_of_block, strict=True)]
        known = not self.arrangement.placeless and self.arrangement.max_label(blocks) != "bound"
        return self.arrangement.independent or known

    def cuts(self, rects: Ints) -> bool:
        size, end = np.array(self.size_of_block, dtype=np.int64), rects[:, :2] + rects[:, 2:]
        cut = (rects[:, :2] % size > 0) | ((end % size > 0) & (end < np.array(self.shape)))
        return bool(cut.any()) and not self.settled

    @cached_property
    def expected_nnz(self) -> float:
        sizes, counts = edge_classes(np.array(self.size_of_block), self.shape)
        parts = self.fill.expected(sizes)
        if (counts > 0).sum() == 1:
            return float(self.arrangement.expected_nnz * parts[0])
        whole = np.array([[0, 0, *self.shape]], dtype=np.int64)
        return float(self.regions().mean(whole)[0])

    @property
    def settled(self) -> bool:
        return self.arrangement.settled and self.fill.settled

    def square_multiplies(self) -> float:
        """Return the expected multiplications by itself: those of pairs of different blocks, which are filled
        independently, and those of each diagonal block by itself."""
        side, (block, other), grid = self.shape[0], self.size_of_block, self.arrangement.shape[0]
        if side != self.shape[1]:
            return super().square_multiplies()
        if block != other:
            known = self._multiplies_of_certain_lines()
            return super().square_multiplies() if known is None else known
        if side % block:
            what = f"a square of blocks of {block} that the end of the matrix, at {side}, cuts"
            message = f"{what}: there is no formula for its multiplications"
            raise Refused(message, f"take a multiple of {block}", code="unsupported-density")
        start = np.arange(grid, dtype=np.int64)
        ones = np.ones_like(start)
        own = float(self.arrangement.regions().mean(np.stack([start, start, ones, ones], axis=1)).sum())
        line = np.arange(block, dtype=np.int64)
        zero, one = np.zeros_like(line), np.ones_like(line)
        inside = self.fill.regions()
        down = inside.mean(np.stack([zero, line, one * block, one], axis=1))
        along = inside.mean(np.stack([line, zero, one, one * block], axis=1))
        # The count of the arrangement includes each block on the diagonal once with itself.
        pairs = self.arrangement.square_multiplies() - own
        return pairs * float(down @ along) + own * self.fill.square_multiplies()

    def _multiplies_of_certain_lines(self) -> float | None:
        """Return the expected multiplications where each row, or each column, holds a fixed number of
        nonzeros; else None.

        A fixed number is independent of everything, so that the expectation of each product is the product of
        the expectations.
        """
        side = self.shape[0]
        if any(side % b for b in self.size_of_block):
            return None
        start, ones = np.arange(side, dtype=np.int64), np.ones(side, dtype=np.int64)
        rows = np.stack([start, 0 * start, ones, side * ones], axis=1)
        columns = np.stack([0 * start, start, side * ones, ones], axis=1)
        regions = self.regions()
        if not any((regions.variance(lines) == 0).all() for lines in (rows, columns)):
            return None
        return float(regions.mean(columns) @ regions.mean(rows))

    def regions(self) -> Regions:
        return self._regions

    @cached_property
    def _regions(self) -> OfBlocks:
        return OfBlocks(self.matrix, self.size_of_block, self.arrangement.regions(), self.fill)

    def kinds(self, tile: tuple[int, int]) -> Kinds:
        starts = [np.arange(0, s, t, dtype=np.int64) for s, t in zip(self.shape, tile, strict=True)]
        whole = [s // t for s, t in zip(self.shape, tile, strict=True)]
        if self.arrangement.placeless:
            sides = [self._phases(axis, starts[axis], tile[axis]) for axis in (0, 1)]
            rects, number = _crossed(sides[0], sides[1], tile, self.matrix)
        else:
            rects, number = self._listed(starts[0], starts[1], tile)
        full = number * (rects[:, 2:] == np.array(tile)).all(axis=1)
        single = number * self._different(rects, tile) if self.fill.settled else None
        return Kinds(rects, full, number, float(whole[0]) * whole[1], single)

    def _different(self, rects: Ints, tile: tuple[int, int]) -> Floats:
        """Return for each tile one over the number of tiles with the same content where blocks are not filled
        by chance: those beside it inside the same blocks."""
        result = np.ones(rects.shape[0])
        for axis, block in enumerate(self.size_of_block):
            start, size = rects[:, axis], rects[:, 2 + axis]
            first = start // block * block
            alike = np.minimum(first + block, self.shape[axis]) // tile[axis] + -first // tile[axis]
            inside = (start + size <= first + block) & (size == tile[axis])
            result /= np.where(inside & self._even[axis], np.maximum(alike, 1), 1)
        return result

    @cached_property
    def _even(self) -> tuple[bool, bool]:
        """Whether all rows, and all columns, of a block that is not filled by chance are equal."""
        height, width = self.size_of_block
        inside = self.fill.regions()
        at = np.indices((height, width)).reshape(2, -1).T
        means = inside.mean(np.concatenate((at, np.ones_like(at)), axis=1)).reshape(height, width)
        return bool((means == means[:1]).all()), bool((means == means[:, :1]).all())

    def _phases(self, axis: int, starts: Ints, size: int) -> tuple[Ints, Floats]:
        """Return one start along an axis for each combination of position in a block and size, and the number
        of starts with this combination."""
        key = np.stack([starts % self.size_of_block[axis], np.minimum(size, self.shape[axis] - starts)])
        _, first, number = np.unique(key, axis=1, return_index=True, return_counts=True)
        return starts[first], number.astype(np.float64)

    def _listed(self, rows: Ints, columns: Ints, tile: tuple[int, int]) -> tuple[Ints, Floats]:
        """Return tiles that may contain blocks, and the number of tiles that each represents."""
        height = np.minimum(tile[0], self.shape[0] - rows)
        low, high = self._regions.reach(rows, height)
        first, last = low // tile[1], np.minimum(-(-np.minimum(high, self.shape[1]) // tile[1]), columns.size)
        many = np.maximum(last - first, 0)
        weight = np.ones(rows.size)
        step = max(1, -(-int(many.sum()) // _MOST))
        if step > 1:
            # Equally spaced rows of tiles represent their neighbours. The last may be cut and counts once.
            chosen = np.append(np.arange(step // 2, rows.size - 1, step), rows.size - 1)
            weight = np.full(chosen.size, (rows.size - 1) / max(chosen.size - 1, 1))
            weight[-1] = 1.0
            rows, height, first, many = (x[chosen] for x in (rows, height, first, many))
        at = np.repeat(np.arange(rows.size), many)
        place = np.arange(at.size) - np.repeat(np.cumsum(many) - many, many) + first[at]
        width = np.minimum(tile[1], self.shape[1] - columns[place])
        rects = np.stack([rows[at], columns[place], height[at], width], axis=1)
        keys = self._regions.keys(rects)
        _, one, own = np.unique(keys, axis=0, return_index=True, return_inverse=True)
        many_alike = np.bincount(own.reshape(-1), weights=weight[at], minlength=one.size)
        return rects[one], many_alike.astype(np.float64)

    def draw(self, seed: int, name: str = "A") -> SparseTensor:
        where = self.arrangement.draw(seed).coords
        generator = np.random.default_rng((seed, 1))
        if where.shape[1] > 10**6:
            raise Refused(f"{where.shape[1]:,} drawn blocks", "draw a smaller matrix", code="too-large")
        size = np.array(self.size_of_block, dtype=np.int64)[:, None]
        block, within = self.fill.drawn_apart(generator, where.shape[1])
        coords = where[:, block] * size + within
        inside = (coords < np.array(self.shape)[:, None]).all(axis=0)
        return self.ones_at(coords[:, inside], name)


def _coins(ranks: tuple[str, ...], size: tuple[int, ...], share: float) -> Hierarchical:
    """Return the model of a block whose points are independently nonzero with this probability."""
    if len(ranks) != 2 or len(size) != 2:
        message = f"blocks of {list(size)} of {len(ranks)} ranks"
        raise SpecError([Diagnostic(message, "two of both", code="shape-mismatch")])
    return Hierarchical(ranks, size, (1.0, share))


def _crossed(
    rows: tuple[Ints, Floats], columns: tuple[Ints, Floats], tile: tuple[int, int], shape: tuple[int, int]
) -> tuple[Ints, Floats]:
    """Combine every row of tiles with every column of tiles."""
    start, start_1 = np.repeat(rows[0], columns[0].size), np.tile(columns[0], rows[0].size)
    sizes = (np.minimum(t, s - x) for t, s, x in zip(tile, shape, (start, start_1), strict=True))
    return np.stack([start, start_1, *sizes], axis=1), np.multiply.outer(rows[1], columns[1]).reshape(-1)


@dataclass(frozen=True, eq=False)
class OfBlocks(Regions):
    """Statistics of rectangles, which are divided into whole blocks and parts of blocks at the sides."""

    shape: tuple[int, int]
    block: tuple[int, int]
    arrangement: Regions
    fill: DensityModel

    def keys(self, rects: Ints) -> Ints:
        first, last = self._touched(rects)
        outer = self.arrangement.keys(np.concatenate([first, last - first], axis=1))
        size = np.array(self.block, dtype=np.int64)
        return np.concatenate([outer[:, :2] * size + rects[:, :2] % size, rects[:, 2:]], axis=1)

    def _touched(self, rects: Ints) -> tuple[Ints, Ints]:
        """Return the first block along each axis, and the one after the last."""
        size = np.array(self.block, dtype=np.int64)
        return rects[:, :2] // size, -(-(rects[:, :2] + rects[:, 2:]) // size)

    def reach(self, start: Ints, size: Ints) -> tuple[Ints, Ints]:
        first, last = start // self.block[0], -(-(start + size) // self.block[0])
        low, high = self.arrangement.reach(first, last - first)
        width = -(-self.shape[1] // self.block[1])
        return low * self.block[1], np.minimum(high, width) * self.block[1]

    def _parts(self, rects: Ints) -> list[tuple[Ints, Ints, Ints]]:
        """Return boxes of blocks, the size of the part of each block that they cover, and the rectangles that
        contain them."""
        segments = [_segments(rects[:, a], rects[:, 2 + a], self.block[a]) for a in (0, 1)]
        result = []
        for row, rows, height in segments[0]:
            for column, columns, width in segments[1]:
                own = np.flatnonzero((rows > 0) & (columns > 0))
                if own.size:
                    box = np.stack([row[own], column[own], rows[own], columns[own]], axis=1)
                    result.append((box, np.stack([height[own], width[own]], axis=1), own))
        return result

    def mean(self, rects: Ints) -> Floats:
        result = np.zeros(rects.shape[0])
        for box, part, own in self._parts(rects):
            result[own] += self.arrangement.mean(box) * self.fill.expected(part)
        return result

    def variance(self, rects: Ints) -> Floats:
        result = np.zeros(rects.shape[0])
        for box, part, own in self._parts(rects):
            held = self.fill.expected(part)
            result[own] += self.arrangement.mean(box) * self.fill.variance(part)
            result[own] += np.maximum(self.arrangement.variance(box), 0.0) * held**2
        return result

    def laws(self, rects: Ints) -> CountLaws:
        plain = super().laws(rects)
        most = np.zeros(rects.shape[0])
        for box, part, own in self._parts(rects):
            most[own] += self.arrangement.laws(box).most * part.prod(axis=1)
        return Compound(plain.mean, plain.variance, plain.log_empty, plain.sure, most, self, rects)

    def written(self, rects: Ints) -> Floats | None:
        """Return the probabilities of 0, 1, .. entries of each rectangle, for a random number of blocks, each
        filled independently.

        Return None where the distribution is too long to list.
        """
        most = int(super().laws(rects).far.max()) + 1
        parts = self._parts(rects)
        length = 1 << int(most).bit_length()
        result = np.ones((rects.shape[0], length // 2 + 1), dtype=np.complex128)
        for box, part, own in parts:
            held = self.arrangement.laws(box)
            blocks = int(held.reach.max()) + 1
            if (blocks + 1) * length > _WRITTEN:
                return None
            numbers = np.arange(blocks + 1)
            above = self.arrangement.above(box, numbers[:-1])
            tails = np.concatenate([np.ones((own.size, 1)), above], axis=1)
            chances = np.append(-np.diff(tails, axis=1), tails[:, -1:], axis=1)
            sizes, place = np.unique(part, axis=0, return_inverse=True)
            for i, size in enumerate(sizes):
                here = place.reshape(-1) == i
                one = self.fill.cdf(size, np.arange(int(size.prod()) + 1))
                moved = np.fft.rfft(np.diff(one, prepend=0.0), n=length)
                result[own[here]] *= chances[here] @ moved[None, :] ** numbers[:, None]
        return np.clip(np.fft.irfft(result, n=length, axis=1), 0.0, 1.0)

    def sure(self, rects: Ints) -> Floats:
        result = np.zeros(rects.shape[0])
        for box, part, own in self._parts(rects):
            held = np.where(self.fill.variance(part) == 0, self.fill.expected(part), 0.0)
            result[own] += self.arrangement.sure(box) * held
        return result

    def log_empty(self, rects: Ints) -> Floats:
        result = np.zeros(rects.shape[0])
        for box, part, own in self._parts(rects):
            result[own] += self.arrangement.laws(box).log_generating(self.fill.p_empty(part))
        return np.maximum(result, np.log(NEVER))

    def rows(self, rects: Ints) -> Floats:
        result = np.zeros(rects.shape[0])
        columns = _segments(rects[:, 1], rects[:, 3], self.block[1])
        for row, rows, height in _segments(rects[:, 0], rects[:, 2], self.block[0]):
            at = np.repeat(np.arange(rects.shape[0]), rows)
            line = np.arange(at.size) - np.repeat(np.cumsum(rows) - rows, rows) + row[at]
            none = np.zeros(at.size)
            for column, many, width in columns:
                own = many[at] > 0
                here = at[own]
                ones = np.ones(here.size, dtype=np.int64)
                box = np.stack([line[own], column[here], ones, many[here]], axis=1)
                part = np.stack([ones, width[here]], axis=1)
                none[own] += self.arrangement.laws(box).log_generating(self.fill.p_empty(part))
            np.add.at(result, at, height[at] * -np.expm1(none))
        return result


@dataclass(frozen=True, eq=False)
class Compound(CountLaws):
    """Distributions of counts of independently filled blocks: listed, or matched by moments where the list
    would be too long."""

    regions: OfBlocks
    rects: Ints

    @property
    def reach(self) -> Floats:
        """A value that is exceeded with probability e^-40; entries of a block come together."""
        return self.far

    def alike(self) -> tuple[Ints, Ints]:
        every = np.arange(self.mean.size)  # of different arrangements with the same moments
        return every, every

    def only(self, chosen: Ints) -> Compound:
        plain = super().only(chosen)
        return Compound(
            plain.mean, plain.variance, plain.log_empty, plain.sure, plain.most, self.regions,
            self.rects[chosen],
        )  # fmt: skip

    def _above(self, s: Floats) -> Floats:
        result = np.empty(np.broadcast_shapes(s.shape, (self.mean.size, 1)))
        length = 1 << int(self.reach.max(initial=1.0)).bit_length()
        step = max(1, _ENTRIES // length)
        for start in range(0, self.mean.size, step):
            own = np.arange(start, min(start + step, self.mean.size))
            asked = s[own] if s.shape[0] > 1 else s
            written = self.regions.written(self.rects[own])
            if written is None:
                result[own] = CountLaws._above(CountLaws.only(self, own), asked)
                continue
            tails = np.cumsum(written[:, ::-1], axis=1)[:, ::-1]
            place = np.clip(np.floor(asked) + 1, 0, tails.shape[1] - 1).astype(np.int64)
            beyond = np.floor(asked) + 1 > tails.shape[1] - 1
            value = np.take_along_axis(tails, np.broadcast_to(place, result[own].shape), axis=1)
            result[own] = np.where(beyond, 0.0, np.minimum(value, 1.0))
        return result


def _segments(start: Ints, size: Ints, block: int) -> list[tuple[Ints, Ints, Ints]]:
    """Divide intervals at multiples of `block` into a part of a block, whole blocks and a part of a block.

    Return for each the first block, the number of blocks, and the size of the part of a block (1 where there
    is none).
    """
    first, end = start // block, start + size
    last = (end - 1) // block
    border = (first + 1) * block
    head = np.where((start % block > 0) | (end < border), np.minimum(end, border) - start, 0)
    tail = np.where((last > first) & (end % block > 0), end - last * block, 0)
    heads, tails = head > 0, tail > 0
    whole = last - first + 1 - heads - tails
    return [
        (first, heads.astype(np.int64), np.maximum(head, 1)),
        (first + heads, whole, np.full_like(start, block)),
        (last, tails.astype(np.int64), np.maximum(tail, 1)),
    ]
