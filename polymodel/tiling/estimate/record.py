"""What an estimate says."""

from __future__ import annotations

from dataclasses import dataclass

from polymodel.sparse.density.model import Label


@dataclass(frozen=True)
class Estimate:
    """The tiling that a tiler is expected to make of data that are known by a density model only.

    `tiles`: all; `nonempty`: those where A or B has entries; `kernels`: those launched. Cycles: to configure
    the kernels, to run them, and both. `label`: `expected`, `exact` where the model is the data, `bound`.
    `method`: how it was found, in words; `notes`: approximations.
    """

    tiler: str
    op: str
    tiles: float
    nonempty: float
    kernels: float
    config_cycles: float
    run_cycles: float
    label: Label
    method: str
    notes: tuple[str, ...] = ()

    @property
    def total_cycles(self) -> float:
        return self.config_cycles + self.run_cycles


@dataclass(frozen=True)
class Sums:
    """Expected sums over the tiles of a tiling: their number, the nonempty, those that can have a result
    (`useful`), and the cycles of these without ramps."""

    tiles: float
    nonempty: float
    useful: float
    tokens: float
    method: str
    notes: tuple[str, ...] = ()
