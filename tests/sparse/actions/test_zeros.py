"""Operations of which it is not known what they make of zeros: refused only where zeros reach them."""

from __future__ import annotations

import copy
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from tests.faults import faults, refused

ROOT = Path(__file__).parents[3]

CHAIN = {
    "arch": {
        "nodes": [
            {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"},
             "actions": [{"name": "read", "energy": 1e-12}, {"name": "write", "energy": 1e-12}]},
            {"type": "Memory", "name": "GLB", "size": "inf",
             "actions": [{"name": "read", "energy": 1e-13}, {"name": "write", "energy": 1e-13}]},
            {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1e-13}],
             "sparse": {"actions": [{"skip": "compute", "on": "Inputs"}]}},
        ]
    },
    "workload": {
        "rank_sizes": {"M": 4, "K": 5, "N": 6, "P": 3},
        "bits_per_value": {"All": 8},
        "einsums": [
            "T[m, n] = A[m, k] * B[k, n]",
            {"name": "S", "tensor_accesses": [{"name": "T", "projection": ["m", "n"]},
             {"name": "S", "projection": ["m", "n"], "output": True}], "operations": {"map": "exp"}},
            "Z[m, p] = S[m, n] * C[n, p]",
        ],
    },
    "mapping": {
        "nodes": [
            {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "T", "S", "C", "Z"]},
            {"type": "Sequential", "nodes": [
                {"type": "Nested", "nodes": [
                    {"type": "Temporal", "rank_variable": v, "tile_shape": 1} for v in loops
                ] + [{"type": "Compute", "einsum": e, "component": "MAC"}]}
                for e, loops in (("T", "mnk"), ("S", "mn"), ("Z", "mpn"))
            ]},
        ]
    },
}  # fmt: skip


def chained(operation: str) -> dict[str, Any]:
    found: dict[str, Any] = copy.deepcopy(CHAIN)
    found["workload"]["einsums"][1]["operations"]["map"] = operation
    return found


def chain(operation: str) -> pm.Report:
    return pm.evaluate(pm.load(chained(operation)))


def test_a_softmax_of_dense_scores_is_no_hindrance() -> None:
    """Only C has zeros: the exponential never sees one."""
    found = pm.sparsify(chain("exp"), densities={"C": 0.5})
    work = {c.einsum: c for c in found.counts.compute}
    assert (work["S"].effectual, work["S"].label) == (24, "exact")
    assert (work["Z"].effectual, work["Z"].label) == (36, "expected")


@pytest.mark.parametrize("operation", ["exp", "sigmoid", "rsqrt", "_0 + 1", "1 / (_0 + 2)"])
def test_zeros_end_where_they_are_made_something_else_of(operation: str) -> None:
    """As many products of the next Einsum are not zero as dense values have, though the unit skips on all
    inputs; the exponential is taken of every point."""
    random = np.random.default_rng(4)
    a, b, c = (random.random(s) * (random.random(s) < 0.4) for s in ((4, 5), (5, 6), (6, 3)))
    ranks = {"A": "MK", "B": "KN", "C": "NP"}
    given = {n: pm.SparseTensor.from_dense(n, [*ranks[n]], x) for n, x in zip("ABC", (a, b, c), strict=True)}
    report = chain(operation)
    found = pm.sparsify(report, given)
    with np.errstate(divide="ignore"):
        made = pm.values(pm.load(chained(operation)), {"A": a, "B": b, "C": c})["S"]
    work = {w.einsum: w for w in found.counts.compute}
    assert (work["S"].effectual, work["S"].skipped, work["S"].label) == (24, 0, "exact")
    assert work["Z"].effectual == np.einsum("mn,np->", made != 0, c != 0, dtype=np.int64)
    assert work["Z"].skipped == 4 * 6 * 3 - work["Z"].effectual


def test_one_operand_may_stop_an_operation_and_the_other_not() -> None:
    """M[k] * exp(T[k]): what M lacks is left out, and what T lacks is 1."""
    found = least_sums("_0 * exp(_1)", {"A": 0.25, "B": 0.5}, default={}, reduce="add").sparse
    assert found.compute[["effectual", "skipped"]].to_dict("records") == [{"effectual": 250, "skipped": 750}]
    assert any("skip on B does nothing in Z" in note for note in found.notes)


