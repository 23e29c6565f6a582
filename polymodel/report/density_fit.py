"""The density model that describes a matrix: the chosen one, the others, and the error of each."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from os import PathLike

from polymodel.errors import Diagnostic, SpecError
from polymodel.frozen import dataclass
from polymodel.sparse.density.choice import TILES, UNITS, Choice, choose
from polymodel.sparse.density.model import DensityModel
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.faults import as_whole, listed, not_a, shown
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import Cell, Column, Table

_NOTE = (
    "behind: by how much the logarithm of the likelihood of the tiles held out is less than that of the best "
    "model, with its standard error; worst: the largest error in the table below"
)
_FROM_FILES = ("row_column", "sampled")  # the kinds that a workload can fit to a file
_READ = "in a workload: densities: {{TENSOR: {{{}: {{file: MATRIX.mtx}}}}}}"
_NONE = "no model is near the data in all quantities: the one that tells the tiles held out best is chosen"


@dataclass(frozen=True, repr=False)
class DensityFit(Answer):
    """The density model chosen for a matrix: `model`, its kind `name`; `models` and `errors` are DataFrames
    of all that were tried.

    Each kind of model is fitted to three fifths of the matrix and judged by the likelihood of the tiles of
    the rest; then it is fitted to the whole matrix and compared with exact counts. Among the models whose
    counts are close (10 %, 20 % for the fullest tile and unit; among all, if none is) the one with the
    highest likelihood is chosen; a simpler one within the standard error is preferred.
    """

    tensor: str
    choice: Choice

    @property
    def model(self) -> DensityModel:
        """The chosen model, fitted to the whole matrix."""
        return self.choice.chosen.model

    @property
    def name(self) -> str:
        """The kind of the chosen model."""
        return self.choice.chosen.name

    @declared(title="Models, the simplest first")
    def models(self) -> Table:
        """One row per model that was tried."""
        columns = (
            Column("model"), Column("chosen"), Column("likelihood"), Column("behind"),
            Column("standard_error"), Column("worst", "1"), Column("worst_quantity"),
        )  # fmt: skip
        rows: list[tuple[Cell, ...]] = []
        for one in self.choice.tried:
            far = max(one.compared, key=lambda c: -1.0 if c.error is None else abs(c.error))
            rows.append(
                (one.name, "yes" if one is self.choice.chosen else "", one.likelihood, one.behind, one.error,
                 far.error, far.quantity)
            )  # fmt: skip
        return Table("models", columns, tuple(rows), self.notes)

    @declared(title="Expectations of the models, next to exact counts")
    def errors(self) -> Table:
        """One row per model and quantity; `error` is (expected - actual) / actual."""
        columns = (
            Column("model"), Column("quantity"), Column("unit"), Column("actual", "element"),
            Column("expected", "element"), Column("error", "1"),
        )  # fmt: skip
        rows = [
            (one.name, c.quantity, c.unit, c.actual, c.expected, c.error)
            for one in self.choice.tried
            for c in one.compared
        ]
        return Table("errors", columns, tuple(rows))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """The meaning of the columns, and warnings about large errors."""
        result = (_NOTE,) if self.choice.chosen.near else (_NOTE, _NONE)
        return (*result, _READ.format(self.name)) if self.name in _FROM_FILES else result

    def __repr__(self) -> str:
        return f"DensityFit({self.tensor}: {self.model!r})"

    @property
    def title(self) -> str:
        """The heading of its page."""
        return f"Density model of {self.tensor}"

    def content(self, live: bool = True) -> list[Block]:
        """The models, then the expectations of the chosen one."""
        mine = self.table("errors").only("model", "quantity", "unit", "actual", "expected", "error")
        tried = self.table("models")
        return [
            Section("Models, the simplest first", Table(tried.name, tried.columns, tried.rows), opened=True),
            Line(),
            Section(repr(self.model), mine.of(self.name), opened=True),
            Line(),
            *notes(self.notes),
        ]


def fit_density(
    source: SparseTensor | str | PathLike[str],
    *,
    tiles: Sequence[int] = TILES,
    units: int = UNITS,
    ranks: Sequence[str] | None = None,
) -> DensityFit:
    """The density model that describes a matrix best, and the errors of those that were tried.

    Tried are `Uniform`, `FixedStructured`, `Diagonals`, `Blocks` (at random positions, n of every m, and on
    diagonals), `RowColumn` and `Sampled`. `tiles`: sizes of tiles whose counts are compared, the same for
    rows and columns; `units`: numbers of parts of consecutive rows whose loads are compared; `ranks`: names
    of the ranks of a file, see `read_tensor`. Raises SpecError for an empty matrix, sizes and numbers below
    1; Refused for tensors of other than two ranks.
    """
    from polymodel.sparse.files import read_file

    if not isinstance(source, (SparseTensor, str, PathLike)):
        raise not_a("sparse tensor or file", "fit_density", source, "pass e.g. 'matrix.mtx.gz'")
    sizes = listed("tiles", tiles, "[16, 64]")
    faults = [
        Diagnostic(
            f"{what} {shown(n)}", "a whole number of at least 1", argument, code="not-positive-integer"
        )
        for argument, what, numbers in (("tiles", "tiles of size", sizes), ("units", "units", (units,)))
        for n in numbers
        if (as_whole(n) or 0) < 1
    ]
    if faults:
        raise SpecError(faults)
    tensor = source if isinstance(source, SparseTensor) else read_file(source, ranks=ranks).tensor
    return DensityFit(tensor.name, choose(tensor, [as_whole(n) or 1 for n in sizes], units))
