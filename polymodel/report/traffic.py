"""The traffic of a TeAAL spec on data, in tables: bits per memory and tensor, counts per unit, times."""

from __future__ import annotations

from polymodel.frozen import dataclass
from polymodel.sparse.traffic.records import CascadeTraffic
from polymodel.spec.faults import not_a
from polymodel.view.answer import Answer, Block, Section, declared
from polymodel.view.table import Table


@dataclass(frozen=True, repr=False)
class TrafficReport(Answer):
    """The data moved: DataFrames `memories` (bits per Einsum, memory and tensor) and `units` (counts).

    The `time` of a memory or unit (s) is in its first row. It prints as text and displays as HTML in
    notebooks.
    """

    traffic: CascadeTraffic

    def __post_init__(self) -> None:
        if not isinstance(self.traffic, CascadeTraffic):
            raise not_a("record of traffic", "TrafficReport", self.traffic, "pass what pm.traffic(...) gives")

    @declared(title="Bits moved")
    def memories(self) -> Table:
        """Bits read and written per Einsum, memory and tensor; `note` gives the transfers that instances
        share."""
        return self.traffic.table("memories")

    @declared(title="Work of units")
    def units(self) -> Table:
        """Counts per Einsum, unit and kind of operation."""
        return self.traffic.table("units")

    @property
    def notes(self) -> tuple[str, ...]:
        """The Einsums that run concurrently, the total time, and the meaning of the numbers."""
        return self.traffic.notes

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that the spec was read from."""
        return self.traffic.sources

    @property
    def title(self) -> str:
        """The heading of its page."""
        return self.traffic.title

    def content(self, live: bool = True) -> list[Block]:
        """What the traffic shows."""
        return self.traffic.content(live)

    def sections(self) -> list[Section]:
        """The tables that have rows, without uninformative columns."""
        return self.traffic.sections()

    def __repr__(self) -> str:
        return f"TrafficReport({', '.join(e.einsum for e in self.traffic.einsums)})"
