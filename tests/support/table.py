"""Which door offers which feature, asked of the running code: `python -m tests.support.table [--check]`.

Each cell of docs/reference/support.md is an answer of the code: "yes" where a door counts the feature and
agrees with the engine that walks every operation, else the reason with which the door refuses it. Without
--check the table in the page is written anew; with it nothing is written, and exit code 1 says that the page
is outdated. Where a door gives other numbers or fails, its cell says "differs", the error goes to stderr, and
the exit code is 1; the other cells are written all the same.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import polymodel as pm
from polymodel.mapping.looptree import Loop
from tests.support.features import FEATURES, Feature, Node

PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "support.md"
BEGIN, END = "<!-- the table: python -m tests.support.table -->\n", "<!-- end of the table -->\n"
YES = "yes"
DIFFERS = "differs"
FAILURES = (  # what a defect behind one cell may raise; the other cells are asked all the same
    AssertionError,
    pm.PolymodelError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)
SAME = 1e-12  # energies and latencies are sums of the same counts in another order


class Differs(AssertionError):
    """A door that answers with other numbers."""


def reference(feature: Feature, tree: Sequence[Node] | None = None) -> pm.Report:
    """The report of the engine that walks every operation."""
    return pm.evaluate(feature.spec(tree), engine="enumerate")


def require_equal(what: str, energy: float, latency: float, report: pm.Report) -> None:
    """Raise Differs unless these are the report's energy (J) and latency (s)."""
    pairs = ((energy, report.total_energy), (latency, report.total_latency))
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
    found = pm.sweep(feature.spec(symbolic), {"T": sizes}, objectives=("energy", "latency"), keep="all")
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


def explore(feature: Feature) -> str:
    """The search; for a feature of mappings, whether what it finds is as good as a mapping with it."""
    front = pm.explore(feature.spec(mapped=False), objectives="energy latency".split())
    assert front.complete
    assert len(front)
    if not feature.outside:
        return YES
    if not feature.better_in:
        loops = (n for point in front for _, n, _ in point.spec.mapping.walk() if isinstance(n, Loop))
        assert all(n.initial_tile_shape in (None, n.tile_shape) for n in loops)
        return f"no: {feature.outside}"
    report = reference(feature)
    best = {"energy": report.total_energy, "latency": report.total_latency}[feature.better_in]
    found = float(front.frame[feature.better_in].min())
    return f"no: {feature.outside}" if found > best * (1 + SAME) else YES


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


DOORS: dict[str, Callable[[Feature], str]] = {
    "exact": exact,
    "closed forms": closed_forms,
    "sweep": sweep,
    "explore": explore,
    "slopes": slopes,
    "sparse": sparse,
}


def answer(feature: Feature, door: str) -> str:
    """What a door says of a feature: yes, a way, or no with the reason."""
    try:
        return DOORS[door](feature)
    except pm.Refused as refusal:
        return f"no: {refusal.message}"


def rows(features: Iterable[Feature] = FEATURES) -> tuple[list[tuple[str, ...]], list[str]]:
    """One row per feature: its name, then the answer of every door; and a line for each cell that fails."""
    failed: list[str] = []

    def cell(feature: Feature, door: str) -> str:
        try:
            return answer(feature, door)
        except FAILURES as error:
            failed.append(f"{feature.name}, {door}: {type(error).__name__}: {error}")
            return DIFFERS

    return [(f.name, *(cell(f, door) for door in DOORS)) for f in features], failed


def page_text(found: Sequence[tuple[str, ...]]) -> str:
    """The table in Markdown: short cells, with the reasons numbered below."""
    reasons: dict[str, int] = {}

    def cell(text: str) -> str:
        if not text.startswith("no: "):
            return text
        number = reasons.setdefault(text.removeprefix("no: "), len(reasons) + 1)
        return f"no [{number}]"

    lines = [f"| feature | {' | '.join(DOORS)} |", "|---|" + "---|" * len(DOORS)]
    lines += [f"| {name} | {' | '.join(map(cell, cells))} |" for name, *cells in found]
    told = [f"{number}. {reason}" for reason, number in reasons.items()]
    return "\n".join([*lines, "", "Reasons, as they are told:", "", *told]) + "\n"


def stored() -> tuple[str, str, str]:
    """The page before the table, the table, and what follows."""
    text = PAGE.read_text(encoding="utf-8")
    before, _, rest = text.partition(BEGIN)
    table, _, after = rest.partition(END)
    return before, table, after


def stored_cells() -> dict[str, dict[str, str]]:
    """Feature -> door -> what the page says, with the reasons in their places."""
    lines = stored()[1].splitlines()
    reasons = dict(line.split(". ", 1) for line in lines if line[:1].isdecimal())
    found = {}
    for line in lines[2:]:
        if not line.startswith("| "):
            break
        name, *cells = line.strip("| ").split(" | ")
        whole = [re.sub(r"no \[(\d+)\]", lambda m: f"no: {reasons[m[1]]}", cell) for cell in cells]
        found[name] = dict(zip(DOORS, whole, strict=True))
    return found


def main(arguments: list[str] | None = None, features: Iterable[Feature] = FEATURES) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args(arguments)
    before, table, after = stored()
    found, failed = rows(features)
    fresh = page_text(found)
    sys.stderr.writelines(f"{line}\n" for line in failed)
    if options.check:
        sys.stdout.write("" if fresh == table else f"{PAGE} differs:\n{fresh}")
        return int(fresh != table or bool(failed))
    PAGE.write_text(f"{before}{BEGIN}{fresh}{END}{after}", encoding="utf-8")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
