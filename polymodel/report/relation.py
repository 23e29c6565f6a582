"""Relations in ISL's notation, with names a reader knows: counters `m_0`, `m_1`, ranks, rank variables."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from polymodel.analysis.result import Problem
from polymodel.arithmetic import Affine
from polymodel.mapping.looptree import Loop
from polymodel.schedule.relations import executed_tiles
from polymodel.schedule.touch import loop_origins
from polymodel.workload.einsum import Einsum


@dataclass(frozen=True)
class Counter:
    """One coordinate of a stamp: its name, the loop, and the value that its variable starts at."""

    name: str
    loop: Loop
    variable: str
    origin: int


def counters(problem: Problem, einsum: str, node: int) -> tuple[Counter, ...]:
    """The counters of the loops above a node on the path of an Einsum, outermost first."""
    seen: dict[str, int] = {}
    found = []
    for at, loop, origin in loop_origins(problem.cascade, problem.tree, einsum):
        variable = loop.variable_in(einsum)
        number = seen.get(variable, 0)
        seen[variable] = number + 1
        if at < node:
            found.append(Counter(f"{variable}_{number}", loop, variable, origin))
    return tuple(found)


def tile_relation(problem: Problem, einsum: str, node: int, tensor: str) -> str:
    """`{ [stamp] -> tensor[element] : ... }`: what one Einsum touches below a node at each stamp.

    Raises Refused where what the Einsum executes is not covered.
    """
    e = problem.cascade[einsum]
    executes = executed_tiles(problem.cascade, problem.tree, einsum, node, tensor)
    if executes is not None:
        return str(executes)
    stamp = counters(problem, einsum, node)
    accesses = tuple(dict.fromkeys(a.projection for a in e.accesses_of(tensor)))
    places = [f"x{i}" for i in range(len(accesses[0]))]
    bodies = []
    for projection, choice in product(accesses, _alternatives(stamp)):
        parts = [*_iteration_space(e), *choice]
        parts += [f"{p} = {_text(x)}" for p, x in zip(places, projection, strict=True)]
        bodies.append(f"exists {', '.join(e.rank_variables)} : " + " and ".join(parts))
    body = " or ".join(f"({b})" for b in bodies) if len(bodies) > 1 else bodies[0]
    head = f"[{', '.join(c.name for c in stamp)}]"
    return f"{{ {head} -> {tensor}[{', '.join(places)}] : {body} }}"


def _iteration_space(e: Einsum) -> list[str]:
    found = []
    for c in e.constraints:
        if c.kind == "mod":
            found.append(f"({_text(c.expr)}) mod {c.modulus} = 0")
        else:
            found.append(f"{_text(c.expr)} {'>=' if c.kind == 'ge' else '='} 0")
    return found


def _text(x: Affine) -> str:
    return str(x)


def _alternatives(stamp: tuple[Counter, ...]) -> list[list[str]]:
    """Constraints that tie counters to rank variables; a first tile of its own size is a case of its own."""
    options: list[tuple[list[str], dict[str, str]]] = [([], {})]
    for c in stamp:
        grown = []
        for constraints, starts in options:
            base = starts.get(c.variable, str(c.origin))
            grown += [
                ([*constraints, *extra], {**starts, c.variable: start}) for extra, start in _steps(c, base)
            ]
        options = grown
    return [constraints for constraints, _ in options]


def _steps(c: Counter, base: str) -> list[tuple[list[str], str]]:
    """(constraints, start of the tile) for each case of one counter."""
    tile, initial = c.loop.tile_shape, c.loop.initial_tile_shape
    lead = "" if base == "0" else f"{base} + "
    if initial is None or initial == tile:
        start = f"{lead}{tile}{c.name}"
        return [([f"{c.name} >= 0", f"{start} <= {c.variable} < {start} + {tile}"], start)]
    start = f"{lead}{initial} + {tile}{c.name} - {tile}"
    return [
        ([f"{c.name} = 0", f"{base} <= {c.variable} < {lead}{initial}"], base),
        ([f"{c.name} >= 1", f"{start} <= {c.variable} < {start} + {tile}"], start),
    ]
