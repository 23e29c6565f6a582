"""The result of an exploration: the front, one point per mapping, and how complete it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property, partial
from itertools import combinations
from math import inf, isinf
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, overload

from polymodel.analysis.symbolic.spaces import groups
from polymodel.architecture.hierarchy import Component, uncut_text
from polymodel.cost.latency import cycles_of
from polymodel.errors import Diagnostic, SpecError, masked
from polymodel.frozen import dataclass
from polymodel.libraries import installed
from polymodel.loading import Spec
from polymodel.loading.spec import protected_files
from polymodel.loading.typos import likely_typos
from polymodel.mapper.confirm import Point, below, loose_peaks, meant
from polymodel.mapper.records import (
    FROM_ABOVE,
    Diagnosis,
    Limits,
    Quality,
    Request,
    SearchResult,
    attained,
    bounded_text,
    exact_text,
    gap_of,
    gap_texts,
    share_text,
    upwards,
)
from polymodel.mapper.request import request_rows
from polymodel.mapper.ties import is_counted
from polymodel.mapping.mapspace_constraints import COSTS, SPARSE_COSTS, WORKING_SET
from polymodel.objectives import SPARSE, is_objective, on_sparse_data, score, unit_of, uses
from polymodel.quantities import engineering
from polymodel.reuse import Reuse
from polymodel.spec.faults import suggestion
from polymodel.spec.section_schemas import ExploreSection
from polymodel.spec.yaml_text import spec_yaml
from polymodel.view.answer import Answer, Block, Line, Part, Section, declared
from polymodel.view.files import saved_text
from polymodel.view.table import RATIO, Cell, Column, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from polymodel.report.search_page import Best, Finding, Plot

SHOWN = 20
UNITS = {n: unit_of(n) for n in (*COSTS, *SPARSE_COSTS)} | {"speedup": RATIO, "cycles": "cycle"}
ENDS = {"J": "_J", "s": "_s", "J s": "_J_s", "bit": "_bits"}  # suffixes of column names in files

# For sparse data, where mappings were found by lower bounds on tile sizes.
NONE_FITS = "no mapping that the rules on memories allow has compressed tiles that fit"
TOO_LARGE = "the compressed tiles of no evaluated mapping fit; those of other mappings may fit"


@dataclass(frozen=True, eq=False)
class Front(Answer):
    """Pareto front of whole mappings, sorted by the first objective. `front[i]` is a `Point` with `.spec`,
    `.report`, `.mapping`, `.yaml`, `.save(path)`. `found`: the result of the search; `request`: its
    request; `seconds`: its time including the evaluation of every point; `interrupted`: it was stopped by
    Ctrl-C. `sparse`: the quality of the front where objectives are on sparse data. `section`: the
    section `explore` that requests it, with what was passed as arguments."""

    spec: Spec
    request: Request
    found: SearchResult
    points: tuple[Point, ...]
    seconds: float = 0.0
    interrupted: bool = False
    sparse: Quality | None = None
    section: ExploreSection | None = None

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.request.objectives

    @property
    def complete(self) -> bool:
        """False if the search ended before it had covered the whole space."""
        return self.found.complete

    @cached_property
    def bounds(self) -> dict[str, float]:
        """Per objective a lower bound over all mappings of the space (an upper bound of utilisation)."""
        return dict(zip(self.objectives, self.found.bounds, strict=False))

    @cached_property
    def gaps(self) -> dict[str, float]:
        """Return, per objective, the largest possible relative gap between the least value on the front and
        the least of the space; 0 is exact, infinite is unknown."""
        if not self.points:
            return dict.fromkeys(self.objectives, inf)
        least = {o: self._least(o) for o in self.objectives}
        if self.complete and not self.request.eps and self.sparse is None:
            return dict.fromkeys(self.objectives, 0.0)
        bounds = {o: float(score(o, b)) for o, b in self.bounds.items()}
        return {o: gap_of(least[o], bounds.get(o, 0.0)) for o in self.objectives}

    def _least(self, objective: str) -> float:
        """The least score of an objective on the front."""
        return min(float(score(objective, p.value(objective))) for p in self.points)

    @property
    def gap(self) -> float:
        """The largest of the gaps."""
        return max(self.gaps.values())

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    @overload
    def __getitem__(self, number: int) -> Point: ...

    @overload
    def __getitem__(self, number: slice) -> tuple[Point, ...]: ...

    def __getitem__(self, number: int | slice) -> Point | tuple[Point, ...]:
        if isinstance(number, int) and not -len(self.points) <= number < len(self.points):
            many = f"they run from 0 to {len(self.points) - 1}" if self.points else "the front is empty"
            raise IndexError(f"there is no point {number}: {many}")
        return self.points[number]

    @property
    def diagnosis(self) -> Diagnosis | None:
        """Why the front is empty, as records: obstacles and relaxations. None if it is not empty or the
        search was cut short."""
        return self.found.diagnosis

    @cached_property
    def reason(self) -> str:
        """Why the front is empty, one line per obstacle and relaxation; an empty text if it is not."""
        if self.points:
            return ""
        on_sparse = any(map(on_sparse_data, self.objectives))
        if self.found.candidates and on_sparse:
            return TOO_LARGE
        bounded = self.complete and self.diagnosis is None and on_sparse
        return NONE_FITS if bounded else self.found.reason

    @cached_property
    def loose(self) -> str:
        """Why the search may have counted larger working sets than `evaluate`, so that a mapping that fits
        may be left out; an empty text where it counts the same."""
        figures = (*self.objectives, *(limit.name for limit in self.request.at_most))
        return loose_peaks([self.spec.workload], [self.spec.arch], self.request.limits, figures)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the answer: its quality, and what was not searched."""
        return tuple(_notes(self))

    @declared(name="front")
    def mappings(self) -> Table:
        """One row per mapping of the front."""
        return self.rows

    @declared(title="What was looked at")
    def stages(self) -> Table:
        """What each step of the search considered: templates, points combined, those too large for a memory,
        points kept after dominance, seconds."""
        columns = [Column(n, "s" if n == "seconds" else "") for n in STAGES]
        rows = tuple(tuple(getattr(s, n) for n in STAGES) for s in self.found.stages)
        return Table("stages", tuple(columns), rows)

    @declared(title="How good it is")
    def least(self) -> Table:
        """Return one row per objective: the least value on the front, a lower bound over every mapping, the
        relative gap between them (0 is exact)."""
        columns = (Column("objective"), Column("least"), Column("bound"), Column("gap"), Column("unit"))
        rows: list[tuple[Cell, ...]] = []
        for o, gap in self.gaps.items():
            found = float(score(o, self._least(o))) if self.points else None
            bound = self.bounds.get(o)
            if gap == 0 and found is not None:
                bound = found
            rows.append((o, found, bound, None if isinf(gap) else gap, unit_of(o)))
        return Table("least", columns, tuple(rows))

    @cached_property
    def rows(self) -> Table:
        """One row per point: number, objectives, limited figures, energy, latency (also in cycles, where all
        that computes has one clock), edp, peak bits of every memory below the backing storage, fused tensors
        and fused loops. Where objectives are of sparse data,
        these costs of sparse and dense data and the speedup, dense latency over sparse latency."""
        inner = list(self.spec.arch.memories[1:])
        limited = (limit.name for limit in self.request.at_most)
        plain = [o for o in (*self.objectives, *limited) if not o.startswith(f"{WORKING_SET}:")]
        sparse = ("sparse_energy", "sparse_latency", "speedup") if self.sparse is not None else ()
        names = list(dict.fromkeys([*plain, *sparse, "energy", "latency", "edp"]))
        unit = self._clocked
        if unit is not None:
            names.insert(names.index("latency") + 1, "cycles")
        columns = [Column("mapping"), *(Column(n, UNITS.get(n) or unit_of(n)) for n in names)]
        columns += [Column(f"{WORKING_SET}:{m}", "bit") for m in inner]
        columns += [Column("fused"), Column("fused_loops")]
        chosen = any(p.chosen for p in self.points)
        columns += [Column("chosen")] if chosen else []
        sure = all(p.found.confirmed for p in self.points)
        rows: list[tuple[Cell, ...]] = []
        for p in self.points:
            peaks = [_whole(p.buffers.get(m)) for m in inner]
            figures = [
                cycles_of(unit, p.value("latency")) if n == "cycles" and unit else p.value(n) for n in names
            ]
            row: tuple[Cell, ...] = (p.number, *figures, *peaks, ", ".join(p.fused), p.fused_loops)
            row = (*row, p.chosen) if chosen else row
            rows.append(row if sure else (*row, p.found.confirmed))
        if not sure:
            columns.append(Column("confirmed"))
        return Table("front", tuple(columns), tuple(rows), self.notes)

    @property
    def _clocked(self) -> Component | None:
        """A compute unit, if all have the same clock."""
        units = [c for c in self.spec.arch.components if c.computes]
        return units[0] if units and len({c.clock for c in units}) == 1 and units[0].clock else None

    def exported(self, name: str = "", *, live: bool = True) -> Table:
        """The table as written to files: units end column names (`energy_J`); if the search was cut short,
        every row has `complete` (False) and the `gap`."""
        result = self.table(name)
        if result.name != "front":
            return result
        columns = [Column(c.name + ENDS.get(c.unit, ""), c.unit) for c in result.columns]
        rows = result.rows
        if not self.complete:
            columns += [Column("complete"), Column("gap")]
            rows = tuple((*row, False, None if isinf(self.gap) else self.gap) for row in rows)
        return Table("front", tuple(columns), rows, self.notes)

    def best(self, objective: str = "") -> Point:
        """Return the point with the least value of an objective (default: the first one; of utilisation the
        largest), or of edp.

        Raises SpecError if the front is empty, or was not computed for that objective, since a mapping that
        is not on this front might then be better.
        """
        name = _meant(self, objective) if objective else self.objectives[0]
        known = self._minimised()
        if name not in known:
            # objectives on dense and on sparse data do not mix
            others = "" if (self.sparse is None) == on_sparse_data(name) else "..., "
            remedy = suggestion(name, known, "objectives of this front") if not is_objective(name) else ""
            raise SpecError(
                [
                    Diagnostic(
                        f"the front is over {', '.join(self.objectives)}: it may lack the least {name}",
                        remedy or f"explore with objectives=[{others}{name!r}]",
                        code="unknown-choice",
                    )
                ]
            )
        if not self.points:
            raise SpecError([Diagnostic(*_empty_front_fault(self), code="no-solution")])
        return min(self.points, key=lambda p: float(score(name, p.value(name))))

    def _minimised(self) -> tuple[str, ...]:
        """Figures whose least value is on this front."""
        result = list(self.objectives)
        made = set(result)
        result += [c for c in COSTS if {f for f, _ in uses(c)} <= made]
        result += [c for c in SPARSE_COSTS if {SPARSE + f for f, _ in uses(c)} <= made]
        return tuple(dict.fromkeys(result))

    def keeping(self) -> AbstractContextManager[None]:
        """Return a context that protects the files from which the spec was read against overwriting."""
        return protected_files(self.spec)

    def save(
        self, folder: str | PathLike[str], *, live: bool = False, parquet: bool = True, command: str = ""
    ) -> tuple[Path, ...]:
        """Write everything to one folder: front.csv, front.parquet, stages.csv, front.txt (the printed text
        with notes), explore.yaml (the section that requests the same), and `mapping-N.yaml` per point."""
        with self.keeping():
            result = [*self.to_csv(folder)]
            target = Path(folder)
            result += self.to_parquet(target / "front.parquet") if parquet and installed("pyarrow") else ()
            texts = {"front.txt": masked(f"{self!r}\n")}
            if self.section is not None:
                texts["explore.yaml"] = spec_yaml({"explore": self.section})
            for name, text in texts.items():
                saved_text(text, target / name)
        mappings = (p.save(target / f"mapping-{p.number}.yaml") for p in self.points)
        return (*result, *(target / name for name in texts), *mappings)

    @property
    def title(self) -> str:
        """The heading of its page."""
        from polymodel.report.search_page import search_title

        return search_title("Mappings", self.spec)

    def head(self, live: bool = True) -> list[Block]:
        """The request, the result and its quality."""
        from polymodel.report.search_page import search_figures

        return search_figures(self.finding)

    def parts(self, live: bool, plots: bool, command: str) -> list[Part]:
        """A sortable table (up to 3,000 points), plots, LoopTrees and YAML of the best mappings, the search
        stages, and the inputs."""
        from polymodel.report.search_page import search_sections

        return search_sections(self.finding, plots, command)

    @cached_property
    def finding(self) -> Finding:
        """The content of the page."""
        return _finding(self)

    def unit(self, name: str) -> str:
        """The unit of a figure: J, s, J s, bit, or none."""
        return self.rows.units.get(name, unit_of(_meant(self, name)))

    def plot(self, x: str = "", y: str = "", *, label: str = "", ax: Axes | None = None) -> Axes:
        """Plot the front over two figures (default: the first two objectives that vary): energy, latency,
        edp or working_set:MEMORY. Colours show the fused tensors, or a third objective. `label` names the
        front in the legend; fronts drawn into one picture (`ax`) without a label are numbered."""
        from polymodel.report.plots_sweep import explored_axes

        if not self.points:
            raise SpecError([Diagnostic(*_empty_front_fault(self), code="no-solution")])
        shown = _axes_of(self, x, y)
        return explored_axes(self.frame, self.objectives, shown, self.frame.attrs["units"], ax, label)

    def __repr__(self) -> str:
        return "\n".join([self._headline(), *self._body(self.shown.text().split("\n"))])

    def __str__(self) -> str:
        return repr(self)

    def content(self, live: bool = True) -> list[Block]:
        """The first rows and the notes."""
        rows = [Section("", self.shown)] if self.points else []
        return [Line(self._headline()), *rows, *(Line(n) for n in self._footer())]

    @cached_property
    def shown(self) -> Table:
        """The first rows, with the columns that fit on a screen."""
        drop = {"edp"} - set(self.objectives)
        table = self.rows.only(*(c.name for c in self.rows.columns if c.name not in drop))
        return table.first(SHOWN)

    def _body(self, table: Sequence[str]) -> list[str]:
        return [*(table if self.points else ()), *(f"  {n}" for n in self._footer())]

    def _footer(self) -> list[str]:
        more = len(self.points) - SHOWN
        return [*([f"... {more} more in .frame, or with --format csv"] if more > 0 else []), *self.notes]

    def _headline(self) -> str:
        looked = sum(s.points for s in self.found.stages)
        count = f"{len(self.points)} mapping{'s' if len(self.points) != 1 else ''}"
        combined = f" ({looked:,} combinations looked at)" if looked else ""
        limits = "".join(f", {limit.for_readers()}" for limit in self.request.at_most)
        return f"Front over {', '.join(self.objectives)}{limits}: {count}, in {self.seconds:.3g} s{combined}"


