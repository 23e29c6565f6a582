"""Compare the predictions of density models for a tensor with its data, to show how far a model can be
trusted.

Three models are compared: `uniform` has the number of nonzeros, `rows` also the nonzeros of each row (fiber
of the top rank), `actual` every nonzero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from polymodel.errors import Diagnostic, Refused, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density import Actual, DensityModel, RankNnz, Uniform
from polymodel.sparse.density.slices import SliceCosts, greedy
from polymodel.sparse.formats import Format, footprint, parse_format
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import as_whole, listed, shown

TILES, SLICES = (16, 128), 8
# The most entries of a histogram of rows, and of the loads of slices, which are stored individually.
MOST_ROWS = 20_000_000
MOST_SLICES = 65_536


@dataclass(frozen=True)
class Prediction:
    """One quantity of one tensor: the value for its data, and the expectation of each model (None:
    refused)."""

    tensor: str
    quantity: str
    unit: str
    actual: float
    uniform: float | None
    rows: float | None

    def error(self, model: str) -> float | None:
        """Return (predicted - actual) / actual of model `uniform` or `rows`; None where the model refuses the
        quantity."""
        result: float | None = getattr(self, model)
        return (result - self.actual) / self.actual if result is not None and self.actual else None


def predictions(
    tensor: SparseTensor, *, tiles: Sequence[int] = TILES, slices: int = SLICES
) -> tuple[Prediction, ...]:
    """Return every quantity of a tensor under the three models. All `actual` numbers are exact.

    `tiles`: sizes of tiles, each the same in every rank (limited to the rank). `slices`: number of parts to
    which rows are assigned (`uniform_slice`). Raises SpecError for sizes and numbers below 1, and for an
    empty tensor.
    """
    faults = [
        Diagnostic(f"{what} {shown(n)}", "a whole number of at least 1", argument,
                   code="not-positive-integer")
        for argument, what, numbers in (
            ("tiles", "tiles of size", listed("tiles", tiles, "[16, 64]")), ("slices", "slices", (slices,)),
        )
        for n in numbers
        if (as_whole(n) or 0) < 1
    ]  # fmt: skip
    if not faults and slices > MOST_SLICES:
        faults.append(Diagnostic(f"slices {slices}", f"at most {MOST_SLICES:,}", code="out-of-range"))
    if not tensor.ranks or not tensor.nnz:
        what = f"{tensor.name} has no nonzeros in any rank: nothing to predict"
        remedy = "leave it out, or see whether the file is the right one"
        faults.append(Diagnostic(what, remedy, code="empty-tensor"))
    if faults:
        raise SpecError(faults)
    if tensor.shape[0] > MOST_ROWS:
        what = f"{tensor.shape[0]:,} rows: a histogram of more than {MOST_ROWS:,} is not made"
        raise Refused(what, "leave out empty rows, or take a part of the tensor", code="too-large")
    models: tuple[DensityModel, ...] = (
        Actual.of(tensor),
        Uniform.of(tensor.ranks, tensor.shape, nnz=tensor.nnz),
        RankNnz.from_tensor(tensor),
    )
    dealt: dict[int, SliceCosts] = {}
    result = []
    for quantity, unit, answer in _questions(tensor, tuple(tiles), slices, dealt):
        actual, uniform, rows = (_answered(answer, m) for m in models)
        if actual is not None:
            result.append(Prediction(tensor.name, quantity, unit, actual, uniform, rows))
    return tuple(result)


Answer = Callable[[DensityModel], float]
Question = tuple[str, str, Answer]


def _answered(answer: Answer, model: DensityModel) -> float | None:
    try:
        return float(answer(model))
    except Refused:
        return None


def _questions(
    tensor: SparseTensor, tiles: tuple[int, ...], slices: int, dealt: dict[int, SliceCosts]
) -> Iterator[Question]:
    order = len(tensor.ranks)
    yield "nonempty rows", "rows", _fibers(1)
    for depth in range(2, order):
        yield f"nonempty ({', '.join(tensor.ranks[:depth])}) fibers", "fibers", _fibers(depth)
    for tile in dict.fromkeys(tuple(min(size, s) for s in tensor.shape) for size in tiles):
        shown = " x ".join(map(str, tile))
        yield f"nonempty tiles of {shown}", "tiles", _tiles(tile)
        yield f"fullest tile of {shown}", "nonzeros", _fullest(tile)
    for name in ("COO", "CSR", "DCSR") if order == 2 else ("COO", "CSF"):
        yield f"{name} footprint", "bit", _bits(parse_format(name, tensor.ranks))

    def deal(model: DensityModel) -> SliceCosts:
        if id(model) not in dealt:
            dealt[id(model)] = greedy(model, slices)
        return dealt[id(model)]

    yield f"fullest of {slices} slices", "nonzeros", lambda m: deal(m).max_load
    yield f"lock-step time of {slices} slices", "steps", lambda m: deal(m).lockstep
    if order == 2 and tensor.shape[0] == tensor.shape[1]:
        yield f"multiplies of {tensor.name} x {tensor.name}", "multiplies", lambda m: m.square_multiplies()


def _fibers(depth: int) -> Answer:
    return lambda model: float(model.expected_fibers(depth))


def _tiles(tile: tuple[int, ...]) -> Answer:
    return lambda model: float(model.expected_tiles(tile))


def _fullest(tile: tuple[int, ...]) -> Answer:
    return lambda model: float(model.expected_max(tile))


def _bits(kind: Format) -> Answer:
    return lambda m: float(footprint(m, kind).total)
