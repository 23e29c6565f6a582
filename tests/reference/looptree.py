"""Fused mappings of the LoopTree model: every quantity compared as a function of the loop indices.

The model's rules: every storage follows `slide`; occupancy and fills are those of one Einsum alone, fills its
window differences, at backing nodes too; reads of the parent serve all instances at once; a step is one
stamp of an Einsum's loops. Stamps are loop counters and branch numbers above the node, in path order.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np

from polymodel.analysis.exact.buffets import ExactLayout, lay_out
from polymodel.analysis.exact.profile import Profile, fills_at, sizes_at
from polymodel.arithmetic import Affine
from polymodel.importers.timeloop.fused import level
from polymodel.mapping.looptree import Split, StorageNode, decided_above, storage_chain, ties
from polymodel.polyhedra.sets import points_of
from polymodel.reuse import Reuse
from polymodel.schedule.executed import innermost_dependent, retained_axes
from polymodel.schedule.touch import Touch, View, partition, touch
from polymodel.workload.einsum import TensorAccess
from tests.reference.common import Outcome
from tests.reference.imported import problem_of

Numbers = dict[str, Any]
Stamp = tuple[int, ...]
Values = dict[Stamp, int]


@dataclass(frozen=True)
class Function:
    """Numbers by stamp. `loops`: for each coordinate the position of its loop on the path; -1: a branch."""

    loops: tuple[int, ...]
    values: Values

    def without(self, gone: Iterable[int]) -> Function:
        """Sums over the counters of some loops."""
        where = [p for p, loop in enumerate(self.loops) if loop not in gone]
        found: Values = {}
        for stamp, value in self.values.items():
            key = tuple(stamp[p] for p in where)
            found[key] = found.get(key, 0) + value
        return Function(tuple(self.loops[p] for p in where), found)

    def from_zero(self, first: int) -> Function:
        """Counters of loops from position `first` on are counted from the smallest at each outer stamp.

        Loops of a producer below the loop that decides what it executes start where that starts.
        """
        where = [p for p, loop in enumerate(self.loops) if loop >= first]
        others = [p for p in range(len(self.loops)) if p not in where]
        lows: dict[Stamp, list[int]] = {}
        for stamp in self.values:
            head, mine = tuple(stamp[p] for p in others), [stamp[p] for p in where]
            lows[head] = [min(a, b) for a, b in zip(lows.get(head, mine), mine, strict=True)]
        found: Values = {}
        for stamp, value in self.values.items():
            moved = list(stamp)
            for p, low in zip(where, lows[tuple(stamp[p] for p in others)], strict=True):
                moved[p] -= low
            found[tuple(moved)] = value
        return Function(self.loops, found)


@dataclass(frozen=True)
class Place:
    """One Einsum's stamps above a node, with the branches between its loops."""

    view: View
    branches: tuple[tuple[int, int], ...]  # (how many loops stand above the split, branch)

    @property
    def own(self) -> Touch:
        return touch((self.view,), partition((self.view,)))

    @property
    def spatial(self) -> frozenset[int]:
        return frozenset(k for k, (_, loop, _) in enumerate(self.view.loops) if loop.spatial)

    @property
    def idle(self) -> frozenset[int]:
        """The innermost temporal loops, on which the tile does not depend: fills come at counter 0."""
        last = innermost_dependent(self.own)
        return frozenset(a for a in self.own.temporal if a > last)

    def function(self, profile: Profile) -> Function:
        """The profile as a function of stamps with branch numbers; without an entry it is 0."""
        array = profile.array()
        width = len(profile.positions) + len(self.branches)
        loops, branches = [-1] * width, [0] * width
        for number, (above, branch) in enumerate(self.branches):
            branches[number + sum(1 for p in profile.positions if p < above)] = branch + 1
        free = [p for p in range(width) if not branches[p]]
        for p, loop in zip(free, profile.positions, strict=True):
            loops[p] = loop
        values = {}
        for at in np.argwhere(array != 0):
            stamp = [b - 1 for b in branches]
            for p, counter in zip(free, at, strict=True):
                stamp[p] = int(counter)
            values[tuple(stamp)] = int(array[tuple(at)])
        return Function(tuple(loops), values)


def place(layout: ExactLayout, einsum: str, tensor: str | None, node: int) -> Place:
    """Where an Einsum touches a tensor (None: any) from node id `node` on."""
    tree = layout.problem.tree
    loops = sum(1 for i, _ in tree.loops(einsum) if i < node)
    view = next(v for (e, t), v in layout.full.items() if e == einsum and tensor in (t, None))
    branches = tuple(
        (sum(1 for i, _ in tree.loops(einsum) if i < s.id), s.branch)
        for s in tree.path(einsum)
        if isinstance(s.node, Split) and s.id < node
    )
    return Place(view.above(loops), branches)


def operations(layout: ExactLayout, einsum: str) -> tuple[Place, Function]:
    """How many iterations of an Einsum execute at every stamp of its whole path."""
    at = place(layout, einsum, None, layout.problem.tree.path(einsum)[-1].id)
    e = layout.problem.cascade[einsum]
    points = TensorAccess("", e.rank_variables, tuple(Affine.variable(v) for v in e.rank_variables))
    every = Place(replace(at.view, access=points), at.branches)
    return at, every.function(sizes_at(every.own))


