"""The result of a co-design: machines with their best mappings, and the quality of the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from math import inf, isinf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError, masked
from polymodel.hardware.networks import NetworkLayers
from polymodel.hardware.points import CodesignPoint, MachineRow
from polymodel.hardware.request import COSTS, CodesignRequest, NetworkLimit
from polymodel.libraries import installed
from polymodel.loading import Spec
from polymodel.loading.spec import protected_files
from polymodel.mapper.confirm import loose_peaks
from polymodel.mapper.records import FROM_ABOVE, Limits, gap_of, gap_texts, share_text
from polymodel.objectives import canonical, of_network, unit_of, whose
from polymodel.report import tables
from polymodel.spec.faults import suggestion
from polymodel.spec.files import write_text
from polymodel.sweeps.grid import Grid
from polymodel.view.answer import Answer, Block, Line, Part, Section, declared
from polymodel.view.figures import bar_axes
from polymodel.view.files import saved_text
from polymodel.view.table import Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.search_page import Plot

SHOWN = 20
_NO_BLOCK = "(no block)"
_LIMITED = (Column("nearest limit"), Column("of it", "1"))


def _limited(point: CodesignPoint, limits: Sequence[NetworkLimit]) -> tuple[Cell, ...]:
    """The limit of which a point uses the largest share, and that share; empty without limits."""
    if not limits:
        return ()
    shares = {limit.name: limit.share(point.figures[limit.name]) for limit in reversed(limits)}
    nearest = max(reversed(shares), key=lambda name: shares[name])
    return nearest, shares[nearest]


def _counted(machines: int) -> str:
    return f"{machines} machine{'s' * (machines != 1)}"


def _excess(row: MachineRow, objective: str, least: float) -> str:
    """A machine, and the relative distance of its least figure found from the least figure of all
    machines."""
    found = row.least[objective]
    if found is None:
        return f"{row.machine.name} (no mapping found)"
    return f"{row.machine.name} (now {share_text(found / least - 1)} more)" if least else row.machine.name


def _gap(row: MachineRow) -> float | None:
    """The largest relative gap between a machine's least figures and its optimum; None if unknown."""
    if row.complete:
        return 0.0
    known = ((row.least[n], bound) for n, bound in row.bounds.items())
    gaps = [inf if least is None else gap_of(least, bound) for least, bound in known]
    return None if isinf(max(gaps)) else max(gaps)


