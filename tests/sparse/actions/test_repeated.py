"""Sparse counts of Einsums that read a tensor several times or add to what is there, against a walk."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.analysis.result import Problem
from polymodel.architecture.hierarchy import Hierarchy
from polymodel.errors import Refused
from polymodel.mapping.looptree import Loop, StorageNode
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.actions.links import EinsumLinks
from polymodel.sparse.density import DensityModel, Uniform
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.numbers import parse_affine
from polymodel.workload.einsum import Cascade, TensorAccess
from tests.faults import refused
from tests.sparse.actions.literal import Literal
from tests.sparse.actions.small import RANKS, small_problems
from tests.sparse.actions.test_literal import STATES, given_data, legal, ours, ranks, shapes

MAPPING = Path(__file__).parents[3] / "workloads/attention_one_pass/simple_two_level/one_pass.yaml"
# What A is read at besides, and what the other tensors are indexed by.
FORMS: dict[str, tuple[dict[str, tuple[str, ...]], tuple[tuple[str, ...], ...]]] = {
    "square": (RANKS, (("m", "k"),)),
    "thrice": (RANKS, (("m", "k"), ("m", "k"))),
    "stencil": ({"A": ("m", "k"), "B": ("k", "n"), "Z": ("m", "n")}, (("m + 2", "k"),)),
    "five points": ({"A": ("m", "k"), "B": ("k",), "Z": ("m",)}, (("m + 1", "k"), ("m + 2", "k"))),
    "Gram": ({"A": ("m", "k"), "B": ("k",), "Z": ("m", "n")}, (("n", "k"),)),
    "scattered": ({"A": ("m", "k"), "B": ("k",), "Z": ("m",)}, (("m + 1", "k + 1"),)),
}


def repeated(problem: Problem, form: str, operation: str, adding: bool) -> Problem:
    """The same with A read at more elements, and perhaps with sums that are added to what is there."""
    (einsum,) = problem.cascade.einsums
    first = einsum.access_of("A")
    more = [TensorAccess("A", first.ranks, tuple(map(parse_affine, index))) for index in FORMS[form][1]]
    accesses = [replace(a, accumulates=adding) if a.output else a for a in einsum.accesses]
    one = replace(einsum, accesses=(*accesses, *more), operations=(("map", operation),))
    # What a unit leaves out of sums is a question of its own.
    units = [
        replace(c, sparse=None) if c.computes and operation == "add" else c
        for c in problem.hierarchy.components
    ]
    return replace(problem, cascade=Cascade((one,)), hierarchy=Hierarchy(tuple(units)))


@st.composite
def problems(draw: st.DrawFn, largest: int = 3) -> Problem:
    form = draw(st.sampled_from(sorted(FORMS)))
    problem = draw(small_problems(largest, FORMS[form][0]))
    return repeated(problem, form, draw(st.sampled_from(["mul", "add"])), draw(st.booleans()))


def evenly(problem: Problem) -> bool:
    """Whether what is read of A stands evenly apart."""
    return EinsumLinks(problem, "Z").used("A").union is not None


def whole_shapes(problem: Problem) -> dict[str, tuple[int, ...]]:
    """Up to the largest index of any access."""
    (einsum,) = problem.cascade.einsums
    top = {v: high for v, (_, high) in zip(einsum.rank_variables, einsum.bounds, strict=True)}
    found = shapes(problem)
    for t in found:
        ends = [[x.value(top) + 1 for x in a.projection] for a in einsum.accesses_of(t)]
        found[t] = tuple(map(max, zip(*ends, strict=True)))
    return found


@settings(max_examples=80, deadline=None)
@given(problems(), st.data())
def test_actual_data_is_counted_as_a_walk_counts(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    nonzero, known, packed = given_data(problem, data, whole_shapes(problem))
    walk = Literal(problem)
    holding = {n.component for n in problem.tree.nodes if isinstance(n, StorageNode) and "A" in n.tensors}
    if not evenly(problem) and any(t == "A" and c in holding for c, t in packed):
        with pytest.raises(Refused, match="do not stand evenly apart, so that they make no tiles"):
            ours(problem, known, packed)
        packed = {(c, t) for c, t in packed if t != "A"}
    wanted = walk(nonzero, packed)
    found, labels = ours(problem, known, packed)
    for (tensor, node, kind), label in labels.items():
        for state in (*STATES, "effectual", "ineffectual") if label == "exact" and kind != "busiest" else ():
            assert found[tensor, node, kind, state] == wanted[tensor, node, kind, state]
    # Instances that share parts of what they hold are not told apart.
    if not any(isinstance(node, Loop) and node.spatial for node in problem.tree.nodes):
        assert {label for key, label in labels.items() if key[-1] != "busiest"} == {"exact"}


@settings(max_examples=40, deadline=None)
@given(problems(), st.data())
def test_of_densities_what_is_no_bound_is_the_mean(problem: Problem, data: st.DataObject) -> None:
    legal(problem)
    shape = whole_shapes(problem)
    choices, known = [], {"Z": dense_data("Z")}
    for t in ("A", "B"):
        points = list(product(*map(range, shape[t])))
        n = data.draw(st.integers(0, min(3 if t == "A" else 1, len(points))))
        choices.append(list(combinations(points, n)))
        known[t] = TensorData(t, Uniform.of(ranks(problem, t), shape[t], nnz=n))
    assume(len(choices[0]) * len(choices[1]) <= 300)
    packed = {(c, t) for c in ("DRAM", "GLB") for t in ("A", "B") if data.draw(st.booleans())}
    try:
        found, labels = ours(problem, known, packed)
    except Refused:
        assume(False)
    walk, mean = Literal(problem), Counter()
    for a, b in product(*choices):
        for key, n in walk({"A": a, "B": b}, packed).items():
            mean[key] += n / (len(choices[0]) * len(choices[1]))
    for (tensor, node, kind), label in labels.items():
        for state in ("actual", "gated", "skipped", "absent", "effectual"):
            key = tensor, node, kind, state
            if label not in ("bound", "estimate"):
                assert found[key] == pytest.approx(mean[key], rel=1e-9, abs=1e-9), (key, label)
            elif state == "actual" and label == "bound":
                assert found[key] >= mean[key] - 1e-9, (key, label)


def recurrence(texts: list[str], init: dict[str, float], skip: str = "") -> dict[str, object]:
    """Einsums over generations p and rows m, p by p. DRAM keeps A as coordinates, MAC skips on `skip`."""
    price = {"energy": 1e-12, "throughput": 1e9}
    actions = [{"name": n, **price} for n in ("read", "write")]
    memories = [{"type": "Memory", "name": n, "size": "inf", "actions": actions} for n in ("DRAM", "GLB")]
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", **price}]}
    rules = {"sparse": {"actions": [{"skip": "compute", "on": skip}]}} if skip else {}
    names = sorted({n for text in texts for n in "SAXYBT" if f"{n}[" in text})
    path = [{"type": "Compute", "einsum": text[0], "component": "MAC"} for text in texts]
    branches = [{"type": "Nested", "nodes": [leaf]} for leaf in path]
    storages = [{"type": "Storage", "component": n, "tensors": names} for n in ("DRAM", "GLB")]
    loop = {"type": "Temporal", "rank_variable": "p", "tile_shape": 1}
    below = path if len(path) == 1 else [{"type": "Sequential", "nodes": branches}]
    sizes = {"P": 2, "M": 2}
    return {
        "schema_version": 1,
        "arch": {"nodes": [memories[0] | {"sparse": {"format": {"A": "COO"}}}, memories[1], unit | rules]},
        "workload": {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "init": init, "einsums": texts},
        "mapping": {"nodes": [storages[0], loop, storages[1], *below]},
    }


def placements(shape: tuple[int, ...], count: int) -> list[set[tuple[int, ...]]]:
    return list(map(set, combinations(product(*map(range, shape)), count)))


@pytest.mark.parametrize(("before", "operation"), [(1.0, "*"), (0.0, "*"), (0.0, "+"), (2.0, "+")])
def test_operations_on_what_is_carried_forward(before: float, operation: str) -> None:
    """X has 2 nonzeros of 6, A 3 of 4: the mean over all placements, with what is before the first one."""
    texts = [f"Y[p, m] = X[p, m] {operation} A[p, m]", "X[P=p+1, m] = Y[p, m] * B[m]"]
    report = pm.evaluate(pm.load(recurrence(texts, {"X": before})))
    counts = pm.sparsify(report, densities={"X": 2 / 6, "A": 3 / 4})
    mean = 0.0
    pairs = list(product(placements((3, 2), 2), placements((2, 2), 3)))
    for x, a in pairs:
        for p, m in product(range(2), range(2)):
            read = (p, m) in x if p else bool(before)
            mean += (read and (p, m) in a) if operation == "*" else (read or (p, m) in a)
    assert counts.compute.loc[0, "effectual"] == pytest.approx(mean / len(pairs), rel=1e-12)
    assert counts.compute.loc[0, "label"] == "expected"


def test_others_are_counted_as_beside_a_tensor_of_its_own() -> None:
    """A running sum moves as much of A, of given nonzeros, as a sum with another tensor does."""
    tensor = SparseTensor.from_coo("A", ("P", "M"), (2, 2), [[0, 1], [1, 1]], [1, 1])
    rows = []
    for text in ("S[P=p+1, m] = S[p, m] + A[p, m]", "S[p, m] = T[p, m] + A[p, m]"):
        init = {"S": 0.0} if "= S" in text else {}
        counts = pm.sparsify(pm.evaluate(pm.load(recurrence([text], init))), tensors={"A": tensor})
        table = counts.accesses
        rows.append(table[table.tensor == "A"].to_dict("records"))
    assert rows[0] == rows[1]
    assert {row["label"] for row in rows[0]} == {"exact"}
    assert sum(row["absent"] for row in rows[0]) > 0


def test_what_would_break_a_recurrence_is_refused() -> None:
    running = pm.evaluate(pm.load(recurrence(["S[P=p+1, m] = S[p, m] + A[p, m]"], {"S": 0.0}, skip="A")))
    told = "actions on A leave out operations that carry S forward\n.*remove actions with `on: A`"
    with pytest.raises(Refused, match=told):
        pm.sparsify(running, densities={"A": 0.5})
    texts = ["Y[p, m] = X[p, m] * A[p, m]", "X[P=p+1, m] = Y[p, m] * B[m]"]
    cycle = pm.evaluate(pm.load(recurrence(texts, {"X": 1.0})))
    with refused("unsupported-recurrence", "X"):
        pm.sparsify(cycle, densities={"B": 0.5})
    nonzeros = SparseTensor.from_coo("X", ("P", "M"), (3, 2), [[1], [1]], [1])
    with refused("unsupported-recurrence", "X"):
        pm.sparsify(cycle, tensors={"X": nonzeros})


def test_one_pass_attention_with_two_of_four_keys() -> None:
    """Half of the keys' operations are effectual; what is carried from chunk to chunk is whole."""
    spec = pm.load("attention_one_pass", "simple_two_level", str(MAPPING))
    dense = pm.evaluate(spec)
    counts = pm.sparsify(dense, densities={"K": {"fixed_structured": {"n": 2, "m": 4, "rank": "E"}}})
    assert counts.compute.effectual.tolist() == [
        row.operations / (2 if row.einsum == "QK" else 1) for row in dense.analysis.compute
    ]
    assert set(counts.accesses.label) == {"exact"}