def test_sums_inside_a_formula_are_refused() -> None:
    with refused("unsupported-operation", "exp", "_0"):
        _ = least_sums("exp(_0 + _1) - 1", {"A": 0.25, "B": 0.5}, default={}, reduce="add").sparse


def test_functions_that_keep_zeros_are_known() -> None:
    found = pm.sparsify(chain("relu"), densities={"T": 0.5})
    work = {c.einsum: c for c in found.counts.compute}
    assert work["S"].effectual == 12
    assert work["Z"].effectual == 36


@pytest.mark.thin(99)
@pytest.mark.parametrize("tensor", ["WFFA", "WZ"])
def test_weights_of_a_fused_transformer_may_be_sparse(tensor: str) -> None:
    """Its softmax is upstream of them."""
    report = pm.evaluate(pm.load("gpt3_6.7B/fused", "tpu_v4i"))
    found = pm.sparsify(report, densities={tensor: 0.5})
    work = {c.einsum: c for c in found.counts.compute}
    assert work["QK_softmax"].label == "exact"
    assert work[tensor[1:]].effectual == work[tensor[1:]].dense / 2


def test_sweeps_tell_the_same() -> None:
    """Zeros of the scores end at the exponential: the rest costs what it does with dense scores."""
    mapped = copy.deepcopy(CHAIN)
    mapped["mapping"]["nodes"][1]["nodes"][2]["nodes"][0]["tile_shape"] = "TM"

    def swept(densities: dict[str, float]):
        spec = pm.load({**mapped, "workload": {**mapped["workload"], "densities": densities}})
        return pm.sweep(spec, {"TM": [1, 2, 4]}, objectives=["sparse_energy"], keep="all")

    found, dense = swept({"T": 0.5, "C": 0.5}).frame, swept({"C": 0.5}).frame
    assert found.sparse_energy.tolist() == dense.sparse_energy.tolist()
    assert swept({"C": 0.5}).frame.feasible.tolist() == [True, True, True]


def test_what_is_absent_in_masked_scores_is_minus_infinity() -> None:
    """exp(-inf) is 0, so that a masked score stays absent; of 1 it would not be."""
    masked = copy.deepcopy(CHAIN)
    masked["workload"] |= {"default": {"T": "-inf"}, "densities": {"T": 0.5}}
    masked["workload"]["einsums"][1]["operations"]["map"] = "exp"
    work = {c.einsum: c for c in pm.evaluate(pm.load(masked)).sparse.counts.compute}
    assert (work["S"].effectual, work["Z"].effectual) == (12, 36)
    masked["workload"]["default"] = {"T": 1}
    work = {c.einsum: c for c in pm.evaluate(pm.load(masked)).sparse.counts.compute}
    assert (work["S"].effectual, work["Z"].effectual) == (24, 72)
    masked["workload"]["default"] = {"U": 1}
    with faults("unknown-name", at="workload.default.U"):
        pm.load(masked)


@pytest.mark.parametrize(
    ("operation", "zero"),
    [
        ("relu(_0) * 3", True), ("tanh(-_0) / 2", True), ("exp(_0) - 1", True), ("_0 ** 2", True),
        ("_0 + 1", False), ("exp(_0)", False), ("1 / _0", False),
    ],
)  # fmt: skip
def test_formulas_are_worked_out_at_zero(operation: str, zero: bool) -> None:
    found = pm.sparsify(chain(operation), densities={"T": 0.5})
    assert {c.einsum: c for c in found.counts.compute}["S"].effectual == (12 if zero else 24)


