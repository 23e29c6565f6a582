"""One row of a sweep as a pandas Series that prints its figures as they are, with their units."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    Series = pd.Series[Any]
else:
    Series = pd.Series


class SweepRow(Series):
    """A row of `Sweep.frame`; its text shows integers in full and floats to the last significant digit.

    Pandas rounds floats to six decimal places, which leaves nothing of an energy in joules.
    """

    @property
    def _constructor(self) -> type[Series]:
        """Results computed from a row are ordinary Series."""
        return Series

    def __repr__(self) -> str:
        units = self.attrs.get("units", {})
        names = [str(n) for n in self.index]
        values = [str(v) for v in self.to_numpy()]
        ends = [units.get(n, "") for n in names]
        wide, high = max(map(len, names), default=0), max(map(len, values), default=0)
        cells = zip(names, values, ends, strict=True)
        return "\n".join(f"{n.ljust(wide)}  {v.rjust(high)} {u}".rstrip() for n, v, u in cells)
