"""The tables that a report has in numbers and in closed form, each as a DataFrame."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import pandas


class Framed(Protocol):
    """A table that can be shown as a DataFrame."""

    def frame(self) -> pandas.DataFrame: ...


class Frames(ABC):
    """Attributes for the common tables; what a row is stands at the functions of `counted` and `costed`."""

    @abstractmethod
    def table(self, name: str) -> Framed:
        """One of the tables below by its name."""

    @property
    def tiles(self) -> pandas.DataFrame:
        """Tile sizes, their sums over all stamps, and how many stamps there are."""
        return self.table("tiles").frame()

    @property
    def accesses(self) -> pandas.DataFrame:
        """Reads, writes, fills and drains, all instances and executions."""
        return self.table("accesses").frame()

    @property
    def reuse(self) -> pandas.DataFrame:
        """Different elements held, bits exchanged with the parent, accesses."""
        return self.table("reuse").frame()

    @property
    def working_sets(self) -> pandas.DataFrame:
        """Peaks over the phases, against capacities, by each `measure`.

        `checked` marks the one that the capacity is held against: `query("checked")` before you look for the
        largest, since `reserved` ignores lifetimes.
        """
        return self.table("working_sets").frame()

    @property
    def latency(self) -> pandas.DataFrame:
        """Seconds per Einsum and component."""
        return self.table("latency").frame()

    @property
    def energy(self) -> pandas.DataFrame:
        """Joules per action, with provenance."""
        return self.table("energy").frame()

    @property
    def summary(self) -> pandas.DataFrame:
        """Operations, seconds and joules per Einsum and in all."""
        return self.table("summary").frame()