SQUARE = {"A x A": "A[I=m, J=k] * A[I=k, J=n]", "A x A^T": "A[I=m, J=k] * A[I=n, J=k]"}
ROWS, COLUMNS, BOTH = [7, 1, 0, 2, 4, 1, 1, 0], [6, 2, 2, 1, 1, 3, 1, 0], [4, 1, 0, 2, 3, 1, 2, 2]


@pytest.mark.parametrize("product_of_two", SQUARE)
@pytest.mark.parametrize("kind", ["row_column", "symmetric", "rank_nnz", "diagonals"])
@pytest.mark.thin(99)
def test_a_matrix_times_itself(product_of_two: str, kind: str) -> None:
    """Columns with many nonzeros meet rows with many: of whole rows and columns exactly sum c_k r_k."""
    lines = {"row_column": (ROWS, COLUMNS), "symmetric": (BOTH, BOTH)}
    models: dict[str, DensityModel] = {k: pm.RowColumn.of("IJ", (8, 8), *x) for k, x in lines.items()}
    models["rank_nnz"] = pm.RankNnz.of("IJ", (8, 8), ROWS)
    models["diagonals"] = pm.Diagonals.of("IJ", (8, 8), [-1, 0, 2], [0.5, 0.9, 0.4], symmetric=False)
    actions = [{"name": n, "energy": 1, "throughput": 1} for n in ("read", "write")]
    memory = {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"}, "actions": actions}
    mac = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1, "throughput": 1}],
           "sparse": {"actions": [{"skip": "compute", "on": "A"}]}}  # fmt: skip
    loops = [{"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in "mkn"]
    spec = pm.load(
        {
            "schema_version": 1, "arch": {"nodes": [memory, mac]},
            "workload": {"rank_sizes": {"M": 8, "N": 8, "I": 8, "J": 8}, "bits_per_value": {"All": 8},
                         "einsums": [f"Z[m, n] = {SQUARE[product_of_two]}"]},
            "mapping": {"nodes": [{"type": "Storage", "component": "DRAM", "tensors": ["A", "Z"]}, *loops,
                                  {"type": "Compute", "einsum": "Z", "component": "MAC"}]},
        }
    )  # fmt: skip
    report, model = pm.evaluate(spec), models[kind]
    found = pm.sparsify(report, densities={"A": model}).counts
    (count,) = found.compute
    if kind in lines and product_of_two == "A x A":
        wanted = sum(r * c for r, c in zip(*lines[kind], strict=True))
        assert count.effectual == pytest.approx(wanted, rel=1e-9)
    walks = [pm.sparsify(report, {"A": model.draw(seed)}).counts for seed in range(60)]
    seen = np.array([w.compute[0].effectual for w in walks], dtype=np.float64)
    near = 4 * float(seen.std()) / seen.size**0.5 + 0.02 * float(seen.mean())
    assert count.effectual == pytest.approx(float(seen.mean()), abs=near)
    assert (count.executed, count.label) == (count.effectual, "expected")
    for i, a in enumerate(found.accesses):
        mean = float(np.mean([w.accesses[i].actual for w in walks]))
        if a.tensor == "Z":
            # No more elements of the result move than operations are executed.
            assert mean - near <= a.actual <= count.executed + 1e-9
        else:
            assert a.actual == mean