def test_attention_in_a_sliding_window_takes_its_maximum_and_exponential_of_the_window_alone() -> None:
    """12 tokens see 2 on either side: 12 * 5 - 6 scores, of which the maximum, the exponential and the
    products with 3 values each are taken."""

    def einsum(output: list[str], *read: list[str], **operations: str) -> dict[str, object]:
        accesses = [{"name": name, "projection": ranks} for name, *ranks in read]
        made = {"name": output[0], "projection": output[1:], "output": True}
        return {"name": output[0], "tensor_accesses": [*accesses, made], "operations": operations}

    scores = ["QK", "m", "p"]
    workload = {
        "rank_sizes": {"M": 12, "P": 12, "E": 4, "F": 3},
        "bits_per_value": {"All": 8},
        "densities": {"QK": {"banded": {"width": 2}}, "LM": 1},
        "default": {"QK": "-inf"},
        "einsums": [
            einsum(scores, ["Q", "m", "e"], ["K", "p", "e"]),
            einsum(["LM", "m"], scores, reduce="max"),
            einsum(["S", "m", "p"], scores, ["LM", "m"], map="exp(_0 - _1)"),
            einsum(["AV", "m", "f"], ["S", "m", "p"], ["V", "p", "f"]),
        ],
    }
    leaves = [[{"type": "Compute", "einsum": e, "component": "MAC"}] for e in ("QK", "LM", "S", "AV")]
    tensors = ["Q", "K", "QK", "LM", "S", "V", "AV"]
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": tensors},
        {"type": "Sequential", "nodes": [{"type": "Nested", "nodes": x} for x in leaves]},
    ]
    spec = pm.load({"arch": CHAIN["arch"], "workload": workload, "mapping": {"nodes": nodes}})
    work = {c.einsum: c.effectual for c in pm.evaluate(spec).sparse.counts.compute}
    assert work == {"QK": 12 * 12 * 4, "LM": 54, "S": 54, "AV": 54 * 3}


# The six weights of a layer of GPT-3 6.7B: ranks, the last of them with two values of four, and elements.
GPT3 = {
    **dict.fromkeys(("WQ", "WK", "WV"), (("H", "E", "D"), 4096**2)),
    "WZ": (("H", "F", "G"), 4096**2), "WFFA": (("G", "C"), 4 * 4096**2), "WFFB": (("C", "J"), 4 * 4096**2),
}  # fmt: skip


