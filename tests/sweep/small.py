"""A small matmul with three tile symbols, and what it means that two sweeps are the same."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

import polymodel as pm
from tests.matmul import Actions
from tests.matmul import matmul as product

SYMBOLS = {"TM": pm.all_sizes("m"), "TN": pm.all_sizes("n"), "TK": pm.all_sizes("k")}
OBJECTIVES = ("accesses:DRAM", "working_set:GLB")
ACTIONS: Actions = {
    "DRAM": [{"name": "read", "energy": 1, "throughput": 1}],
    "GLB": [{"name": "write", "energy": 0.1, "throughput": 7}],
    "MAC": [{"name": "compute", "throughput": 2}],
}


def matmul(m: Any = 24, size: int = 2000) -> pm.Spec:
    """m x 20 x 18 on two memories."""
    free = {m: None} if isinstance(m, str) else {}
    return product("DRAM m:TM n:TN k:TK GLB", {"M": m, "N": 20, "K": 18}, {"GLB": size}, ACTIONS, free)


def without_forms(spec: pm.Spec) -> pm.Spec:
    """The same with links at compute units that form a tree, which has no closed form, and cost nothing."""
    assert spec.raw_arch is not None
    tree = pm.Fanout(name="X", fanout=1, link=pm.Link(topology="tree", throughput=1e30))
    nodes = (
        n.model_copy(update={"spatial": (tree,)}) if isinstance(n, pm.ComputeUnit) else n
        for n in spec.raw_arch.nodes
    )
    return replace(spec, raw_arch=spec.raw_arch.model_copy(update={"nodes": tuple(nodes)}))


def written(text: str, nodes: list[dict[str, object]]) -> pm.Spec:
    """A spec from YAML text, with the nodes of its mapping."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "spec.yaml"
        path.write_text(text, encoding="utf-8")
        return pm.load(path, {"mapping": {"nodes": nodes}})


def same(a: Any, b: Any) -> None:
    """The same rows bit for bit, and the same counts."""
    pd.testing.assert_frame_equal(a.frame, b.frame, check_exact=True)
    assert a.infeasible == b.infeasible
    assert (a.points, a.evaluated) == (b.points, b.evaluated)
