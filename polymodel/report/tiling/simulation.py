"""Simulated tiles next to the model: cycles by term, and the cause of each difference."""

from __future__ import annotations

from polymodel.frozen import dataclass
from polymodel.spec.faults import check_classes
from polymodel.tiling.cost.blocks import TERMS, Kind
from polymodel.tiling.simulate.launched import SimulatedLaunch
from polymodel.view.answer import Answer, Block, Line, Section, declared, notes
from polymodel.view.table import Column, Table

WAITING = "the end of a fiber is known with the first token of the next one"
CAUSES: dict[Kind, dict[str, str]] = {
    "add": {"waiting": f"where one operand's row ends early, {WAITING}"},
    "multiply": {"waiting": f"the merge of columns waits for rows that both have; {WAITING}"},
    "spmv": {
        "entries": "every entry of A locates an entry of the vector, zeros too",
        "ends": "a stop after each row of A",
        "waiting": WAITING,
    },
    "spmm": {
        "ends": "a stop after each row of B that is read, one for every entry of A",
        "waiting": f"{WAITING}, and rows of B without entries have none in between",
        "sending": "entries of the last rows of Z are sent after their last product",
        "ramp": "more blocks in a row than in the dataflow that the model was fitted to",
    },
}
_NAMES: dict[Kind, str] = {
    "add": "add",
    "multiply": "multiply",
    "spmv": "matrix times vector",
    "spmm": "matrix times matrix, row by row",
}


@dataclass(frozen=True, eq=False)
class TileSimulation(Answer):
    """Launched tiles, simulated on blocks that process one token per cycle. `name`: of the tiling;
    `launches`: the number of all launched tiles; `tiles_run`: the simulated ones, in their order."""

    name: str
    kind: Kind
    launches: int
    tiles_run: tuple[SimulatedLaunch, ...]

    def __post_init__(self) -> None:
        remedy = "pm.tile(...).simulate() makes one"
        check_classes(self, remedy, {"name": str, "tiles_run": tuple})

    @property
    def cycles(self) -> int:
        """Total cycles of the simulated tiles."""
        return sum(x.simulated.cycles for x in self.tiles_run)

    @property
    def modelled(self) -> int:
        """Total cycles of these tiles under the model."""
        return sum(x.modelled.cycles for x in self.tiles_run)

    @property
    def equal(self) -> int:
        """The number of tiles for which the model gives the simulated cycles."""
        return sum(x.simulated.cycles == x.modelled.cycles for x in self.tiles_run)

    @property
    def unexplained(self) -> int:
        """The number of tiles for which some term differs from the rules of the blocks; it should be 0."""
        return sum(x.simulated != x.ruled for x in self.tiles_run)

    def causes(self, launch: SimulatedLaunch) -> str:
        """The reasons why a simulated tile takes other cycles than under the model, by the terms that differ;
        empty where all terms are equal."""
        differ = (t for t in TERMS if getattr(launch.simulated, t) != getattr(launch.modelled, t))
        return "; ".join(CAUSES[self.kind].get(term, f"{term}: no rule explains it") for term in differ)

    @declared
    def terms(self) -> Table:
        """Cycles of all simulated tiles by term, with the cause of each difference."""
        columns = (
            Column("term", words="what the cycles are spent on"),
            Column("model", "cycle", words="cycles by the model"),
            Column("by_rule", "cycle", words="cycles by the rules of the blocks, from the data alone"),
            Column("simulated", "cycle", words="cycles in the simulation"),
            Column("difference", "cycle", words="simulated cycles less those of the model"),
            Column("cause", words="where the difference comes from"),
        )
        rows = []
        for term in TERMS:
            of = (x.modelled for x in self.tiles_run), (x.ruled for x in self.tiles_run)
            model, ruled = (sum(getattr(t, term) for t in each) for each in of)
            found = sum(getattr(x.simulated, term) for x in self.tiles_run)
            cause = CAUSES[self.kind].get(term, "") if found != model else ""
            rows.append((term, model, ruled, found, found - model, cause))
        return Table("terms", columns, tuple(rows))

    @declared
    def tiles(self) -> Table:
        """One row per simulated tile: cycles by the model and simulated, and the difference by terms."""
        columns = (
            Column("tile"),
            Column("nnz_a"),
            Column("nnz_b"),
            Column("model", "cycle", words="cycles by the model"),
            Column("simulated", "cycle", words="cycles in the simulation"),
            *(Column(f"{t}_difference", "cycle", words=f"simulated less modelled: {t}") for t in TERMS),
            Column("explained", words="whether the rules of the blocks come to the same in every term"),
            Column("cause", words="where the differences come from"),
        )
        rows = tuple(
            (
                x.tile, x.nnz_a, x.nnz_b, x.modelled.cycles, x.simulated.cycles,
                *(getattr(x.simulated, t) - getattr(x.modelled, t) for t in TERMS), x.simulated == x.ruled,
                self.causes(x),
            )
            for x in self.tiles_run
        )  # fmt: skip
        return Table("tiles", columns, rows)

    @property
    def title(self) -> str:
        """What was simulated."""
        some = f"{len(self.tiles_run):,} of {self.launches:,} launched tiles"
        return f"{self.name}: {some}, simulated ({_NAMES[self.kind]})"

    @property
    def notes(self) -> tuple[str, ...]:
        """The accuracy of the model, and what was simulated."""
        said = [
            f"cycles: {self.cycles:,} simulated, {self.modelled:,} by the model; equal on {self.equal:,} of "
            f"{len(self.tiles_run):,} tiles",
            "the simulation: blocks that take a token a cycle, operands in place, one multiply a cycle; no "
            "configuration, no memory behind",
        ]
        if self.unexplained:
            said.append(f"{self.unexplained:,} tiles take cycles that no rule explains")
        return tuple(said)

    def content(self, live: bool = True) -> list[Block]:
        """The terms, and explanations of the figures."""
        shown = Section("terms", self.table("terms"), opened=True)
        return [Line(self.title), Line(), shown, Line(), *notes(self.notes)]

    def __repr__(self) -> str:
        return f"TileSimulation({self.title}: {self.cycles:,} cycles, {self.modelled:,} by the model)"
