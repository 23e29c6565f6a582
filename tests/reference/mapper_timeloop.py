"""Timeloop's mapper (`mapper-oracle-timeloop/1`): its mapping evaluated, its optimum found by brute force.

The tool's space is not that of our search: every tensor is kept at every level that its constraints do not
free, a tile is moved again only by loops down to the innermost one that it depends on (`slide`), and reads
that drain outputs cost nothing. So that space is enumerated here, from formulas of a few lines per level;
they are held against the engine on the tool's own mapping and on mappings drawn from the space.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, permutations, product
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from polymodel.analysis.result import Analysis, Engine, Problem
from polymodel.architecture.hierarchy import Component, FanoutDim, Hierarchy, TensorRule
from polymodel.arithmetic import Affine
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, Node, StorageNode
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess
from tests.reference.accelforge import tree_of
from tests.reference.common import Outcome, box, sections
from tests.reference.timeloop_metrics import Point, compare, metrics_of, verified

FORMAT = "mapper-oracle-timeloop/1"
Numbers = dict[str, Any]
Ints = NDArray[np.int64]
CASE_KEYS = (
    "format name description tool problem arch mapper mapspace_dimensions search_complete time optimum"
    " mapping counts verification note notes"
).split()
LEVEL_KEYS = "energy_per_word words array meshX energy_per_op".split()
DRAWN = 20


@dataclass(frozen=True)
class Level:
    """A storage level: joules per word, words, units, and how many of them stand in a row."""

    name: str
    energy: float
    words: float
    units: int
    row: int
    keep: frozenset[str]
    bypass: frozenset[str]


@dataclass(frozen=True)
class Space:
    """The mapspace: levels outermost first, tensors with their ranks (lists of rank variables)."""

    einsum: Einsum
    levels: tuple[Level, ...]
    unit: str
    energy_per_op: float

    @property
    def variables(self) -> tuple[str, ...]:
        return self.einsum.rank_variables

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(high + 1 for _, high in self.einsum.bounds)


@dataclass(frozen=True)
class Nests:
    """Mappings of one order per level (outermost first) and one set of kept tensors per level.

    `bounds[level][variable]`: trips of the temporal loops between that level and the next, one per mapping;
    `spatial[variable]`: units above the innermost level that the variable is spread over.
    """

    orders: tuple[tuple[str, ...], ...]
    kept: tuple[frozenset[str], ...]
    bounds: tuple[dict[str, Ints], ...]
    spatial: dict[str, Ints]


def check(case: Numbers, name: str, engine: Engine) -> Outcome:
    outcome = Outcome(f"mapper/{case.get('name', name)}")
    sections(case, {"problem": dict, "arch": dict, "mapper": dict, "mapping": list, "counts": dict})
    outcome.unknown("case", case, CASE_KEYS)
    space = space_of(case)
    best, metrics = case["optimum"]["energy_sum_of_levels"], metrics_of(case["mapper"])
    tree = _sliding(tree_of(case["mapping"], outcome))
    problem = Problem(Cascade((space.einsum,)), _hierarchy(space, tree), tree)
    result = engine.analyse(problem, reuse="slide")
    _check_counts(outcome, space, result, case["counts"])
    outcome.equal("energy of the mapping", _energy(space, result), best)
    _check_levels(outcome, result, case["optimum"].get("accesses_per_level") or {})
    cycles = result.compute[0].busiest
    if metrics != ("energy",):  # else they are those of any mapping of that energy
        outcome.equal("cycles of the mapping", cycles, case["optimum"]["cycles"])
    points, many = search(space, outcome, engine)
    given, complete = (best, cycles), bool(case.get("search_complete"))
    found = compare(outcome, points, many, metrics, given, complete)
    verified(outcome, found, metrics, case.get("verification") or {})
    return outcome


def space_of(case: Numbers) -> Space:
    """KeyError or ValueError for what is not a case."""
    sizes, accesses = case["problem"]["sizes"], []
    for given in case["problem"]["problem"]:
        ranks = tuple(f"{given['name']}{i}" for i in range(len(given["projection"])))
        projection = tuple(_rank(r) for r in given["projection"])
        output = bool(given.get("read_write", False))
        accesses.append(TensorAccess(given["name"], ranks, projection, output=output))
    variables = tuple(dict.fromkeys(v for a in accesses for v in a.variables))
    bounds = tuple((0, sizes[v] - 1) for v in variables)
    leaf = next(n["compute"] for n in case["mapping"] if "compute" in n)
    einsum = Einsum(leaf, variables, box({v: sizes[v] for v in variables}), tuple(accesses), bounds)
    held: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
    for constraint in case["mapper"].get("constraints", ()):
        if constraint["type"] == "datatype":
            keep, bypass = (frozenset(constraint.get(k) or ()) for k in ("keep", "bypass"))
            held[constraint["target"]] = keep, bypass
        elif constraint["type"] != "temporal" or "factors" in constraint:
            raise ValueError(f"constraint of {constraint['target']} not understood: {constraint['type']}")
    levels, unit, price = [], "", 0.0
    for name, given in case["arch"].items():
        strange = sorted(set(given) - set(LEVEL_KEYS))
        if strange:
            raise ValueError(f"{name}: keys not understood: {', '.join(strange)}")
        if "energy_per_op" in given:
            unit, price = name, given["energy_per_op"]
            continue
        keep, bypass = held.get(name, (frozenset(), frozenset()))
        keep = keep if levels else frozenset(einsum.tensors)
        units = _units(given.get("array", ""))
        row = given.get("meshX", units)
        size = given.get("words", float("inf"))
        levels.append(Level(name, given["energy_per_word"], size, units, row, keep, bypass))
    if any(level.units != levels[-1].units and level.units > 1 for level in levels):
        raise ValueError("units at several levels are not understood")
    return Space(einsum, tuple(levels), unit, price)


def _rank(terms: list[list[Any]]) -> Affine:
    total = Affine()
    for term in terms:
        total = total + Affine.variable(term[0]).scaled(term[1] if len(term) > 1 else 1)
    return total


def _units(array: str) -> int:
    match = re.search(r"\[(\d+)\.\.(\d+)\]", array)
    return int(match.group(2)) - int(match.group(1)) + 1 if match else 1


def _sliding(tree: LoopTree) -> LoopTree:
    return LoopTree(
        tuple(
            StorageNode(n.component, n.tensors, "slide") if isinstance(n, StorageNode) else n
            for n in tree.nodes
        )
    )


def _hierarchy(space: Space, tree: LoopTree) -> Hierarchy:
    """Every spatial loop has a fanout dimension; it shares the tensors that the loop does not index."""
    dims: dict[str, list[FanoutDim]] = {}
    for loop in (n for n in tree.nodes if isinstance(n, Loop) and n.spatial):
        shared = frozenset(a.tensor for a in space.einsum.accesses if loop.rank_variable not in a.variables)
        rule = TensorRule(f"not indexed by {loop.rank_variable}", ((space.einsum.name, shared),))
        dim = FanoutDim(loop.dim, space.levels[-1].units, rule, broadcast_partials=True)
        dims.setdefault(loop.component, []).append(dim)
    memories = (Component(x.name, "memory", spatial=tuple(dims.get(x.name, ()))) for x in space.levels)
    return Hierarchy((*memories, Component(space.unit, "compute", spatial=tuple(dims.get(space.unit, ())))))


def _check_counts(outcome: Outcome, space: Space, result: Analysis, counts: Numbers) -> None:
    """Per level and tensor the counts of one unit; energies of all."""
    compute = result.compute[0]
    for level, numbers in counts.items():
        if level == space.unit:
            outcome.equal("computes", compute.operations, numbers["computes"])
            outcome.equal("cycles", compute.busiest, numbers["cycles"])
            outcome.equal("energy of computes", compute.operations * space.energy_per_op, numbers["energy"])
            continue
        price = next(x.energy for x in space.levels if x.name == level)
        for tensor, given in numbers["tensors"].items():
            buffet = next(b for b in result.buffets if (b.component, b.tensor) == (level, tensor))
            row = next(t for t in result.traffic if (t.component, t.tensor) == (level, tensor))
            where, units = f"{level}.{tensor}", buffet.instances
            outcome.equal(f"{where} capacity", buffet.tile_max, given["utilized_capacity"])
            outcome.equal(f"{where} units", units, given["instances"])
            kinds = {"reads": row.reads_fill, "fills": row.writes_fill, "updates": row.writes_drain}
            for kind, ours in kinds.items():
                outcome.equal(f"{where} {kind}", ours, given[kind] * units)
            outcome.equal(f"{where} energy", sum(kinds.values()) * price, given["energy"])


def _check_levels(outcome: Outcome, result: Analysis, given: Numbers) -> None:
    for level, accesses in given.items():
        rows = [t for t in result.traffic if t.component == level]
        ours = sum(t.reads_fill + t.writes_fill + t.writes_drain for t in rows)
        outcome.equal(f"accesses of {level}", ours, accesses)


def _energy(space: Space, result: Analysis) -> float:
    price = {x.name: x.energy for x in space.levels}
    total = result.compute[0].operations * space.energy_per_op
    for t in result.traffic:
        total += (t.reads_fill + t.writes_fill + t.writes_drain) * price[t.component]
    return total


def search(space: Space, outcome: Outcome, engine: Engine) -> tuple[list[Point], int]:
    """The least energy of the whole space at each number of cycles, and how many mappings fit.

    Some of them are held against the engine.
    """
    many, waiting = 0, []
    best: dict[int, float] = {}
    for nests in spaces(space):
        energy, fits = figures(space, nests)
        cycles = prod(space.sizes) // prod(nests.spatial.values(), start=np.int64(1))
        many += int(fits.sum())
        where = np.flatnonzero(fits)
        for steps in np.unique(cycles[where]).tolist():
            least = float(energy[fits & (cycles == steps)].min())
            best[steps] = min(best.get(steps, least), least)
        if len(where):
            at = int(where[random.Random(many).randrange(len(where))])
            waiting.append((nests, at, float(energy[at]), int(cycles[at])))
    random.Random(0).shuffle(waiting)
    for nests, at, ours, steps in waiting[:DRAWN]:
        tree = nest_tree(space, nests, at)
        problem = Problem(Cascade((space.einsum,)), _hierarchy(space, tree), tree)
        result = engine.analyse(problem, reuse="slide")
        outcome.equal(f"energy of a mapping by formula ({nests.orders})", ours, _energy(space, result))
        outcome.equal(f"cycles of a mapping by formula ({nests.orders})", steps, result.compute[0].busiest)
    if not best:
        raise ValueError("no mapping of the space fits")
    return [(energy, steps) for steps, energy in sorted(best.items())], many


def spaces(space: Space) -> Iterator[Nests]:
    """All orders above the innermost level and all sets of kept tensors, each with all factors."""
    tensors = frozenset(space.einsum.tensors)
    choices = []
    for level in space.levels:
        free = sorted(tensors - level.keep - level.bypass)
        sets = (frozenset(c) for n in range(len(free) + 1) for c in combinations(free, n))
        choices.append([level.keep | s for s in sets])
    bounds, spatial = _factors(space)
    for orders in product(permutations(space.variables), repeat=len(space.levels) - 1):
        for kept in product(*choices):
            yield Nests((*orders, space.variables), kept, bounds, spatial)


def _factors(space: Space) -> tuple[tuple[dict[str, Ints], ...], dict[str, Ints]]:
    """Every way to write each size as trips per level, and units where there are several."""
    width = len(space.levels) + 1
    tables = [np.array(list(_splits(size, width)), np.int64) for size in space.sizes]
    if space.levels[-1].units == 1:
        tables = [t[t[:, -1] == 1] for t in tables]
    grids = np.meshgrid(*(np.arange(len(t)) for t in tables), indexing="ij")
    rows = [t[g.ravel()] for t, g in zip(tables, grids, strict=True)]
    last = space.levels[-1]
    fits = np.zeros(len(rows[0]), bool)
    for across in product((False, True), repeat=len(rows)):
        x = prod((r[:, -1] for r, a in zip(rows, across, strict=True) if a), start=np.int64(1))
        y = prod((r[:, -1] for r, a in zip(rows, across, strict=True) if not a), start=np.int64(1))
        fits |= (x <= last.row) & (y <= last.units // last.row)
    rows = [r[fits] for r in rows]
    bounds = tuple(
        {v: r[:, level] for v, r in zip(space.variables, rows, strict=True)}
        for level in range(len(space.levels))
    )
    return bounds, {v: r[:, -1] for v, r in zip(space.variables, rows, strict=True)}


def _splits(size: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (size,)
        return
    for first in (d for d in range(1, size + 1) if size % d == 0):
        yield from ((first, *rest) for rest in _splits(size // first, parts - 1))


def figures(space: Space, nests: Nests) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Energy of each mapping, and whether it fits; factors divide, so that all tiles of a level are equal."""
    one, last = space.einsum, len(space.levels) - 1
    many = len(next(iter(nests.spatial.values())))
    operations = prod(space.sizes)
    energy = np.full(many, operations * space.energy_per_op, np.float64)
    held = np.zeros((len(space.levels), many), np.int64)
    for access in one.accesses:
        chain = [i for i, kept in enumerate(nests.kept) if access.tensor in kept]
        apart = prod(
            (nests.spatial[v] for v in one.rank_variables if v not in access.variables), start=np.int64(1)
        )
        whole = _extent(
            access, {v: np.int64(n) for v, n in zip(one.rank_variables, space.sizes, strict=True)}
        )
        for parent, child in zip(chain, [*chain[1:], None], strict=True):
            held[parent] += _extent(access, _tile(space, nests, parent))
            # Units of the innermost level that all need the same words are served by one access above.
            spread = apart if parent < last else np.int64(1)
            if child is None:
                moved, received = np.int64(operations) // spread, np.int64(0)
                fresh = whole * (apart if parent == last else 1)
            else:
                moved = _moved(space, nests, access, child)
                received, fresh = moved * (apart if child == last else 1), whole
            reads = moved - fresh if access.output else moved
            writes = moved if access.output else np.int64(0)
            energy += (reads + writes) * space.levels[parent].energy
            if child is not None:
                again = received * reads // np.maximum(moved, 1) if access.output else received
                energy += again * space.levels[child].energy
    fits = np.ones(many, bool)
    for level, words in zip(space.levels, held, strict=True):
        fits &= words <= level.words
    return energy, fits