def _axes_of(front: Front, x: str, y: str) -> tuple[str, str]:
    """The two figures to draw. Raises SpecError for unknown ones, and if there is only one."""
    known = [c.name for c in front.rows.columns if c.unit]
    if x or y:
        given = tuple(_meant(front, name) if name else front.objectives[0] for name in (x, y))
    elif len(front.objectives) > 1:
        # an objective that does not vary shows nothing
        values = zip(*(p.values for p in front.points), strict=True)
        varying = [o for o, v in zip(front.objectives, values, strict=False) if len(set(v)) > 1]
        order = list(dict.fromkeys([*varying, *front.objectives]))
        given = (order[0], order[1])
    else:
        message = "a picture of a front needs two figures"
        raise SpecError([Diagnostic(message, 'plot("energy", "latency")', code="wrong-count")])
    for name in given:
        if name not in known:
            message = f"there is no figure {name}"
            raise SpecError([Diagnostic(message, suggestion(name, known, "figures"), code="unknown-name")])
    return given[0], given[1]


def _meant(front: Front, name: str) -> str:
    return meant(name, front.spec)


def _empty_front_fault(front: Front) -> tuple[str, str]:
    """Message and remedy for an empty front, with the least change that admits a mapping."""
    result = front.diagnosis
    if not front.complete:
        return f"no mapping was found: {front.reason}", "allow more time or memory"
    if front.found.candidates:
        return f"no mapping was found: {front.reason}", "give the memories more room, or another `fit:`"
    if result is None or not result.obstacles:
        return f"no valid mapping: {front.reason}", "relax the constraints"
    ways = [f"a mapping exists if {r.text}" for r in result.relaxations]
    return "no valid mapping: " + "; ".join(o.text for o in result.obstacles), "; or ".join(ways)


