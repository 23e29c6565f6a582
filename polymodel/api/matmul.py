"""`tile_matmul`: checks strategy, orders, sizes and capacities, with a remedy for every fault."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import inf
from time import monotonic
from typing import Literal, get_args

from polymodel.api.operands import Source, factor, operand
from polymodel.errors import Diagnostic, SpecError
from polymodel.governor import soft, spare, until
from polymodel.report.tiling.matmul import MatmulTiling
from polymodel.spec.faults import as_number, not_a, plainly
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.matmul.cost import MatmulMachine
from polymodel.tiling.matmul.product import product_of
from polymodel.tiling.matmul.search import STRATEGIES, search, tiles_of_shape
from polymodel.tiling.matmul.shapes import UNBOUNDED, Grid, Objective, TilingSearch
from polymodel.tiling.matmul.uniform import Shape
from polymodel.tiling.matmul.walk import ORDERS
from polymodel.tiling.plane.operands import Transposed

Named = Literal["uniform", "panels", "dynamic", "overbooked", "search"]
SEARCH = 30.0  # seconds


def tile_matmul(
    a: Source,
    b: Source | Transposed | None = None,
    *,
    tile: Sequence[int] | None = None,
    capacity: int | Sequence[int | None] | None = None,
    strategy: Named | None = None,
    order: str | Sequence[str] | None = None,
    objective: Objective = "time",
    launch: Launch | None = None,
    pes: int = 1,
    bandwidth: float = 1.0,
    overbook: float = 0.1,
    grid: Sequence[Sequence[int]] | None = None,
    time_limit: float | None = None,
    names: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> MatmulTiling:
    """Tile the product Z = A B for reuse, and give the words moved and the time taken.

    `a`, `b`: files, SparseTensors or SciPy matrices; without b the product is A A, with pm.Transposed() A
    times its transpose. Either `tile`, sizes (Ti, Tk, Tj) along i, k and j; or `capacity`, words of the
    buffer of each of A, B and Z, or three of these (None: unbounded), and a `strategy`: uniform, panels (of
    rows), dynamic, overbooked (a share `overbook` of the tiles may exceed the buffer), or search, which
    compares all by `objective`: words or time. `order`: loops, outermost first, e.g. "ikj", or several
    (default: all six). `pes`, `bandwidth`: multiplications and words per cycle. `grid`: sizes to try along i,
    k and j. A search that exceeds `time_limit` seconds (default 30) reports what it left out; if the limit is
    given, other work that exceeds it raises TimeUp. `progress` is called with the current step. `names`: of
    the ranks of files, as for `tile`.

    Raises SpecError with all faults of the input; Refused where nothing fits, or the product is too large.
    """
    made = factor(b)
    machine = MatmulMachine(pes, bandwidth, _launch_of(launch))
    chosen = _strategy_of(strategy, tile, capacity)
    orders = _orders_of(order)
    overbook, time_limit = plainly((overbook, time_limit))
    _check_figures(objective, overbook, time_limit)
    buffers, sizes = _buffers_of(capacity), _grid_of(grid)
    shape = None if tile is None else _shape_of(tile)
    seconds = inf if time_limit is None else spare(time_limit)
    end = monotonic() + seconds
    with until(end, seconds):
        first, told = operand(a, "A", names, "tile_matmul")
        second, more = (
            (made, ())
            if made is None or isinstance(made, Transposed)
            else operand(made, "B", names, "tile_matmul")
        )
        product = product_of(first, second, progress)
        known, last = (*told, *more), min(end, soft(SEARCH))
        asked = TilingSearch(buffers, machine, objective, orders, overbook, sizes, last, progress)
        if shape is not None:
            best = tiles_of_shape(product, shape, asked, chosen == "overbooked")
            return MatmulTiling(product, asked, best, (best,), known)
    strategies = STRATEGIES if chosen == "search" else (chosen,)
    result = search(product, asked, strategies, overbook)
    return MatmulTiling(product, asked, result.best, result.candidates, (*known, *result.notes))


def _strategy_of(strategy: str | None, tile: object, capacity: object) -> Named:
    known = get_args(Named)
    found = strategy or ("uniform" if tile is not None else "search")
    faults = []
    if found not in known:
        message = f"no strategy {strategy!r}"
        faults.append(Diagnostic(message, f"write one of {', '.join(known)}", code="unknown-choice"))
    if tile is None and capacity is None:
        message = "neither tile nor capacity is given"
        faults.append(Diagnostic(message, "pass tile=(64,64,64) or capacity=2048", code="missing-argument"))
    if tile is not None and found in ("panels", "dynamic", "search"):
        message = f"strategy {found!r} chooses its tiles itself"
        faults.append(Diagnostic(message, "leave out tile", code="ineffective-argument"))
    if tile is not None and found == "overbooked" and capacity is None:
        message = "overbooked tiles need a capacity to exceed"
        faults.append(Diagnostic(message, "pass e.g. capacity=2048", code="ineffective-argument"))
    if faults:
        raise SpecError(faults)
    chosen: Named = known[known.index(found)]
    return chosen


def _launch_of(launch: Launch | None) -> Launch:
    if launch is not None and not isinstance(launch, Launch):
        raise not_a("Launch", "tile_matmul", launch, "pass e.g. pm.Launch(config_multiply=907)")
    return launch or Launch()


def _orders_of(order: str | Sequence[str] | None) -> tuple[str, ...]:
    asked = ORDERS if order is None else (order,) if isinstance(order, str) else order
    if not isinstance(asked, Iterable):
        raise SpecError(
            [Diagnostic(f"order {order!r} is not an order of loops", "write e.g. ikj", code="wrong-type")]
        )
    faults = [
        Diagnostic(f"no order {o!r}", f"write one of {', '.join(ORDERS)}", code="unknown-choice")
        for o in asked
        if o not in ORDERS
    ]
    if not asked:
        message = "no order of the loops is given"
        faults.append(Diagnostic(message, f"write some of {', '.join(ORDERS)}", code="missing-argument"))
    if faults:
        raise SpecError(faults)
    return tuple(dict.fromkeys(asked))


def _check_figures(objective: str, overbook: float, time_limit: float | None) -> None:
    faults = []
    if objective not in get_args(Objective):
        message = f"objective {objective!r} is unknown"
        faults.append(Diagnostic(message, "write words or time", code="unknown-choice"))
    if not _is_number(overbook) or not 0 <= overbook < 1:
        message = f"overbook {overbook!r} is not a share of tiles"
        faults.append(Diagnostic(message, "write e.g. 0.1", code="out-of-range"))
    if time_limit is not None and (not _is_number(time_limit) or not time_limit > 0):
        message = f"time_limit {time_limit!r} is not a time"
        faults.append(Diagnostic(message, "write seconds, e.g. 30", code="wrong-type"))
    if faults:
        raise SpecError(faults)


def _is_number(value: object) -> bool:
    return as_number(value) is not None


def _shape_of(tile: object) -> Shape:
    if not isinstance(tile, Iterable):
        fault = f"tile {tile!r} is not a list of sizes"
        raise SpecError([Diagnostic(fault, "write three, along i, k and j: (64, 64, 64)", code="wrong-type")])
    given = plainly(tuple(tile))
    if len(given) != 3:
        message = f"tile {given} has {len(given)} sizes"
        raise SpecError([Diagnostic(message, "write three: along i, k and j", code="wrong-count")])
    return given[0], given[1], given[2]


def _buffers_of(capacity: int | Sequence[int | None] | None) -> Shape:
    capacity = plainly(capacity)
    if capacity is not None and not isinstance(capacity, int | Sequence):
        # Such as a fit: criteria for tiles of element-wise kernels do not apply to products.
        raise SpecError(
            [
                Diagnostic(
                    f"capacity {capacity!r} is not a number of words",
                    "write words, e.g. 2048",
                    code="wrong-type",
                )
            ]
        )
    given = (capacity,) * 3 if capacity is None or isinstance(capacity, int) else tuple(capacity)
    faults = [
        Diagnostic(
            f"capacity {m!r} is not a positive integer", "write words, e.g. 2048", code="not-positive-integer"
        )
        for m in dict.fromkeys(given)
        if m is not None and (isinstance(m, bool) or not isinstance(m, int) or m < 1)
    ]
    if len(given) != 3:
        message = f"{len(given)} capacities are given"
        faults.append(Diagnostic(message, "pass one, or three: of A, B, Z", code="wrong-count"))
    if faults:
        raise SpecError(faults)
    a, b, z = (UNBOUNDED if m is None else m for m in given)
    return a, b, z


def _grid_of(grid: Sequence[Sequence[int]] | None) -> Grid | None:
    if grid is None:
        return None
    if not isinstance(grid, Iterable) or not all(isinstance(along, Iterable) for along in grid):
        fault = f"grid {grid!r} has no sizes for each of i, k and j"
        remedy = "pass three lists of positive integers"
        raise SpecError([Diagnostic(fault, remedy, code="missing-value")])
    given = plainly(tuple(tuple(along) for along in grid))
    wrong = [t for along in given for t in along if isinstance(t, bool) or not isinstance(t, int) or t < 1]
    if len(given) != 3 or not all(given) or wrong:
        fault = f"grid {given} has no sizes for each of i, k and j"
        remedy = "pass three lists of positive integers"
        raise SpecError([Diagnostic(fault, remedy, code="missing-value")])
    return given[0], given[1], given[2]
