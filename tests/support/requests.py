"""What a search may be asked, beside its workload and machine: the rows and columns of the second table.

Each request is put to a sweep, an exploration and a co-design of one product on two memories and a fanout. A
search without such a parameter has `-`; the mappings of one that answers have to obey the request.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import polymodel as pm
from polymodel.mapping.looptree import Loop, StorageNode
from tests.support.doors import BOTH, require_close
from tests.support.features import PE_TREE, WITH_PE, Feature
from tests.support.page import YES, answered
from tests.support.small_specs import memory, replaced

DRAM = memory("DRAM", 1e-10, area="1e-6 * SPEED")
for _action in DRAM["actions"]:
    _action["throughput"] = "1e9 * SPEED"
PRODUCT = Feature("a product on a fanout", arch=(DRAM, *WITH_PE[1:]), symbols={"SPEED": 1}, tree=PE_TREE)
SEARCHES = ("explore", "co-design")
SPACES = (*SEARCHES, "distribute")  # those with constraints on mappings
ALL = ("sweep", *SPACES)


@dataclass(frozen=True)
class Request:
    """`of`: the searches that have such a parameter. `obeyed`: whether a mapping does as is asked."""

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    of: tuple[str, ...] = ALL
    obeyed: Callable[[pm.Report], bool] = lambda report: report.feasible
    store: bool = False
    times: int = 1


def _loops_of(report: pm.Report, memory: str) -> list[Loop]:
    """The loops in time that can only belong to a memory: below a node of a tensor that they index."""
    (one,) = report.problem.cascade.einsums
    indexed = {a.tensor: set(a.variables) for a in one.accesses}
    found: list[Loop] = []
    held: set[str] = set()
    for _, n, _ in report.problem.tree.walk():
        if isinstance(n, StorageNode) and n.component == memory:
            held |= {v for t in n.tensors for v in indexed[t]}
        if isinstance(n, Loop) and not n.spatial and n.rank_variable in held:
            found.append(n)
    return found


def _spread_over(report: pm.Report) -> set[str]:
    return {n.rank_variable for _, n, _ in report.problem.tree.walk() if isinstance(n, Loop) and n.spatial}


def _rule(*keys: str, value: object) -> dict[str, Any]:
    """`constraints=` with one rule."""
    found = value
    for key in reversed(keys):
        found = {key: found}
    return {"constraints": found}


def _read_once(report: pm.Report) -> bool:
    table = report.accesses
    mine = table[(table["component"] == "DRAM") & (table["tensor"] == "B")]
    return int(mine["read_bits"].sum()) == 16 * 8


def _policies_in(report: pm.Report, memory: str) -> set[str]:
    nodes = (n for _, n, _ in report.spec.mapping.walk() if isinstance(n, StorageNode))
    return {str(n.reuse) for n in nodes if n.component == memory}


def _in_order(found: Sequence[str], asked: Sequence[str]) -> bool:
    """Whether the variables that are named stand in the order that is asked for."""
    named = [v for v in found if v in asked]
    return named == sorted(named, key=asked.index)


def _objective(name: str) -> Request:
    return Request(f"objective {name}", {"objectives": (name,)})


REQUESTS: tuple[Request, ...] = (
    *map(_objective, "energy latency edp working_set:GLB accesses:DRAM area utilisation".split()),
    Request("a front thinned by `eps`", {"eps": 0.1}, ("sweep", *SEARCHES)),
    Request("a limit of time", {"time_limit": 60}),
    Request("a store that a later run goes on from", store=True),
    Request("several processes", {"workers": 2}),
    Request("a comparison of symbols (`where`)", {"where": ["SPEED <= 1"]}, ("sweep", "co-design")),
    Request(
        "a limit on a figure",
        {"limits": ("working_set:GLB <= 96",)},
        SEARCHES,
        lambda report: report.value("working_set:GLB") <= 96,
    ),
    Request("several layers on one machine", of=("co-design",), times=2),
    Request(
        "factors of loops of a memory",
        _rule("memories", "GLB", "factors", value={"m": 1}),
        SPACES,
        lambda report: all(n.rank_variable != "m" or n.tile_shape == 4 for n in _loops_of(report, "GLB")),
    ),
    Request(
        "order of loops of a memory",
        _rule("memories", "GLB", "order", value=["m", "n"]),
        SPACES,
        lambda report: _in_order([n.rank_variable for n in _loops_of(report, "GLB")], ["m", "n"]),
    ),
    Request(
        "tensors that are fetched once (`no_refetch`)",
        _rule("memories", "GLB", value={"keep": "B", "no_refetch": "B"}),
        SPACES,
        _read_once,
    ),
    Request(
        "storage that may slide (`reuse`)",
        _rule("memories", "GLB", "reuse", value=["refill", "slide"]),
        SPACES,
    ),
    Request(
        "storage that keeps what the visit before held (`reuse`)",
        _rule("memories", "GLB", "reuse", value=["keep_previous"]),
        SPACES,
        lambda report: _policies_in(report, "GLB") <= {"keep_previous"},
    ),
    Request("mappings that moves add (`moves`)", {"constraints": {"moves": ["initial_tiles"]}}, SPACES),
    Request(
        "variables spread over a fanout",
        _rule("fanouts", "PE", "X", "variables", value=["m"]),
        SPACES,
        lambda report: _spread_over(report) <= {"m"},
    ),
    Request(
        "factors over a fanout",
        _rule("fanouts", "PE", "X", "factors", value={"k": 2}),
        SPACES,
        lambda report: _spread_over(report) == {"k"},
    ),
    Request(
        "tensors that instances share (`must_reuse`)",
        _rule("fanouts", "PE", "X", "must_reuse", value="A"),
        SPACES,
        lambda report: _spread_over(report) <= {"n"},
    ),
)


def sweep(request: Request, options: dict[str, Any]) -> None:
    """Two tile sizes and the symbol of the hardware."""
    tree = replaced(PE_TREE, PE_TREE[1], {**PE_TREE[1], "tile_shape": "T"})
    found = pm.sweep(PRODUCT.spec(tree), {"T": [1, 2, 4], "SPEED": [1, 2]}, **options)
    assert len(found.frame)
    for _, row in found.frame.iterrows():
        report = pm.evaluate(PRODUCT.spec(tree).bind(T=int(row["T"]), SPEED=int(row["SPEED"])))
        require_close(request.name, *((float(row[o]), report.value(o)) for o in options["objectives"]))
        assert request.obeyed(report)


@functools.lru_cache(maxsize=1)  # explore and distribute are asked of one request after the other
def _front(name: str) -> pm.Front:
    (request,) = (r for r in REQUESTS if r.name == name)
    return pm.explore(PRODUCT.spec(mapped=False), **{"objectives": BOTH, **request.arguments})


def explore(request: Request, options: dict[str, Any]) -> None:
    """Mappings on the machine; the least is above the bound by the gap at most."""
    searched = pm.explore(PRODUCT.spec(mapped=False), **options) if request.store else None
    front = searched if searched is not None else _front(request.name)
    assert front.complete
    assert 0 <= front.gap <= options.get("eps", 0)
    for point in front:
        require_close(request.name, *((point.value(o), point.report.value(o)) for o in options["objectives"]))
        assert request.obeyed(point.report)


def codesign(request: Request, options: dict[str, Any]) -> None:
    """Two machines with their mappings."""
    layer = PRODUCT.spec(mapped=False)
    layers = layer if request.times == 1 else [(layer, request.times - 1), layer]
    found = pm.codesign(layers, {"SPEED": [1, 2]}, **options)
    assert found.complete
    assert len(found)
    for point in found.points:
        assert all(map(request.obeyed, point.reports))
        energies = sum(r.total_energy for r in point.reports)
        require_close(request.name, (point.figures["energy"], energies))


def distribute(request: Request, options: dict[str, Any]) -> None:
    """One chip and two: on one the least is that of `explore`."""
    objective, *_ = options["objectives"]
    rest = {n: value for n, value in options.items() if n != "objectives"}
    found = pm.distribute(PRODUCT.spec(mapped=False), [1, 2], split="m", objective=objective, **rest)
    alone, both = found
    assert alone.complete
    assert both.complete
    figures = {**alone.figures, "edp": alone.figures["energy"] * alone.figures["latency"]}
    require_close(request.name, (figures[objective], float(_front(request.name).frame[objective].min())))


ASKED: dict[str, Callable[[Request, dict[str, Any]], None]] = {
    "sweep": sweep,
    "explore": explore,
    "co-design": codesign,
    "distribute": distribute,
}


@contextlib.contextmanager
def _options(request: Request) -> Iterator[dict[str, Any]]:
    """The arguments, with a folder where a store is asked for."""
    with contextlib.ExitStack() as stack:
        store = {"store": stack.enter_context(tempfile.TemporaryDirectory())} if request.store else {}
        yield {"objectives": BOTH, **request.arguments, **store}


def answer(request: Request, door: str) -> str:
    """What a search says of a request: yes, no with the reason, or `-` where it has no such parameter."""
    if door not in request.of:
        return "-"

    def ask() -> str:
        with _options(request) as options:
            for _ in range(1 + request.store):  # the second run goes on where the first one ended
                ASKED[door](request, options)
        return YES

    try:
        return answered(ask)
    except pm.SpecError as error:
        return "no: " + "; ".join(d.message for d in error.diagnostics)