def _whole(bits: float | None) -> Cell:
    """Bits as an int, since they are counts."""
    return None if bits is None else int(bits)


def _within(spec: Spec, limits: Limits) -> str:
    """Return the space about which the search makes statements."""
    fanouts = any(d.fanout > 1 for _, d in spec.arch.dimensions)
    spatial = fanouts and limits.spatial_sizes != "all"
    temporal = limits.sizes != "all"
    even = ("" if spatial or not fanouts else "temporal ") + "tile sizes divide" if temporal else ""
    even = even or ("spatial tiles divide" if spatial else "")
    return f"the mapspace (docs/explore.md says what it leaves out{f'; {even}' if even else ''})"


def _unbounded(front: Front) -> Iterator[str]:
    """Return a note if no size determines the memory to which an unnamed working set refers."""
    inner = [c for c in front.spec.arch.components if c.stores][1:]
    meant = f"{WORKING_SET}:{inner[-1].name}" if inner else ""
    if meant in front.objectives and len(inner) > 1 and all(isinf(c.size_bits) for c in inner):
        yield (
            f"no memory inside the backing storage is bounded: `{WORKING_SET}` is that of {inner[-1].name}, "
            f"the innermost; name another one as `{WORKING_SET}:{inner[0].name}`"
        )


def _sparse(front: Front) -> Iterator[str]:
    """Notes on the figures on sparse data and on the mappings evaluated for them."""
    if front.sparse is None:
        return
    from polymodel.mapper.sparse_room import compressed

    fits = (
        "the tiles of each mapping fit whatever the data are, as no memory with a size keeps them compressed"
    )
    if any(compressed(p.base.arch) for p in front.points):
        fits = "what fits is decided by the bits of compressed tiles (`fit:` of the memories)"
    yield f"sparse figures are {front.sparse.meaning}; {fits}"
    if front.complete and len(front.objectives) > 1 and not attained(front.sparse):
        most = ((1 + front.request.eps) * x for x in front.sparse.each)
        each = [f"{n} by up to a factor of {upwards(x)}" for n, x in zip(front.objectives, most, strict=True)]
        yield f"the best found may exceed the optimum: {', '.join(each)}"
    if front.complete and not attained(front.sparse):
        yield (
            f"the search by lower bounds is done, and {front.sparse.besides} further mappings are evaluated, "
            "but not all that there are: one that is written by hand, or swept, may be better"
        )
    left = front.sparse.found - front.sparse.evaluated
    if left:
        yield (
            f"{left} of the search's {front.sparse.found} mappings were not evaluated on sparse data, for "
            "want of time or because their zeros cannot be counted; the factor holds with them"
        )