def read(text: str) -> tuple[int, Values]:
    """(number of indices, values by index) of an isl quasi-polynomial; ValueError if it has no bounds."""
    try:
        function = isl.PwQPolynomial(text)
    except isl.Error:
        raise ValueError(f"not a quasi-polynomial that isl can read: {text}") from None
    dims = function.dim(isl.dim_type.in_)
    found: Values = {}
    for domain, value in function.get_pieces():
        if not domain.is_bounded():
            raise ValueError(f"a quasi-polynomial without bounds: {text}")
        for index in points_of(domain):
            point = isl.Point.zero(domain.get_space())
            for i, x in enumerate(index):
                point = point.set_coordinate_val(isl.dim_type.set, i, isl.Val(x))
            number = value.eval(point).to_python()
            if number:
                found[index] = found.get(index, 0) + int(number)
    return dims, found


def compare(
    outcome: Outcome, layout: ExactLayout, einsum: str, what: str, mine: Function, theirs: Values
) -> None:
    """Count and compare every stamp at which either has a value."""
    tied = ties(layout.problem.cascade, layout.problem.tree, einsum)
    if "inferred" in tied.values():
        first = sum(1 for i in tied if i <= decided_above(tied))
        mine, theirs = mine.from_zero(first), Function(mine.loops, theirs).from_zero(first).values
    for stamp in sorted({*mine.values, *theirs}):
        index = ", ".join(map(str, stamp))
        outcome.equal(f"{what}[{index}]", mine.values.get(stamp, 0), theirs.get(stamp, 0))


def matched(what: str, text: str, mine: Function, drops: Iterable[frozenset[int]]) -> tuple[Function, Values]:
    """Ours and theirs over the same indices; theirs may lack those of one of `drops`. Or ValueError."""
    dims, theirs = read(text)
    for gone in (frozenset[int](), *drops):
        fewer = mine.without(gone)
        if len(fewer.loops) == dims:
            return fewer, theirs
    raise ValueError(f"{what} has {dims} indices, where there are {len(mine.loops)}")


def check(spec: Numbers, folder: Path) -> Outcome:
    """Compare one folder (spec.yaml with result.json)."""
    outcome = Outcome(f"looptree/{folder.name}")
    problem = problem_of(spec)
    layout = lay_out(problem, "slide")
    given = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    for row in given["levels"]:
        _check_level(outcome, layout, row)
    for quantity in ("ops", "temporal_steps"):
        for einsum, text in given[quantity].items():
            what = f"{quantity} {einsum}"
            at, mine = operations(layout, einsum)
            if quantity == "temporal_steps":  # one for all instances
                _in_time(outcome, layout, einsum, what, at, mine.without(at.spatial), text)
            else:
                compare(outcome, layout, einsum, what, *matched(what, text, mine, [at.spatial]))
    return outcome


def _in_time(
    outcome: Outcome, layout: ExactLayout, einsum: str, what: str, at: Place, mine: Function, text: str
) -> None:
    """Steps: 1 wherever an Einsum executes, in whatever instances."""
    dims, theirs = read(text)
    every = operations(layout, einsum)[1].loops
    if at.spatial and dims == len(every):
        theirs = dict.fromkeys(Function(every, theirs).without(at.spatial).values, 1)
    elif dims != len(mine.loops):
        raise ValueError(f"{what} has {dims} indices, where there are {len(every)}")
    compare(outcome, layout, einsum, what, Function(mine.loops, dict.fromkeys(mine.values, 1)), theirs)


def _check_level(outcome: Outcome, layout: ExactLayout, row: Numbers) -> None:
    quantity, buffer, tensor, einsum = (row[k] for k in ("quantity", "buffer", "tensor", "einsum"))
    what = f"{quantity} {buffer}.{tensor} {einsum}"
    tree = layout.problem.tree
    if einsum not in tree.einsums or tensor not in layout.problem.cascade[einsum].tensors:
        raise ValueError(f"{what}: there is no such tensor or Einsum")
    chain = storage_chain(tree, einsum, tensor)
    nodes = [s.id for s in chain if isinstance(s.node, StorageNode) and s.node.component == level(buffer)]
    if len(nodes) != 1:
        raise ValueError(f"{what}: the mapping has {len(nodes)} such nodes, one is expected")
    at = place(layout, einsum, tensor, nodes[0])
    own = at.own
    if quantity == "occupancy":
        found = matched(what, row["value"], at.function(sizes_at(own)), [])
    elif quantity == "fills":
        found = matched(
            what, row["value"], at.function(fills_at(own, own, retained_axes(own, Reuse.SLIDE))), [at.idle]
        )
    elif quantity == "reads_to_parent":
        once = at.function(fills_at(own, own, retained_axes(own, Reuse.SLIDE), at.spatial))
        found = matched(what, row["value"], once, [at.idle])
    else:
        raise ValueError(f"the quantity {quantity} is not understood")
    compare(outcome, layout, einsum, what, *found)