def test_gpt_3_with_two_weights_of_four_is_what_a_hand_counts(tmp_path: Path) -> None:
    """Of every weight half is read, once, a byte each and two bits for its place in four."""
    stored = {}
    for weight, ((*outer, last), _) in GPT3.items():
        levels = ", ".join(
            [*(f"{r}: {{format: U, pbits: 0}}" for r in outer), f"{last}: {{format: CP, cbits: 2, pbits: 8}}"]
        )
        stored[weight] = f"{weight}: {{rank-order: [{', '.join([*outer, last])}], {levels}}}"
    text = (ROOT / "arch/tpu_v4i.yaml").read_text(encoding="utf-8")
    kept = "    tensors: {keep: ~Intermediates, may_keep: All}\n"
    machine = tmp_path / "machine.yaml"
    packed = f"{kept}    sparse: {{format: {{{', '.join(stored.values())}}}}}\n"
    machine.write_text(text.replace(kept, packed, 1), encoding="utf-8")
    mapping = ROOT / "workloads/gpt3_6.7B/tpu_v4i/fused.yaml"
    half = {w: {"fixed_structured": {"n": 2, "m": 4, "rank": ranks[-1]}} for w, (ranks, _) in GPT3.items()}
    found = pm.sparsify(pm.evaluate(pm.load(machine, "gpt3_6.7B", mapping)), densities=half)
    work = {c.einsum: c for c in found.counts.compute}
    for weight, (_, elements) in GPT3.items():
        there = f"component == 'DRAM' and tensor == '{weight}'"
        (read,) = found.accesses.query(there).itertuples()
        assert (read.actual, read.actual_bits, read.metadata_bits) == (elements // 2, 4 * elements, elements)
        (energy,) = found.energy.query(there).itertuples()
        assert energy.energy_J == pytest.approx(5 * elements * 450e-12 / 64, rel=1e-12)
        einsum = weight.removeprefix("W")
        assert work[einsum].effectual == work[einsum].dense / 2


@pytest.mark.parametrize("operation", ["add", "_0 + _1"])
@pytest.mark.parametrize("kept", [{"A": 0.25}, {"A": 0.25, "B": 0.5}])
def test_an_absent_edge_is_infinitely_long(operation: str, kept: dict[str, float]) -> None:
    """Of a sum with infinity the least stays as it is: where A or B is absent there is nothing to do. The
    named sum counted what either of them has, 250 + 500 - 125 of 1,000."""
    found = least_sums(operation, kept, default=dict.fromkeys([*kept, "Z"], "inf"))
    share = kept["A"] * kept.get("B", 1.0)
    assert found.sparse.compute[["effectual", "label"]].to_dict("records") == [
        {"effectual": pytest.approx(1000 * share), "label": "expected"}
    ]


def test_an_absent_edge_beside_one_of_no_length() -> None:
    """Absent points of B hold 0, with which a sum is not left out."""
    found = least_sums("add", {"A": 0.25, "B": 0.5}, default={"A": "inf", "Z": "inf"}).sparse
    assert found.compute[["effectual", "skipped"]].to_dict("records") == [{"effectual": 250, "skipped": 750}]


JOINS = {"mul": np.multiply, "add": np.add, "max": np.maximum, "min": np.minimum}


@pytest.mark.parametrize("reduce", JOINS)
@pytest.mark.parametrize("operation", JOINS)
@pytest.mark.parametrize("absent", ["0", "identity"])
def test_as_many_operations_are_counted_as_values_need(operation: str, reduce: str, absent: str) -> None:
    """Without the operations that are not counted no result changes, whatever the values: a zero is the
    largest of negative numbers, and makes a product 0."""
    joins, reduces = JOINS[operation], JOINS[reduce]
    start = {"mul": 1.0, "add": 0.0, "max": -np.inf, "min": np.inf}[reduce]
    hold = 0.0 if absent == "0" else start
    random = np.random.default_rng(3)
    there = random.random((10, 100)) < 0.25, random.random(100) < 0.5
    one_lacking = np.arange(1000).reshape(10, 100) % 100 > 0, np.arange(100) > 0
    left = {lambda a, b: a | b, lambda a, b: a & b, lambda a, _: a, lambda _, b: np.tile(b, (10, 1))}
    for held in (there, one_lacking):
        for ends in product([(-2, -1), (-2, 2), (1, 2)], repeat=2):
            drawn = (random.uniform(*end, t.shape) for end, t in zip(ends, held, strict=True))
            a, b = (np.where(t, x, hold) for t, x in zip(held, drawn, strict=True))
            with np.errstate(invalid="ignore"):
                made = joins(a, b)
                whole = reduces.reduce(made, axis=1)
                kept = {k: reduces.reduce(np.where(k(*held), made, start), axis=1) for k in left}
            left = {k for k in left if np.array_equal(kept[k], whole)}
    data = {
        name: pm.SparseTensor.from_coo(name, ranks, t.shape, np.array(np.nonzero(t)), np.ones(t.sum()))
        for name, ranks, t in (("A", ["M", "K"], there[0]), ("B", ["K"], there[1]))
    }
    default = {} if absent == "0" else dict.fromkeys("ABZ", str(hold))
    report = least_sums(operation, {"A": 1, "B": 1}, default, reduce)
    if operation == "mul" and absent == "identity" and reduce in ("mul", "min"):
        with refused("unsupported-operation"):
            pm.sparsify(report, data)  # infinity times infinity, and 1 times 1
        return
    found = pm.sparsify(report, data).counts.compute[0]
    assert found.effectual == min([1000, *(int(k(*there).sum()) for k in left)])


def least_sums(
    operation: str,
    densities: dict[str, float],
    default: dict[str, str],
    reduce: str = "min",
) -> pm.Report:
    memory = {"type": "Memory", "name": "DRAM", "size": "inf", "tensors": {"keep": "All"},
              "actions": [{"name": n, "energy": 1, "throughput": 1} for n in ("read", "write")]}  # fmt: skip
    unit = {"type": "Compute", "name": "MAC", "actions": [{"name": "compute", "energy": 1, "throughput": 1}],
            "sparse": {"actions": [{"skip": "compute", "on": [*densities]}]}}  # fmt: skip
    einsum = {
        "name": "Z", "operations": {"map": operation, "reduce": reduce},
        "tensor_accesses": [
            {"name": "A", "projection": ["m", "k"]}, {"name": "B", "projection": ["k"]},
            {"name": "Z", "projection": ["m"], "output": True},
        ],
    }  # fmt: skip
    workload = {"rank_sizes": {"M": 10, "K": 100}, "bits_per_value": {"All": 8}, "default": default}
    nodes = [
        {"type": "Storage", "component": "DRAM", "tensors": ["A", "B", "Z"]},
        {"type": "Compute", "einsum": "Z", "component": "MAC"},
    ]
    spec = pm.load({
        "arch": {"nodes": [memory, unit]}, "mapping": {"nodes": nodes},
        "workload": {**workload, "densities": densities, "einsums": [einsum]},
    })  # fmt: skip
    return pm.evaluate(spec)