def _refilling(front: Front) -> Iterator[str]:
    """Return a note on Einsums of which no mapping with a requested reuse policy was searched."""
    rules = [r for r in front.request.limits.rules if r.kind == "reuse"]
    asked = [p for p in Reuse if p.carries and any(p in r.names for r in rules)]
    for e in front.spec.workload.einsums if asked else ():
        windows = {v for a in e.inputs for x in a.projection if len(x.variables) > 1 for v in x.variables}
        for tied in (g for g in groups(e) if windows & {*g.variables}):
            policies = [p for p in asked if p is not Reuse.SLIDE or not is_counted(tied.region)]
            if policies:
                yield (
                    f"{e.name}: bounds, such as those of padding, tie {', '.join(tied.variables)} together; "
                    f"nodes with `reuse: {' or '.join(policies)}` there were not searched, and may cost less"
                )


def _notes(front: Front) -> Iterator[str]:
    result, request = front.found, front.request
    yield from _unbounded(front)
    yield from likely_typos(front.spec.workload)
    yield from front.spec.variable_remarks
    if not front.points:
        first, *more = front.reason.split("\n")
        sure = result.complete and not result.candidates
        yield f"no {'valid mapping' if sure else 'mapping was found'}: {first}"
        yield from more
    elif result.complete and (request.eps or not attained(front.sparse)):
        yield bounded_text(_within(front.spec, request.limits), front.loose, request.eps, front.sparse)
    elif result.complete:
        yield exact_text(_within(front.spec, request.limits), front.loose)
    if not result.complete:
        what = f"the time limit of {request.time_limit or 0:g} s was reached"
        if front.interrupted or result.memory:
            what = "interrupted" if front.interrupted else "memory ran out"
        elif result.too_many is not None:
            what = result.too_many.message
        rest = "; ".join(result.unsearched) or "a part of the space"
        yield from gap_texts(front)
        yield f"{what}, so that there may be better mappings; not searched: {rest}"
    if result.halos is not None:
        many = next(s.points for s in result.stages if s.of == "halos")
        short = "" if result.halos else ", and the time limit was reached before the others"
        yield (
            f"in addition to the mapspace, {many} mappings of chains fused with halos were evaluated{short}: "
            "others of that kind may be better, and the bounds do not cover them"
        )
    if result.moves is not None:
        stage = next(s for s in result.stages if s.of == "moves")
        kinds = " and ".join(m.replace("_", " ") for m in request.limits.moves)
        short = "" if result.moves else ", and the time limit was reached before the others"
        yield (
            f"in addition to the mapspace, {stage.points} mappings with {kinds} were evaluated{short}: "
            "others of that kind may be better, and their figures may be below the bounds, which cover "
            "Einsums that run one after the other"
        )
    yield from (*_refilling(front), *_sparse(front))
    yield from uncut_text(front.spec.arch.components)
    live = [c.name for c in front.spec.arch.components if c.stores and c.allocation == "live"]
    if live:
        yield (
            f"{', '.join(live)} has `allocation: live`, of which the search counts a bound (line buffers, "
            "else whole tiles): mappings that fit only by finer lifetimes were not considered"
        )
    lower = sum(below(p.candidate, p.found) for p in front.points) if front.sparse is None else 0
    if lower:
        yield (
            f"{lower} of these mappings hold less at their peak than the search counted (it counts "
            "tiles above fused loops as resident throughout); mappings that it took for larger may be as good"
        )
    waiting = sum(not p.found.confirmed for p in front.points)
    if waiting:
        yield (
            f"{waiting} points have the figures of the search (their buffers may be smaller): each is "
            "evaluated when its report is requested"
        )