def _tile(space: Space, nests: Nests, level: int) -> dict[str, Ints]:
    """Per variable the size of a level's tile: in one unit at the innermost level, else in all units."""
    found = {}
    for v in space.variables:
        inner = prod((nests.bounds[i][v] for i in range(level, len(space.levels))), start=np.int64(1))
        found[v] = inner if level == len(space.levels) - 1 else inner * nests.spatial[v]
    return found


def _extent(access: TensorAccess, tile: dict[str, Any]) -> Any:
    """Words of a tile: ranks are sums of variables with steps that leave no holes."""
    total: Any = np.int64(1)
    for expr in access.projection:
        total = total * (1 + sum((tile[v] - 1) * c for v, c in expr.terms))
    return total


def _moved(space: Space, nests: Nests, access: TensorAccess, child: int) -> Ints:
    """Words that enter a level, those of equal units once: by loops down to the innermost it depends on."""
    tile = _tile(space, nests, child)
    if child == len(space.levels) - 1:
        tile = {v: t * nests.spatial[v] for v, t in tile.items()}
    loops = [(v, nests.bounds[i][v]) for i in range(child) for v in nests.orders[i]]
    many = len(loops[0][1])
    times, step = np.ones(many, np.int64), np.ones(many, np.int64)
    slid = {v: np.broadcast_to(t, (many,)).copy() for v, t in tile.items()}
    found = np.zeros(many, bool)
    for v, trips in reversed(loops):
        if v in access.variables:
            innermost = ~found & (trips > 1)
            slid[v] = np.where(innermost, slid[v] * trips, slid[v])
            found |= innermost
            step = np.where(innermost, 1, trips)
        else:
            step = trips
        times = times * np.where(found, step, 1)
    return times * _extent(access, slid)


def nest_tree(space: Space, nests: Nests, at: int) -> LoopTree:
    """One of the mappings as a LoopTree."""
    below = dict(zip(space.variables, space.sizes, strict=True))
    nodes: list[Node] = []
    last = len(space.levels) - 1
    for i, level in enumerate(space.levels):
        if i == last:
            for v in space.variables:
                units = int(nests.spatial[v][at])
                below[v] //= units
                if units > 1:
                    nodes.append(Loop(v, below[v], spatial=True, component=level.name, dim=v))
        if nests.kept[i]:
            kept = tuple(t for t in space.einsum.tensors if t in nests.kept[i])
            nodes.append(StorageNode(level.name, kept, "slide"))
        for v in nests.orders[i]:
            trips = int(nests.bounds[i][v][at])
            below[v] //= trips
            if trips > 1:
                nodes.append(Loop(v, below[v]))
    return LoopTree((*nodes, ComputeNode(space.einsum.name, space.unit)))
