"""What `tile_matmul` is given: strategy, orders, sizes and capacities, with every fault and its remedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, get_args

from polymodel.errors import Diagnostic, SpecError
from polymodel.spec.coerce import as_number, plainly
from polymodel.spec.faults import not_a
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.matmul.shapes import Grid, Objective
from polymodel.tiling.matmul.uniform import Shape
from polymodel.tiling.matmul.walk import ORDERS

Named = Literal["uniform", "panels", "dynamic", "overbooked", "search"]
UNBOUNDED = 2**60  # words of a buffer of which nothing is said


def strategy_of(strategy: str | None, tile: object, capacity: object) -> Named:
    known = get_args(Named)
    found = strategy or ("uniform" if tile is not None else "search")
    faults = []
    if found not in known:
        faults.append(Diagnostic(f"no strategy {strategy!r}", f"write one of {', '.join(known)}"))
    if tile is None and capacity is None:
        faults.append(
            Diagnostic("neither tile nor capacity is given", "pass tile=(64,64,64) or capacity=2048")
        )
    if tile is not None and found in ("panels", "dynamic", "search"):
        faults.append(Diagnostic(f"strategy {found!r} chooses its tiles itself", "leave out tile"))
    if tile is not None and found == "overbooked" and capacity is None:
        faults.append(Diagnostic("overbooked tiles need a capacity to exceed", "pass e.g. capacity=2048"))
    if faults:
        raise SpecError(faults)
    chosen: Named = known[known.index(found)]
    return chosen


def launch_of(launch: Launch | None) -> Launch:
    if launch is not None and not isinstance(launch, Launch):
        raise not_a("Launch", "tile_matmul", launch, "pass e.g. pm.Launch(config_multiply=907)")
    return launch or Launch()


def orders_of(order: str | Sequence[str] | None) -> tuple[str, ...]:
    asked = ORDERS if order is None else (order,) if isinstance(order, str) else order
    if not isinstance(asked, Iterable):
        raise SpecError([Diagnostic(f"order {order!r} is no order of loops", "write e.g. ikj")])
    faults = [
        Diagnostic(f"no order {o!r}", f"write one of {', '.join(ORDERS)}") for o in asked if o not in ORDERS
    ]
    if not asked:
        faults.append(Diagnostic("no order of the loops is given", f"write some of {', '.join(ORDERS)}"))
    if faults:
        raise SpecError(faults)
    return tuple(dict.fromkeys(asked))


def check_figures(objective: str, overbook: float, time_limit: float | None) -> None:
    faults = []
    if objective not in get_args(Objective):
        faults.append(Diagnostic(f"objective {objective!r} is unknown", "write words or time"))
    if not _is_number(overbook) or not 0 <= overbook < 1:
        faults.append(Diagnostic(f"overbook {overbook!r} is no share of tiles", "write e.g. 0.1"))
    if time_limit is not None and (not _is_number(time_limit) or not time_limit > 0):
        faults.append(Diagnostic(f"time_limit {time_limit!r} is no time", "write seconds, e.g. 30"))
    if faults:
        raise SpecError(faults)


def _is_number(value: object) -> bool:
    return as_number(value) is not None


def shape_of(tile: object) -> Shape:
    if not isinstance(tile, Iterable):
        fault = f"tile {tile!r} is no list of sizes"
        raise SpecError([Diagnostic(fault, "write three, along i, k and j: (64, 64, 64)")])
    given = plainly(tuple(tile))
    if len(given) != 3:
        raise SpecError([Diagnostic(f"tile {given} has {len(given)} sizes", "write three: along i, k and j")])
    return given[0], given[1], given[2]


def buffers_of(capacity: int | Sequence[int | None] | None) -> Shape:
    capacity = plainly(capacity)
    if capacity is not None and not isinstance(capacity, int | Sequence):
        # Such as a fit: what holds for tiles that are added holds for no product.
        raise SpecError(
            [Diagnostic(f"capacity {capacity!r} is no number of words", "write words, e.g. 2048")]
        )
    given = (capacity,) * 3 if capacity is None or isinstance(capacity, int) else tuple(capacity)
    faults = [
        Diagnostic(f"capacity {m!r} is no whole number above 0", "write words, e.g. 2048")
        for m in dict.fromkeys(given)
        if m is not None and (isinstance(m, bool) or not isinstance(m, int) or m < 1)
    ]
    if len(given) != 3:
        faults.append(Diagnostic(f"{len(given)} capacities are given", "pass one, or three: of A, B, Z"))
    if faults:
        raise SpecError(faults)
    a, b, z = (UNBOUNDED if m is None else m for m in given)
    return a, b, z


def grid_of(grid: Sequence[Sequence[int]] | None) -> Grid | None:
    if grid is None:
        return None
    if not isinstance(grid, Iterable) or not all(isinstance(along, Iterable) for along in grid):
        fault = f"grid {grid!r} has no sizes for each of i, k and j"
        raise SpecError([Diagnostic(fault, "pass three lists of whole numbers above 0")])
    given = plainly(tuple(tuple(along) for along in grid))
    wrong = [t for along in given for t in along if isinstance(t, bool) or not isinstance(t, int) or t < 1]
    if len(given) != 3 or not all(given) or wrong:
        fault = f"grid {given} has no sizes for each of i, k and j"
        raise SpecError([Diagnostic(fault, "pass three lists of whole numbers above 0")])
    return given[0], given[1], given[2]