MOST_PICTURES = 3
STAGES = ("of", "templates", "points", "kept", "too_large", "seconds")


def _finding(front: Front) -> Finding:
    from polymodel.report.search_page import Finding

    looked = sum(s.points for s in front.found.stages)
    facts = [("objectives", ", ".join(front.objectives)), ("mappings", f"{len(front):,}")]
    facts += [("combinations", f"{looked:,} looked at")] if looked else []
    if front.points and not isinf(front.gap):
        none = f"0 % with {FROM_ABOVE}" if front.loose else "0 %: exact"
        facts.append(("gap", share_text(front.gap) if front.gap else none))
    promise, *notes = front.notes or ("",)
    return Finding(
        facts=[*facts, ("time", engineering(front.seconds, "s"))],
        promise=(promise[:1].upper() + promise[1:],),
        notes=tuple(notes),
        table=front.rows.bare(),
        best=tuple(_best(front)),
        pictures=tuple(_pictures(front)),
        looked=(("What was looked at", front.table("stages")),),
        asked=tuple(request_rows(front.request, front.section)),
        specs=(("Spec as loaded", replace(front.spec, raw_explore=front.section or front.spec.raw_explore)),),
        found=len(front) > 0,
    )


def _best(front: Front) -> Iterator[Best]:
    """The best mapping of each objective, and some between them."""
    from polymodel.report.search_page import Best, picked

    if not front.points:
        return
    first = [front.best(o).number for o in front.objectives]
    for row in picked(len(front), first):
        point = front[row]
        figures = [f"{o} {engineering(point.value(o), front.unit(o))}" for o in front.objectives]
        fused = f"; fuses {', '.join(point.fused)}" if point.fused else ""
        text = f"{', '.join(figures)}{fused}"
        yield Best(row, f"mapping-{point.number}", text, point.spec, point.mapping, point.yaml)


def _pictures(front: Front) -> Iterator[Plot]:
    """Plots of pairs of objectives; those that vary come first."""
    from polymodel.report.search_page import Plot

    if not front.points or len(front.objectives) < 2:
        return
    varying = [o for k, o in enumerate(front.objectives) if len({p.values[k] for p in front.points}) > 1]
    pairs = list(combinations(varying, 2))[:MOST_PICTURES] or [(front.objectives[0], front.objectives[1])]
    for x, y in pairs:
        yield Plot(f"{y} over {x}", partial(_drawn, front, x, y), over=(x, y))


def _drawn(front: Front, x: str, y: str, ax: Axes) -> None:
    front.plot(x, y, ax=ax)
