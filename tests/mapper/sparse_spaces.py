"""Small random spaces on sparse data, and the costs of all their mappings, evaluated one by one."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import yaml

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.api.evaluation import evaluate_problem
from polymodel.mapping.looptree import LoopTree, Node, StorageNode
from polymodel.report.sparse import with_data
from polymodel.sparse.actions.inputs import tensor_data
from polymodel.sparse.density import random_tensor
from tests.mapper.brute_evaluated import Listed

Pair = tuple[float, float]
MOST = 2000  # mappings of a space, with all combinations of choices
SIZES = [
    (4, 4, 2),
    (2, 4, 4),
    (8, 2, 2),
    (4, 2, 4),
    (2, 8, 2),
    (3, 4, 2),
    (4, 6, 1),
    (2, 2, 8),
    (16, 2, 1),
    (9, 2, 2),
]
FORMS: list[Any] = ["COO", "CSR", ["U", "CP"], ["CP", "CP"], ["U", "B"], {"format": "COO", "index": 4}]
FITS: list[Any] = ["expected", "worst", {"probability": 0.5}, {"probability": 0.8}]


@dataclass(frozen=True)
class Drawn:
    """A spec without mapping, what an exploration chooses from, and one spec per combination of choices."""

    spec: pm.Spec
    choices: dict[str, Any]
    combinations: tuple[pm.Spec, ...]


def drawn(seed: int, folder: Path) -> Drawn:
    """Two sparse operands on two or three memories, with fanouts, actions, formats and fit rules in some."""
    for turn in range(1000):
        pick = Random(1000 * seed + turn)
        document, choices, every = _document(pick, folder)
        specs = [_spec(document, rules, folder) for rules in every]
        number = Listed(specs[0]).size()
        if 100 < number * len(specs) < MOST and _some_sparse(document):
            return Drawn(_spec(document, {}, folder), choices, tuple(specs))
    raise AssertionError("no space is small enough")


def _some_sparse(document: dict[str, Any]) -> bool:
    return any("sparse" in n for n in document["arch"]["nodes"])


def _spec(document: dict[str, Any], rules: dict[str, Any], folder: Path) -> pm.Spec:
    nodes = []
    for n in document["arch"]["nodes"]:
        now = {k: dict(v) if k == "format" else v for k, v in n.get("sparse", {}).items()}
        more = rules.get(n["name"], {})
        now["format"] = {**now.get("format", {}), **more.get("format", {})}
        now["actions"] = [*now.get("actions", []), *more.get("actions", [])]
        now |= {"fit": more["fit"]} if "fit" in more else {}
        nodes.append({**n, "sparse": now})
    path = folder / "space.yaml"
    path.write_text(yaml.safe_dump({**document, "arch": {"nodes": nodes}}))
    return pm.load(path)


def _document(pick: Random, folder: Path) -> tuple[dict[str, Any], dict[str, Any], list[dict[str, Any]]]:
    m, k, n = pick.choice(SIZES)
    three, fanout = pick.random() < 0.4, pick.choice([1, 1, 2, 4])
    densities = {"A": _density(pick, m, k, folder, "MK"), "B": _density(pick, k, n, folder, "KN")}
    if pick.random() < 0.15:
        del densities["B"]
    size = pick.choice([32, 48, 80, 128, 256])
    nodes = [_memory("DRAM", "inf", pick.choice([16, 64, 200]), 16, "All")]
    held = (
        pick.choice(["All", "All", "A | B", "A | Z", "B | Z"])
        if not three
        else pick.choice(["A | B", "B | Z", "A | Z"])
    )
    nodes.append(_memory("GLB", size, pick.choice([2, 6]), 64, held))
    if three:
        nodes.append(_memory("RF", pick.choice([8, 16, 32]), 1, 128, pick.choice(["A", "B", "Z"])))
    if fanout > 1:
        nodes[1]["spatial"] = [{"name": "X", "fanout": fanout, "broadcast_partials": True}]
    nodes.append(
        {
            "type": "Compute",
            "name": "MAC",
            "actions": [
                {"name": "compute", "energy": 3, "throughput": pick.choice([2, 4, 16])},
                {"name": "gated_compute", "energy": 0.5},
            ],
        }
    )
    for node in nodes:
        found = _rules(pick, node["name"], densities)
        if found:
            node["sparse"] = found
    workload = {
        "rank_sizes": {"M": m, "K": k, "N": n},
        "bits_per_value": {"All": 8},
        "densities": densities,
        "einsums": ["Z[m, n] = A[m, k] * B[k, n]"],
    }
    choices, every = _choices(pick)
    return {"schema_version": 1, "workload": workload, "arch": {"nodes": nodes}}, choices, every


def _density(pick: Random, rows: int, columns: int, folder: Path, ranks: str) -> Any:
    share = pick.choice([0.1, 0.2, 0.3, 0.5])
    kind = pick.choice(["uniform", "uniform", "count", "row_column", "actual"])
    if kind == "count":
        return {"uniform": {"nnz": max(1, round(rows * columns * share))}}
    if kind == "uniform":
        return share
    seed = pick.randrange(10**6)
    tensor = random_tensor(list(ranks), [rows, columns], share, seed=seed)
    if kind == "actual" and tensor.nnz:
        name = f"{ranks}_{rows}_{columns}_{seed}.tns"
        pm.write_tensor(tensor, folder / name)
        return {"actual": name}
    counts = [np.bincount(tensor.coords[i], minlength=s).tolist() for i, s in enumerate((rows, columns))]
    return {"row_column": {"rows": counts[0], "columns": counts[1]}} if tensor.nnz else share


def _memory(name: str, size: Any, energy: float, rate: float, held: str) -> dict[str, Any]:
    actions = [
        {"name": "read", "energy": energy, "throughput": rate},
        {"name": "write", "energy": energy * 1.5, "throughput": rate / 2},
        {"name": "gated_read", "energy": energy * 0.1},
    ]
    keep = "All" if name == "DRAM" else "Nothing"
    return {
        "type": "Memory", "name": name, "size": size, "actions": actions,
        "tensors": {"keep": keep, "may_keep": held},
    }  # fmt: skip


def _rules(pick: Random, name: str, densities: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if name == "MAC":
        if pick.random() < 0.6:
            found["actions"] = [
                {pick.choice(["skip", "gate"]): "compute", "on": pick.choice(["A", ["A", "B"]])}
            ]
        return found
    form = {t: pick.choice(FORMS) for t in densities if pick.random() < 0.5}
    if form and name != "RF":
        found["format"] = form
        if name == "GLB":
            found["fit"] = pick.choice(FITS)
    some = [("B", "A"), ("A", "B"), ("Z", "A"), ("Z", "B")]
    actions = [{pick.choice(["skip", "gate"]): t, "on": o} for t, o in some if pick.random() < 0.35]
    return found | ({"actions": actions} if actions else {})


def _choices(pick: Random) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    if pick.random() < 0.7:
        return {}, [{}]
    forms = pick.sample(FORMS, 2)
    fits = pick.sample(FITS, 2) if pick.random() < 0.5 else []
    kinds = pick.sample(["skip", "gate", "none"], 2) if not fits else []
    glb: dict[str, Any] = {"format": {"A": forms}}
    glb |= {"fit": fits} if fits else {}
    glb |= {"actions": [{"of": "B", "on": "A", "kinds": kinds}]} if kinds else {}
    every = []
    for form, kind, fit in product(forms, kinds or ["none"], fits or [None]):
        rules: dict[str, Any] = {"format": {"A": form}}
        rules |= {"actions": [{kind: "B", "on": "A"}]} if kind != "none" else {}
        every.append({"GLB": rules | ({"fit": fit} if fit is not None else {})})
    return {"sparse_choices": {"GLB": glb}}, every


def distinct(spec: pm.Spec) -> Iterator[LoopTree]:
    """Every mapping of the space once: nodes without loops between them cost the same in any order."""
    seen = set()
    for tree in Listed(spec).trees():
        nodes: list[Node] = []
        for storage, group in groupby(tree.nodes, lambda n: isinstance(n, StorageNode)):
            some = list(group)
            nodes += sorted(some, key=partial(_place, spec)) if storage else some
        if (key := tuple(nodes)) not in seen:
            seen.add(key)
            yield LoopTree(key)


def _place(spec: pm.Spec, node: Node) -> tuple[int, tuple[str, ...]]:
    assert isinstance(node, StorageNode)
    return spec.arch.index(node.component), node.tensors


def costs_of_all(spec: pm.Spec) -> list[Pair]:
    """Joules and seconds on sparse data of every mapping whose sparse tiles fit."""
    data = tensor_data(spec.workload, folder=spec.data_folder)
    result = []
    for tree in distinct(spec):
        sparse = with_data(evaluate_problem(Problem(spec.workload, spec.arch, tree)), data)
        if sparse.feasible:
            result.append((sparse.total_energy, sparse.total_latency))
    return result


@dataclass(frozen=True)
class Compared:
    """A front beside all mappings: each has one on the front that is at most `gap` times as large in every
    objective; `promised` is the factor that the front tells."""

    objectives: tuple[str, ...]
    gap: float
    promised: float
    seconds: float


VALUES: dict[str, Callable[[Pair], float]] = {
    "sparse_energy": lambda p: p[0],
    "sparse_latency": lambda p: p[1],
    "sparse_edp": lambda p: p[0] * p[1],
}


def compared(case: Drawn, objectives: Sequence[tuple[str, ...]]) -> Iterator[Compared]:
    """Fronts beside all mappings with all choices."""
    every = [pair for spec in case.combinations for pair in costs_of_all(spec)]
    for names in objectives:
        begun = process_time()
        front = pm.explore(case.spec, objectives=names, constraints=case.choices)
        seconds = process_time() - begun
        if not front.points or front.sparse is None:
            assert not every, "there are mappings that fit"
            continue
        ours = np.array([p.values for p in front])
        theirs = np.array([[VALUES[name](pair) for name in names] for pair in every])
        both_zero = (ours[None] == 0) & (theirs[:, None] == 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.where(both_zero, 1.0, ours[None] / theirs[:, None])
        gap = ratios.max(axis=2).min(axis=1).max()
        yield Compared(names, float(gap), front.sparse.factor, seconds)


def main(arguments: Sequence[str]) -> None:
    """Print how far fronts of so many spaces are from the best: `python -m tests.mapper.sparse_spaces 60`."""
    names = [("sparse_energy",), ("sparse_latency",), ("sparse_edp",), ("sparse_energy", "sparse_latency")]
    gaps = []
    for seed in range(int(arguments[0])):
        with TemporaryDirectory() as folder:
            for found in compared(drawn(seed, Path(folder)), names):
                gaps.append(found.gap)
                holds = found.gap <= found.promised * (1 + 1e-9)
                told = f"{found.gap:.4f} of {found.promised:.3f}{'' if holds else ' BROKEN'}"
                line = " ".join((str(seed), *found.objectives, told, f"{found.seconds:.1f} s"))
                sys.stdout.write(f"{line}\n")
                sys.stdout.flush()
    near = np.mean(np.array(gaps) <= 1.01)
    sys.stdout.write(f"{len(gaps)} fronts, {near:.1%} within 1 %, the farthest {max(gaps):.4f}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
