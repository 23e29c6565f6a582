"""The doors of the support table: each asks the running code for one feature, and compares the answer."""

from __future__ import annotations

import functools
import math
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import polymodel as pm
from tests.support.features import FEATURES, Feature
from tests.support.page import YES, Differs
from tests.support.small_specs import Node

SAME = 1e-12  # energies and latencies are sums of the same counts in another order
BOTH = ("energy", "latency")


def reference(feature: Feature, tree: Sequence[Node] | None = None) -> pm.Report:
    """The report of the engine that walks every operation."""
    return pm.evaluate(feature.spec(tree), engine="enumerate")


def require_equal(what: str, energy: float, latency: float, report: pm.Report) -> None:
    """Raise Differs unless these are the report's energy (J) and latency (s)."""
    require_close(what, (energy, report.total_energy), (latency, report.total_latency))


def require_close(what: str, *pairs: tuple[float, float]) -> None:
    """Raise Differs unless the two of each pair are the same but for the order of sums."""
    if not all(math.isclose(a, b, rel_tol=SAME, abs_tol=0) for a, b in pairs):
        raise Differs(f"{what}: {pairs}")


def exact(feature: Feature) -> str:
    """The engine of relations."""
    found = pm.evaluate(feature.spec(), engine="exact")
    require_equal(feature.name, found.total_energy, found.total_latency, reference(feature))
    return YES


def closed_forms(feature: Feature) -> str:
    """Closed forms in symbols for tile sizes, at the sizes of the mapping."""
    symbolic, sizes = _with_symbol(feature.tree)
    forms = pm.closed_forms(feature.spec(symbolic), bound=False)
    for size in sizes:
        total = forms.at(T=size).summary.iloc[-1]
        report = reference(feature, _with_symbol(feature.tree, size)[0])
        require_equal(f"{feature.name}, T={size}", total["energy_J"], total["latency_s"], report)
    if any(c.allocation == "live" for c in report.problem.hierarchy.components):
        pm.evaluate(feature.spec(), engine="symbolic")  # capacity by lifetimes is part of it
    return YES


def sweep(feature: Feature) -> str:
    """A sweep over a tile size in time; each kept point is evaluated as well."""
    symbolic, sizes = _with_symbol(feature.tree)
    found = pm.sweep(feature.spec(symbolic), {"T": sizes}, objectives=BOTH, keep="all")
    for _, row in found.frame.iterrows():
        tree, _ = _with_symbol(feature.tree, int(row["T"]))
        report = pm.evaluate(feature.spec(tree), engine="enumerate")
        require_equal(f"{feature.name}, T={row['T']}", row["energy"], row["latency"], report)
    assert len(found.frame)
    return "point by point" if any("one by one" in note for note in found.notes) else YES


def _with_symbol(tree: Sequence[Node], size: int | None = None) -> tuple[tuple[Node, ...], list[int]]:
    """The tree with a symbol (or a size) for the tile of its outermost loop, and two sizes of it."""
    for i, node in enumerate(tree):
        if node["type"] in ("Temporal", "Spatial"):
            own = node["tile_shape"]
            return (*tree[:i], {**node, "tile_shape": "T" if size is None else size}, *tree[i + 1 :]), [
                own,
                own + 1,
            ]
        below, sizes = _with_symbol(node.get("nodes", ()), size)
        if sizes:
            return (*tree[:i], {**node, "nodes": list(below)}, *tree[i + 1 :]), sizes
    return tuple(tree), []


@functools.lru_cache(maxsize=1)  # explore and co-design are asked of one feature after the other
def _front(name: str) -> pm.Front:
    (feature,) = (f for f in FEATURES if f.name == name)
    return pm.explore(feature.spec(mapped=False), objectives=BOTH, constraints=feature.constraints or None)


def explore(feature: Feature) -> str:
    """The search; for a feature of mappings, whether what it finds is as good as a mapping with it."""
    front = _front(feature.name)
    assert front.complete
    assert len(front)
    if not feature.outside:
        return YES
    report = reference(feature)
    best = {"energy": report.total_energy, "latency": report.total_latency}[feature.better_in]
    found = float(front.frame[feature.better_in].min())
    return f"no: {feature.outside}" if found > best * (1 + SAME) else YES


def codesign(feature: Feature) -> str:
    """Machines that differ in the throughput of the outermost memory, one of which is the feature's own."""
    first, *rest = feature.machine
    fast = [{**a, "throughput": f"{a['throughput']} * SPEED"} for a in first["actions"]]
    spec = feature.spec(mapped=False, machine=({**first, "actions": fast}, *rest), symbols={"SPEED": 1})
    asked = feature.constraints or None
    found = pm.codesign(spec, {"SPEED": [1, 2, 4]}, objectives=BOTH, constraints=asked)
    (own,) = (row for row in found.rows if row.machine.symbols["SPEED"] == 1)
    least = _front(feature.name).frame[list(BOTH)].min()
    require_close(feature.name, *((float(own.least[o] or 0), float(least[o])) for o in BOTH))
    return explore(feature)


def slopes(feature: Feature) -> str:
    """A ski slope of the Einsum, or of the chain."""
    if feature.slopes not in ("ski", "chain"):
        return "-"
    spec = feature.spec(mapped=False)
    if feature.slopes == "chain":
        pm.chain_slope(spec)
        return YES
    pm.ski_slope(spec)
    return YES


def sparse(feature: Feature) -> str:
    """Counts on sparse data, of the tensor A or I at half density where the spec gives none."""
    report = pm.evaluate(feature.spec())
    if feature.workload.get("densities"):
        found = pm.sparsify(report)
    else:
        first = report.problem.cascade.einsums[0].inputs[0].tensor
        found = pm.sparsify(report, densities={first: 0.5})
    assert found.table("summary").rows
    return YES


def accelforge(feature: Feature) -> str:
    """The spec as AccelForge's YAML, imported again and evaluated."""
    spec = feature.spec()
    try:
        text = pm.export_accelforge(spec)
    except pm.SpecError as error:
        return "no: " + "; ".join(d.message.partition(";")[0] for d in error.diagnostics)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "theirs.yaml"
        file.write_text(text, encoding="utf-8")
        back = pm.evaluate(pm.import_accelforge(file).spec)
    require_equal(feature.name, back.total_energy, back.total_latency, pm.evaluate(spec))
    return YES


DOORS: dict[str, Callable[[Feature], str]] = {
    "exact": exact,
    "closed forms": closed_forms,
    "sweep": sweep,
    "explore": explore,
    "co-design": codesign,
    "slopes": slopes,
    "sparse": sparse,
    "AccelForge": accelforge,
}
