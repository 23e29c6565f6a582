"""`tile_chain`: two consecutive products in panels; checks its arguments, with a remedy for every fault."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import isfinite
from typing import Literal, get_args

from polymodel.api.operands import Source, operand
from polymodel.errors import Diagnostic, SpecError
from polymodel.report.tiling.chain import ChainTiling
from polymodel.spec.faults import as_number, not_a, plainly
from polymodel.tiling.cost.model import Launch
from polymodel.tiling.matmul.chain import ROLES, Buffers, ChainPanels, chain_of
from polymodel.tiling.matmul.pipeline import WAYS, PanelWork, PipelineMachine, pipeline
from polymodel.tiling.matmul.shapes import UNBOUNDED

Association = Literal["(AB)C", "A(BC)"]


def tile_chain(
    a: Source,
    b: Source,
    c: Source,
    *,
    capacity: int | Sequence[int | None] | None,
    order: Association = "(AB)C",
    pes: int = 2,
    split: int | None = None,
    bandwidth: float = 1.0,
    launch: Launch | None = None,
    keep_configured: bool = False,
    buffers: int = 2,
    names: Sequence[str] | None = None,
    progress: Callable[[str], None] | None = None,
) -> ChainTiling:
    """Tile two consecutive products, such as a layer of a graph network, in panels that the first passes to
    the second.

    `a`, `b`, `c`: the factors, as files, SparseTensors, arrays or SciPy matrices. `order`: "(AB)C" computes
    panels of rows of A B first, "A(BC)" panels of columns of B C. `capacity`: words of the buffer of each of
    A, B, the intermediate T, C and Z, or five of these (None: unbounded). `pes`, `bandwidth`: multiplications
    and words per cycle; `split`: multipliers of the first product when both run concurrently (by default in
    proportion to their multiplications). `launch`: cycles to configure a kernel and to fill it.
    `keep_configured`: a part of the array that continues with the same kernel is not configured again.
    `buffers`: panels of T held between the products. `names`: of the ranks of files, as for `tile`.

    Raises SpecError with the faults of the input; Refused where a row does not fit, or a product is too
    large.
    """
    if launch is not None and not isinstance(launch, Launch):
        raise not_a("Launch", "tile_chain", launch, "pass e.g. pm.Launch(config_multiply=907)")
    (launch or Launch()).by_tokens("two products in a row")
    rooms = _capacities(capacity)
    pes, split, buffers = plainly((pes, split, buffers))
    _check(order, pes, split, bandwidth, buffers)
    read = [operand(x, name, names, "tile_chain") for x, name in ((a, "A"), (b, "B"), (c, "C"))]
    panels = chain_of(read[0][0], read[1][0], read[2][0], rooms, order == "A(BC)", progress)
    work, costs = PanelWork.of(panels), launch or Launch()
    machine = PipelineMachine(
        pes, split or _shared(panels, pes), float(bandwidth), costs.config("multiply"), costs.ramp,
        bool(keep_configured), buffers,
    )  # fmt: skip
    ways = sorted((pipeline(work, way, machine) for way in WAYS), key=lambda x: (x.cycles, x.words))
    told = tuple(dict.fromkeys(t for _, each in read for t in each))
    return ChainTiling(panels, work, machine, tuple(ways), told)


def _shared(panels: ChainPanels, pes: int) -> int:
    """The multipliers of the first product: proportional to its multiplications, with at least one for each
    product."""
    first, second = (int(x.sum()) for x in panels.multiplies)
    return min(max(round(pes * first / max(first + second, 1)), 1), pes - 1)


def _capacities(capacity: int | Sequence[int | None] | None) -> Buffers:
    given = plainly(capacity)
    each = (given,) * 5 if isinstance(given, int) or given is None else given
    if not isinstance(each, list | tuple) or len(each) != 5:
        fault = f"capacity {capacity!r} is not a number of words, nor five of these"
        remedy = f"write e.g. 4096, or one each for {', '.join(ROLES)}"
        raise SpecError([Diagnostic(fault, remedy, code="wrong-type")])
    faults = [
        Diagnostic(
            f"capacity {m!r} is not a positive integer", "write words, e.g. 4096", code="not-positive-integer"
        )
        for m in dict.fromkeys(each)
        if m is not None and (isinstance(m, bool) or not isinstance(m, int) or m < 1)
    ]
    if faults:
        raise SpecError(faults)
    a, b, t, c, z = (UNBOUNDED if m is None else m for m in each)
    return a, b, t, c, z


def _check(order: object, pes: object, split: object, bandwidth: object, buffers: object) -> None:
    faults = []
    if order not in get_args(Association):
        message = f"order {order!r} is unknown"
        faults.append(Diagnostic(message, "write (AB)C or A(BC)", code="unknown-choice"))
    if not isinstance(pes, int) or not _checked_integer(pes, 2):
        message = f"pes {pes!r} is not an integer of 2 or more"
        faults.append(Diagnostic(message, "write e.g. 16", code="out-of-range"))
    elif split is not None and not (_checked_integer(split, 1) and split in range(pes)):
        fault = f"split {split!r} leaves one product without multipliers"
        faults.append(Diagnostic(fault, f"write 1 to {pes - 1}", code="out-of-range"))
    if not _checked_integer(buffers, 1):
        message = f"buffers {buffers!r} is not a positive integer"
        faults.append(Diagnostic(message, "write e.g. 2", code="not-positive-integer"))
    rate = as_number(bandwidth)
    if rate is None or not isfinite(rate) or rate <= 0:
        message = f"bandwidth {bandwidth!r} is not a number above 0"
        faults.append(Diagnostic(message, "write e.g. 4", code="out-of-range"))
    if faults:
        raise SpecError(faults)


def _checked_integer(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least
