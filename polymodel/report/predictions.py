"""Predicted against actual: the expectations of density models for real tensors, as a table with errors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from functools import cached_property

from polymodel.frozen import dataclass
from polymodel.sparse.predicted import Prediction
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import Cell, Column, Table

# An error of this size is reported as skew: the data are distributed otherwise than the model assumes.
FAR = 0.25
_NOTE = "actual: exact counts of the data; uniform, rows: expected values of the two models"


@dataclass(frozen=True, repr=False)
class Predictions(Answer):
    """Quantities of tensors under density models: `frame` is a DataFrame, `notes` warn of large errors.

    Columns: tensor, quantity, unit, `actual` (exact), `uniform` (knows the number of nonzeros), `rows` (knows
    the nonzeros of each row), and the relative error of both, (predicted - actual) / actual.
    """

    found: tuple[Prediction, ...]
    warned: tuple[str, ...] = field(default_factory=tuple)

    @declared(title="Expectations of density models, next to exact counts")
    def quantities(self) -> Table:
        """One row per tensor and quantity."""
        columns = (
            Column("tensor"), Column("quantity"), Column("unit"), Column("actual", "element"),
            Column("uniform", "element"), Column("uniform_error", "1"), Column("rows", "element"),
            Column("rows_error", "1"),
        )  # fmt: skip
        return Table("predictions", columns, tuple(_row(p) for p in self.found), self.notes)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """The meaning of the columns, and the tensors for which a model has large errors."""
        return (_NOTE, *self.warned, *_far(self.found))

    def __repr__(self) -> str:
        names = ", ".join(dict.fromkeys(p.tensor for p in self.found))
        return f"Predictions({names})"

    @property
    def title(self) -> str:
        """The heading of its page."""
        return "Predicted and actual"

    def content(self, live: bool = True) -> list[Block]:
        """A table per tensor."""
        result: list[Block] = []
        own = [c.name for c in self.table("quantities").columns[1:]]
        for name in dict.fromkeys(p.tensor for p in self.found):
            mine = self.table("quantities").only("tensor", *own).of(name)
            result += [Section(name, mine, opened=True), Line()]
        return [*result, *notes(self.notes)]


def _row(p: Prediction) -> tuple[Cell, ...]:
    whole = int(p.actual) if float(p.actual).is_integer() else p.actual
    return p.tensor, p.quantity, p.unit, whole, p.uniform, p.error("uniform"), p.rows, p.error("rows")


def _far(found: Sequence[Prediction]) -> list[str]:
    told = []
    for name in dict.fromkeys(p.tensor for p in found):
        errors = [(p, p.error("rows")) for p in found if p.tensor == name]
        worst = max(errors, key=lambda pair: abs(pair[1] or 0.0))
        if worst[1] is not None and abs(worst[1]) > FAR:
            told.append(
                f"{name}: its nonzeros cluster within rows, which neither model knows ({worst[0].quantity}: "
                f"{100 * worst[1]:+.0f} %); give the tensor itself (`actual`) where tiles matter, or "
                "look for a model of its structure (`pm.fit_density`, `polymodel sparse FILE --fit`)"
            )
    return told