@dataclass(frozen=True, eq=False)
class Codesign(Answer):
    """The joint front of machines and mappings, sorted by the first objective. `found[i]` is a
    `CodesignPoint` with `.machine.symbols`, `.specs`, `.reports`, `.yaml(layer)`; layers are those of all
    networks. `refused`: reason -> number of invalid machines; `searches`: number of searches;
    `stopped`: `time` with a time limit, `interrupted` after Ctrl-C, else empty."""

    work: NetworkLayers
    grid: Grid
    request: CodesignRequest
    points: tuple[CodesignPoint, ...]
    rows: tuple[MachineRow, ...]
    refused: Mapping[str, int]
    searches: int
    eps: float
    seconds: float
    stopped: str = ""

    @property
    def interrupted(self) -> bool:
        """Whether Ctrl-C ended it."""
        return self.stopped == "interrupted"

    @property
    def layers(self) -> tuple[Spec, ...]:
        """The layers of all networks, in sequence."""
        return self.work.specs

    @property
    def times(self) -> tuple[int, ...]:
        """The number of executions of each layer in one run of its network."""
        return self.work.times

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.request.objectives

    @property
    def complete(self) -> bool:
        """False if a search ended before it had covered every mapping."""
        return all(r.complete for r in self.rows)

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Per objective a lower bound over every machine and mapping: exact for machines that were searched
        completely. Infinite if none of them has a mapping."""
        return {o: min(self._bounds(o), default=inf) for o in self.objectives}

    def _bounds(self, objective: str) -> Iterator[float]:
        for row in self.rows:
            least = row.least[objective] if row.complete else row.bounds[objective]
            if least is not None:
                yield least

    @cached_property
    def gaps(self) -> dict[str, float]:
        """Per objective the largest possible relative gap between the least here and the optimum; 0 is exact,
        infinite is unknown. The margin `eps` comes on top of it."""
        if not self.points:
            return dict.fromkeys(self.objectives, 0.0 if self.complete else inf)
        return {o: gap_of(self.best(o).figures[o], bound) for o, bound in self.bounds.items()}

    @property
    def gap(self) -> float:
        """The largest of the gaps."""
        return max(self.gaps.values())

    def __len__(self) -> int:
        return len(self.points)

    def __getitem__(self, number: int) -> CodesignPoint:
        return self.points[number]

    def best(self, objective: str = "") -> CodesignPoint:
        """The point with the least value of an objective (default: the first one). Raises SpecError if there
        is none."""
        name = canonical(objective) if objective else self.objectives[0]
        if name not in self.objectives:
            near = suggestion(name, self.objectives, "objectives")
            message = f"the front is not over {name}"
            raise SpecError([Diagnostic(message, near, "objective", code="unknown-choice")])
        if not self.points:
            reasons = "; ".join(list(dict.fromkeys(r.reason for r in self.rows))[:3])
            message = "no machine has a mapping that keeps the limits"
            raise SpecError([Diagnostic(message, reasons, code="no-solution")])
        return min(self.points, key=lambda p: p.figures[name])

    @declared(title="Nondominated machines and mappings")
    def front(self) -> Table:
        """One row per point of the joint front: symbols of the machine, objectives, energy, latency and area.
        With limits, the limit of which it uses the largest share, and that share."""
        symbols = list(self._symbols)
        names = list(dict.fromkeys([*self.objectives, *COSTS, "area"]))
        columns = [Column("point"), *(Column(n, given=True) for n in symbols)]
        columns += [Column(n, unit_of(n)) for n in names]
        columns += _LIMITED if self.request.limits else ()
        rows: list[tuple[Cell, ...]] = [
            (
                i, *(p.machine.symbols[n] for n in symbols), *(p.figures[n] for n in names),
                *_limited(p, self.request.limits),
            )
            for i, p in enumerate(self.points)
        ]  # fmt: skip
        return Table("front", tuple(columns), tuple(rows), self.notes)

    @declared(title="Networks")
    def networks(self) -> Table:
        """One row per point of the joint front and network: its weight, the costs of one run, and the one of
        its own limits of which it uses the largest share, with that share. Empty if layers have no
        network."""
        known = self.work.networks if self.work.names else ()
        asked = (n for network in known for n in self.request.figures_of(network.name))
        names = list(dict.fromkeys([*COSTS, *asked]))
        limits = {n.name: self.request.limits_of(n.name) for n in known}
        columns = [Column("point"), Column("network"), Column("weight")]
        columns += [Column(n, unit_of(n)) for n in names]
        columns += _LIMITED if any(limits.values()) else ()
        rows: list[tuple[Cell, ...]] = [
            (
                i, n.name, n.weight, *(p.figures.get(of_network(name, n.name)) for name in names),
                *(_limited(p, limits[n.name]) or (("", None) if any(limits.values()) else ())),
            )
            for i, p in enumerate(self.points)
            for n in known
        ]  # fmt: skip
        return Table("networks", tuple(columns), tuple(rows))

    @property
    def tables(self) -> tuple[str, ...]:
        """The names of its tables, without those whose mappings were not evaluated before the end of a time
        limit."""
        return tuple(n for n in self.declared if n not in self._unevaluated)

    def listed(self, live: bool = True) -> Iterator[tuple[str, Table]]:
        """The tables with content: `networks` only if networks have names, `blocks` only if layers belong to
        blocks."""
        silent = {"networks": not self.work.names, "blocks": not self._blocked}
        return ((name, t) for name, t in super().listed(live) if not silent.get(name))

    @declared(title="Every machine")
    def machines(self) -> Table:
        """One row per machine: symbols, area if components have one, the least of each figure on it, whether
        it is on the front, and why it has no mapping. If a search was cut short, the largest relative gap
        between the figures and the machine's optimum (empty if unknown)."""
        large = any(r.machine.area for r in self.rows)
        symbols = list(self._symbols)
        names = [n for n in self.request.figures if n != "area"]
        on_front = {p.machine.number for p in self.points}
        columns = [*(Column(n, given=True) for n in symbols), *([Column("area", "m^2")] if large else [])]
        columns += [Column(f"least {n}", unit_of(n)) for n in names]
        columns += [Column("points"), Column("on the front"), Column("complete")]
        columns += [*([] if self.complete else [Column("gap", "1")]), Column("reason")]
        rows: list[tuple[Cell, ...]] = [
            (
                *(r.machine.symbols[n] for n in symbols), *([r.machine.area] if large else []),
                *(r.least[n] for n in names), r.points, r.machine.number in on_front, r.complete,
                *([] if self.complete else [_gap(r)]), r.reason,
            )
            for r in self.rows
        ]  # fmt: skip
        return Table("machines", tuple(columns), tuple(rows))

    @declared(title="What each symbol is worth")
    def symbols(self) -> Table:
        """One row per symbol and value: the least of each figure over all machines with that value, each with
        its own mappings, and its relative distance to the overall least."""
        names = list(self.request.figures)
        columns = [Column("symbol"), Column("value")]
        for n in names:
            columns += [Column(f"least {n}", unit_of(n)), Column(f"{n} above the least", "1")]
        best = {n: self._least(n, self.rows) for n in names}
        rows: list[tuple[Cell, ...]] = []
        for symbol in self._symbols:
            for value in sorted({r.machine.symbols[symbol] for r in self.rows}):
                here = [r for r in self.rows if r.machine.symbols[symbol] == value]
                cells: list[Cell] = [symbol, value]
                for n in names:
                    least, of_all = self._least(n, here), best[n]
                    share = least / of_all - 1 if least is not None and of_all else None
                    cells += [least, share]
                rows.append(tuple(cells))
        return Table("symbols", tuple(columns), tuple(rows))

    def _least(self, name: str, rows: Sequence[MachineRow]) -> float | None:
        """The least of a figure over machines; None if none has a mapping."""
        return min((x for r in rows if (x := r.least[name]) is not None), default=None)

    @declared(title="Layers")
    def layer_costs(self) -> Table:
        """One row per point of the joint front and layer: its network and its blocks, if any, its Einsums,
        the number of its executions, and energy and latency of one execution."""
        named = [Column("network")] if self.work.names else []
        named += [Column("block")] if self._blocked else []
        columns = [Column("point"), *named, Column("layer"), Column("times"), Column("energy", "J")]
        columns.append(Column("latency", "s"))
        names = [", ".join(einsums) for einsums in self._einsums]
        whose: list[tuple[Cell, ...]] = []
        for n in self.work.networks:
            for layer in n.places:
                blocks = (", ".join(self.work.blocks_of(layer)),) if self._blocked else ()
                whose.append((*((n.name,) if self.work.names else ()), *blocks))
        rows: list[tuple[Cell, ...]] = [
            (i, *network, name, n, energy, latency)
            for i, p in enumerate(self.points)
            for network, name, n, (energy, latency) in zip(whose, names, self.times, p.costs, strict=True)
        ]
        return Table("layer_costs", tuple(columns), tuple(rows))

    @declared(title="Blocks")
    def blocks(self) -> Table:
        """One row per point of the joint front and block of a network: the number of Einsums that one run of
        the network executes in it, their costs together, and their share of the network. Costs of a layer
        with Einsums of several blocks are split as `evaluate` books them to Einsums."""
        named = [Column("network")] if self.work.names else []
        columns = [Column("point"), *named, Column("block"), Column("Einsums")]
        for n in COSTS:
            columns += [Column(n, unit_of(n)), Column(f"part of the {n}", "1")]
        rows: list[tuple[Cell, ...]] = []
        for i, point in enumerate(self.points):
            for network in self.work.networks:
                each = self._blocks_of(point, network.places)
                whose = (network.name,) if named else ()
                joules, seconds = (sum(c[k] for c in each.values()) for k in (1, 2))
                for block, (count, energy, latency) in each.items():
                    parts = energy / joules if joules else None, latency / seconds if seconds else None
                    figures = energy, parts[0], latency, parts[1]
                    rows.append((i, *whose, block or _NO_BLOCK, count, *figures))
        return Table("blocks", tuple(columns), tuple(rows))

    def _blocks_of(
        self, point: CodesignPoint, layers: Sequence[int]
    ) -> Mapping[str, tuple[int, float, float]]:
        """Executed Einsums, energy and latency of each block of some layers."""
        result: dict[str, tuple[int, float, float]] = {}
        for layer in layers:
            for block, count, energy, latency in self._costs_by_block(point, layer):
                n, joules, seconds = result.get(block, (0, 0.0, 0.0))
                result[block] = n + count, joules + energy, seconds + latency
        return result

    def _costs_by_block(self, point: CodesignPoint, layer: int) -> Iterator[tuple[str, int, float, float]]:
        """The costs of all executions of a layer in each of its blocks."""
        energy, latency = point.costs[layer]
        if at := self.work.blocks[layer]:
            count = len(self._einsums[layer])
            yield from ((block, n * count, n * energy, n * latency) for block, n in at.items())
            return
        n, workload = self.times[layer], self.layers[layer].raw_workload
        assert workload is not None
        for einsum, energy, latency in point.einsum_costs(layer):
            yield workload.blocks[einsum], n, n * energy, n * latency

    @cached_property
    def _unevaluated(self) -> tuple[str, ...]:
        """The tables whose mappings were not evaluated before the end of a time limit."""
        if not self.stopped or not self.points:
            return ()
        late = [not p.fully_evaluated for p in self.points]
        tables = {"blocks": self.work.split and any(late), "roofline": late[0]}
        return tuple(name for name, missing in tables.items() if missing)

    @cached_property
    def _blocked(self) -> bool:
        return any(map(self.work.blocks_of, range(len(self.layers))))

    @property
    def _einsums(self) -> list[tuple[str, ...]]:
        """The Einsums of each layer."""
        raw = [s.raw_workload for s in self.layers]
        return [() if w is None else tuple(e.name for e in w.einsums) for w in raw]

    @declared(title="Roofline of the first point")
    def roofline(self) -> Table:
        """One row per layer and group of fused Einsums, with its roofline point on the machine of the first
        point of the joint front (`found[i].roofline`: on that of another point)."""
        points = self.points[0].roofline if self.points else ()
        result = tables.roofline(p for _, p in points)
        rows = tuple((layer, *row) for (layer, _), row in zip(points, result.rows, strict=True))
        return Table("roofline", (Column("layer"), *result.columns), rows)

    @property
    def _symbols(self) -> tuple[str, ...]:
        return (*self.grid.names, *(n for n, _ in self.grid.linked))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the quality of the answer, and on what was left out."""
        result = [f"{_counted(n)} {'are' if n > 1 else 'is'} none: {why}" for why, n in self.refused.items()]
        result += self._unknown_areas()
        if not self.points:
            shown = "; ".join(f"{r.machine.name}: {r.reason}" for r in self.rows[:3] if r.reason)
            result += (
                [f"why there is no point: {shown}{'; ...' if len(self.rows) > 3 else ''}"] if shown else []
            )
        cut = [r.machine.name for r in self.rows if not r.complete]
        if cut:
            shown = "; ".join(cut[:3]) + ("; ..." if len(cut) > 3 else "")
            result.append(f"{len(cut)} of {len(self.rows)} machines were not searched to the end: {shown}")
            result += gap_texts(self)
            result += self._undecided()
        elif self.points:
            above = f" by more than a factor of {1 + self.eps:g} (its square for edp)" if self.eps else ""
            loose = self._loose
            how = f", with {FROM_ABOVE} ({loose})" if loose else ""
            those = " that fits by these bounds" if loose else ""
            result.append(
                f"the front is exact over the machines given and the mapspace of `explore`{how}: each "
                f"machine and mapping left out{those} has one here that is no worse{above}"
            )
        if self.interrupted:
            result.append(
                "interrupted, so that there may be better machines and mappings" if cut else "interrupted"
            )
        if self._unevaluated:
            many = "are" if len(self._unevaluated) > 1 else "is"
            result.append(
                f"not all mappings were evaluated before the end: {' and '.join(self._unevaluated)} {many} "
                "left out; allow more time"
            )
        return tuple(result)

    @cached_property
    def _loose(self) -> str:
        """Why searches may have counted larger working sets than `evaluate`."""
        figures = {whose(n)[0] for n in self.request.figures} - {"area"}
        cascades, machines = (s.workload for s in self.layers), (r.machine.arch for r in self.rows)
        return loose_peaks(cascades, machines, Limits(), figures)

    def _undecided(self) -> Iterator[str]:
        """Yield the machines that may have less than the best one here, according to the bounds of searches
        that were cut short."""
        for objective in self.objectives if self.points else ():
            first = self.best(objective)
            least = first.figures[objective]
            may = [
                r for r in self.rows
                if not r.complete and r.machine != first.machine and r.bounds[objective] < least
            ]  # fmt: skip
            shown = "; ".join(_excess(r, objective, least) for r in may[:3]) + "; ..." * (len(may) > 3)
            if may:
                yield (
                    f"which machine has the least {objective} is not decided: with more time there may be "
                    f"less than on {first.machine.name} on {shown}"
                )

    def _unknown_areas(self) -> Iterator[str]:
        """Yield the components that have an area on some machines only, if machines are compared by area."""
        if "area" not in self.request.figures:
            return
        every = len(self.rows)
        for parts in zip(*(r.machine.arch.components for r in self.rows), strict=True):
            known = sum(c.area > 0 for c in parts)
            if 0 < known < every:
                yield f"{parts[0].name} has no area on {every - known} of {every} machines, and is 0 there"

    @property
    def title(self) -> str:
        """The heading of its page."""
        many, what = len(self.work.names), "network"
        if not many:
            many, what = len(self.layers), "layer"
        return f"Co-design of {_counted(len(self.rows))} and {many} {what}{'s' * (many > 1)}"

    def keeping(self) -> AbstractContextManager[None]:
        """Protects the files that the specs were read from against overwriting."""
        return protected_files(*self.layers)

    def save(
        self, folder: str | PathLike[str], *, live: bool = False, parquet: bool = True, command: str = ""
    ) -> tuple[Path, ...]:
        """Write tables as CSV and parquet, the printed text (without times), and every mapping of the front:
        `point-I-layer-J.yaml`. Runs with the same answer write the same bytes."""
        with self.keeping():
            result = [*self.to_csv(folder)]
            target = Path(folder)
            result += self.to_parquet(target) if parquet and installed("pyarrow") else ()
            saved_text(masked(f"{self._text(timed=False)}\n"), target / "codesign.txt")
            result.append(target / "codesign.txt")
            for i, point in enumerate(self.points):
                for j in range(len(self.layers)):
                    path = target / f"point-{i}-layer-{j}.yaml"
                    write_text(path, point.yaml(j))
                    result.append(path)
        return tuple(result)

    def plot(self, x: str = "", y: str = "", ax: Axes | None = None) -> Axes:
        """Plot the joint front over two figures (area, if components have one, and the first other
        objective), with machines named. With a symbol of the hardware as `x`: the least figure at each of its
        values, where each machine has its own mappings. With `layers` or `blocks` as `x`: the energy (or
        latency) of each layer or block at the first point. Raises SpecError for an unknown figure, if there
        is no point, and if no layer belongs to a block."""
        from polymodel.report.plots_machines import symbol_axes

        first = self.best()
        if x in ("layers", "blocks") and x not in self._symbols:
            table = self._layers_of_first() if x == "layers" else self._blocks_of_first()
            return bar_axes(table, canonical(y) if y else "energy", ax)
        others = [o for o in (*self.objectives, *COSTS) if o != "area"]
        if x in self._symbols:
            up = canonical(y) if y else others[0]
            if up not in self.request.figures:
                near = suggestion(up, self.request.figures, "figures of the front")
                raise SpecError([Diagnostic(f"there is no figure {up}", near, code="unknown-name")])
            least = [(float(r.machine.symbols[x]), r.least[up]) for r in self.rows]
            known = [(value, figure) for value, figure in least if figure is not None]
            return symbol_axes(known, x, up, f"What {x} is worth", ax)
        across = canonical(x) if x else self._across
        up = canonical(y) if y else next(o for o in others if o != across)
        for name in (across, up):
            if name not in first.figures:
                near = suggestion(name, list(first.figures), "figures")
                raise SpecError([Diagnostic(f"there is no figure {name}", near, code="unknown-name")])
        return self.front_axes(across, up, ax)

    @property
    def _across(self) -> str:
        """The default x axis of the front: area, if components have one, otherwise the second objective."""
        others = [o for o in dict.fromkeys([*self.objectives, *COSTS]) if o != "area"]
        return "area" if any(r.machine.area for r in self.rows) else others[1]

    def front_axes(self, across: str, up: str, ax: Axes | None, links: Sequence[str] = ()) -> Axes:
        """The joint front over two figures. `links`: the link target of each point on a page."""
        from polymodel.report.plots_machines import machine_axes

        points = [(p.machine.name, p.figures) for p in self.points]
        return machine_axes(points, across, up, f"Machines over {', '.join(self.objectives)}", ax, links)

    def _layers_of_first(self) -> Table:
        """The costs of all executions of each layer at the first point."""
        found = self.table("layer_costs")
        at = {c.name: i for i, c in enumerate(found.columns)}
        words = [c for c in found.columns if c.name in ("network", "block", "layer")]
        rows: list[tuple[Cell, ...]] = [
            (*(row[at[c.name]] for c in words), *(n * cost for cost in costs))
            for row, n, costs in zip(found.rows, self.times, self.points[0].costs, strict=False)
        ]
        columns = (*words, *(Column(n, unit_of(n)) for n in COSTS))
        return Table("layers_of_the_first_point", columns, tuple(rows))

    def _blocks_of_first(self) -> Table:
        """The costs of each block at the first point. Raises SpecError if there is none."""
        if not self._blocked:
            remedy = "write `block: NAME` at Einsums, or give layers as (spec, times, 'NAME')"
            raise SpecError([Diagnostic("no layer is of a block", remedy, code="nothing-to-show")])
        found = self.table("blocks")
        words = [i for i, c in enumerate(found.columns) if c.name in ("network", "block", *COSTS)]
        rows = tuple(tuple(row[i] for i in words) for row in found.rows if row[0] == 0)
        return Table("blocks_of_the_first_point", tuple(found.columns[i] for i in words), rows)

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """Plots of the front, whose points link to their machine and its mappings, and of each symbol's
        effect; every table, and the inputs."""
        from polymodel.hardware.page import codesign_parts

        pictures = self._pictures() if plots and self.points else []
        return codesign_parts(self, pictures, super().parts(live, plots, command))

    def _pictures(self) -> list[Plot]:
        from polymodel.hardware.page import links
        from polymodel.report.search_page import Plot

        figures = list(dict.fromkeys([*self.objectives, "energy", "latency"]))
        across, rows = self._across, links(len(self.points))
        pictures = [
            Plot(f"{n} against {across}", partial(self.front_axes, across, n, links=rows))
            for n in figures
            if n not in (across, "area")
        ]
        asked = [n for n in self.request.figures if n != "area"]
        pictures += [
            Plot(f"what {symbol} is worth", partial(self._drawn, symbol, asked[0]))
            for symbol in (self._symbols if asked else ())
        ]
        if len(self.layers) > 1:
            pictures.append(Plot("layers of the first point", partial(self._drawn, "layers", "energy")))
        if self._blocked and "blocks" not in self._unevaluated:
            pictures.append(Plot("blocks of the first point", partial(self._drawn, "blocks", "energy")))
        late = "roofline" in self._unevaluated
        return [*pictures, *([] if late else [Plot("roofline of the first point", self.points[0].plot)])]

    def _drawn(self, x: str, y: str, ax: Axes) -> None:
        self.plot(x, y, ax=ax)

    def content(self, live: bool = True) -> list[Block]:
        """The first rows of the front, and its quality."""
        rows = [Section("", self.table("front").first(SHOWN))] if self.points else []
        return [Line(self._headline()), *rows, *(Line(n) for n in self._footer())]

    def _footer(self) -> list[str]:
        more = len(self.points) - SHOWN
        return [*([f"... {more} more in .front"] if more > 0 else []), *self.notes]

    def _headline(self, timed: bool = True) -> str:
        points = f"{len(self.points)} point{'s' * (len(self.points) != 1)}"
        there, every = len({p.machine.number for p in self.points}), _counted(len(self.rows))
        place = every if there in (0, len(self.rows)) else f"{there} of {every}"
        each = ", ".join(limit.for_readers for limit in self.request.limits)
        limits = f" with {each}" if each else ""
        return (
            f"Co-design over {', '.join(self.objectives)}{limits}: {points} on {place}, "
            f"{self.searches} search{'es' * (self.searches != 1)}" + f" in {self.seconds:.3g} s" * timed
        )

    def _text(self, timed: bool) -> str:
        shown = self.table("front").first(SHOWN).text().split("\n") if self.points else []
        return "\n".join([self._headline(timed), *shown, *(f"  {n}" for n in self._footer())])

    def __repr__(self) -> str:
        return self._text(timed=True)

    def __str__(self) -> str:
        return repr(self)
