"""Runs of Tensaurus' four kernels in TeAAL's simulator: results, work, balance, times, accesses."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from polymodel.sparse.execute.records import EinsumCounts, Execution, RankAccesses
from polymodel.sparse.execute.run import run
from polymodel.sparse.tensor import SparseTensor
from polymodel.spec.teaal import read_teaal
from polymodel.spec.teaal.records import Directive, EinsumMapping, TeaalSpec
from tests.reference.common import Outcome, comparing

WORKLOADS = Path(__file__).parents[2] / "workloads/tensaurus"
PARTS = 8
_EINSUM = {
    "einsum": None,
    "loop_order": None,
    "multiplies": "multiplies",
    "updates": "updates",
    "adds_excluding_first_touch": "adds_excluding_first_touch",
    "activities": "activities",
    "distinct_time_stamps": "lock_step",
    "distinct_space_stamps": "distinct_space_stamps",
    "distinct_spacetime_stamps": "distinct_spacetime_stamps",
    "collisions": "collisions",
    "slip_time": "slip",
    "imbalance_max_over_mean_I1": "imbalance",
    "multiplies_per_I1_position": None,
    "time_stamps_per_I1_position": None,
    "space_load": None,
    "rank_accesses": None,
}


def is_kernels(given: Mapping[str, Any]) -> bool:
    """True for files whose cases run a kernel in several variants."""
    cases = given.get("cases")
    first = cases[0] if isinstance(cases, list) and cases else None
    return isinstance(first, dict) and {"kernel", "variants"} <= first.keys()


def check(path: Path) -> list[Outcome]:
    """One outcome per case and variant; a case that cannot be read is a fault."""
    found: list[Outcome] = []
    for number, case in enumerate(json.loads(path.read_text(encoding="utf-8"))["cases"]):
        name = case.get("id", f"{path.stem}_{number + 1}") if isinstance(case, dict) else f"case {number + 1}"
        with comparing(Outcome(name)) as whole:
            operands = {"A": case["A"], **case["operands"]}
            tensors = {n: tensor(n, given, case.get("dims", {})) for n, given in operands.items()}
            for variant, expected in case["variants"].items():
                outcome = Outcome(f"{name} {variant}")
                _compare(outcome, case, tensors, variant, expected)
                found.append(outcome)
        if whole.fault:
            found.append(whole)
    return found


def tensor(name: str, given: Mapping[str, Any], sizes: Mapping[str, int]) -> SparseTensor:
    """An operand, given as an array or as coordinates and values; `sizes`: of ranks, if it has no shape."""
    ranks = given["ranks"]
    if "dense" in given:
        return SparseTensor.from_dense(name, ranks, np.array(given["dense"]))
    coords = np.array(given["coords"], dtype=np.int64).reshape(-1, len(ranks)).T
    shape = given["shape"] if "shape" in given else [sizes[rank] for rank in ranks]
    return SparseTensor.from_coo(name, ranks, shape, coords, np.array(given["values"]))


def kernel(name: str, variant: str) -> TeaalSpec:
    """A kernel's spec with rank I cut into tiles of eight rows or into eight slices."""
    found = read_teaal((WORKLOADS / f"{name.lower()}.yaml").read_text(encoding="utf-8"), name)
    kinds = {"uniform_shape": "uniform_shape", "uniform_slice": "uniform_slice"}
    cut = (Directive(kinds[variant], PARTS),)

    def changed(mapping: EinsumMapping) -> EinsumMapping:
        parts = tuple(replace(p, directives=cut) if p.ranks == ("I",) else p for p in mapping.partitioning)
        return replace(mapping, partitioning=parts)

    return replace(found, mappings=tuple(changed(m) for m in found.mappings))


def _compare(
    outcome: Outcome,
    case: Mapping[str, Any],
    tensors: Mapping[str, SparseTensor],
    variant: str,
    expected: Mapping[str, Any],
) -> None:
    execution = run(kernel(case["kernel"], variant), tensors)
    if case.get("result") is not None:
        _result(outcome, execution.results["Y"], case["result"])
    outcome.equal("numpy agrees", all(c.agrees for c in execution.check()), True)
    _given(outcome, expected, "result_matches_numpy", True)
    for rank, size in case.get("dims", {}).items():
        outcome.equal(f"dims.{rank}", execution.rank_sizes.get(rank, 0), size)
    _rows(outcome, case, tensors["A"])
    _slices(outcome, execution, expected)
    names = [e["einsum"] for e in expected["einsums"]]
    numbers(outcome, "Einsums", [e.einsum for e in execution.einsums], names)
    for given in expected["einsums"]:
        outcome.unknown(given["einsum"], given, _EINSUM)
        _einsum(outcome, execution.einsum(given["einsum"]), given)


def _result(outcome: Outcome, result: SparseTensor, theirs: Mapping[str, Any]) -> None:
    """The product itself, with all its coordinates."""
    coords = np.array(theirs["coords"], dtype=np.int64).reshape(-1, len(theirs["ranks"]))
    numbers(outcome, "result.ranks", result.ranks, theirs["ranks"])
    if "shape" in theirs:
        numbers(outcome, "result.shape", result.shape, theirs["shape"])
    numbers(outcome, "result.coords", result.coords.T.ravel().tolist(), coords.ravel().tolist())
    numbers(outcome, "result.values", result.values.tolist(), theirs["values"])


def numbers(outcome: Outcome, what: str, ours: Sequence[Any], theirs: Sequence[Any]) -> None:
    """Compare two lists, number by number; one mismatch tells of all."""
    outcome.checked += len(theirs)
    if list(ours) != list(theirs):
        wrong = [i for i, (a, b) in enumerate(zip(ours, theirs, strict=False)) if a != b]
        at = f"first at {wrong[0]}" if wrong else f"{len(ours)} numbers, not {len(theirs)}"
        outcome.mismatches.append(f"{what}: {len(wrong)} differ, {at}")


def _rows(outcome: Outcome, case: Mapping[str, Any], a: SparseTensor) -> None:
    """The row histogram, and the fibers in each row (all but the innermost rank)."""
    rows = a.coords[0]
    _given(outcome, case["A"], "nnz", a.nnz, "A.")
    if case.get("row_nnz") is not None:
        found = np.bincount(rows, minlength=a.shape[0]).tolist()
        numbers(outcome, "row_nnz", found, case["row_nnz"])
    if case.get("fibers_per_row") is not None and len(a.ranks) > 2:
        pairs = np.unique(a.coords[:-1], axis=1)[0]
        found = np.bincount(pairs, minlength=a.shape[0]).tolist()
        numbers(outcome, "fibers_per_row", found, case["fibers_per_row"])


def _slices(outcome: Outcome, execution: Execution, expected: Mapping[str, Any]) -> None:
    known = {"result_matches_numpy", "einsums", "A_slices", "T_slices", "intermediate_T_nnz"}
    measures = {"A_slice_max_nnz", "A_slice_imbalance_over_8", "A_slice_imbalance_over_occupied"}
    outcome.unknown("variant", expected, known | measures)
    loads = [s.nnz for s in execution.einsums[0].slices("A")]
    largest, total = max(loads, default=0), sum(loads)
    _given(outcome, expected, "A_slice_max_nnz", largest)
    # Null where it says nothing: of tiles of eight rows, and of no nonzeros.
    _given(outcome, expected, "A_slice_imbalance_over_8", largest * PARTS / total if total else None)
    _given(
        outcome, expected, "A_slice_imbalance_over_occupied", largest * len(loads) / total if total else None
    )
    if expected.get("A_slices") is not None:
        _parts(outcome, "A_slices", execution.einsums[0], "A", expected["A_slices"])
    if "T" in execution.results:
        _given(outcome, expected, "intermediate_T_nnz", execution.results["T"].nnz)
    if expected.get("T_slices") is not None:
        _parts(outcome, "T_slices", execution.einsum("Y"), "T", expected["T_slices"])


def _given(
    outcome: Outcome, expected: Mapping[str, Any], key: str, ours: float | None, where: str = ""
) -> None:
    """Compare a number that the file may leave out, or say is nothing."""
    theirs = expected.get(key)
    if theirs is None:
        return
    outcome.equal(f"{where}{key}", 0 if ours is None else ours, theirs)


def _parts(
    outcome: Outcome, what: str, counts: EinsumCounts, name: str, expected: Iterable[Mapping[str, Any]]
) -> None:
    ours = [n for s in counts.slices(name) for n in (s.coord, *s.rows, s.nnz)]
    numbers(outcome, what, ours, [n for s in expected for n in (s["I1"], *s["rows"], s["nnz"])])


def _einsum(outcome: Outcome, counts: EinsumCounts, given: Mapping[str, Any]) -> None:
    name, times = counts.einsum, counts.times
    assert times is not None
    numbers(outcome, f"{name}.loop_order", counts.loop_order, given["loop_order"])
    for theirs, ours in _EINSUM.items():
        if ours is not None:
            found = getattr(counts, ours) if hasattr(counts, ours) else getattr(times, ours)
            _given(outcome, given, theirs, found, f"{name}.")
    for number, key in enumerate(("multiplies_per_I1_position", "time_stamps_per_I1_position")):
        if given.get(key) is not None:
            found = {str(k): pair[number] for k, pair in times.by_first.items()}
            _table(outcome, f"{name}.{key}", found, given[key])
    if given.get("space_load") is not None:
        load = [n for s, n in zip(times.space.tolist(), times.load.tolist(), strict=True) for n in (*s, n)]
        loaded = [n for s, load in given["space_load"] for n in (*s, load)]
        numbers(outcome, f"{name}.space_load", load, loaded)
    if given.get("rank_accesses") is None:
        return
    ranks = {a.rank: a for a in counts.accesses}
    numbers(outcome, f"{name}.rank_accesses", list(ranks), list(given["rank_accesses"]))
    for rank, theirs in given["rank_accesses"].items():
        _accesses(outcome, f"{name}.{rank}", ranks[rank], theirs)


def _table(outcome: Outcome, what: str, ours: Mapping[str, int], theirs: Mapping[str, int]) -> None:
    for key in dict.fromkeys((*theirs, *ours)):
        outcome.equal(f"{what}[{key}]", ours.get(key, 0), theirs.get(key, 0))


def _accesses(outcome: Outcome, what: str, ours: RankAccesses, theirs: Mapping[str, Any]) -> None:
    _given(outcome, theirs, "iterations", ours.iterations, f"{what}.")
    kinds = ("intersect_coord_accesses", "driver_coord_accesses", "output_reads", "output_writes")
    outcome.unknown(what, theirs, ("iterations", *kinds))
    for kind in kinds:
        if theirs.get(kind) is not None:
            _table(outcome, f"{what}.{kind}", getattr(ours, kind), theirs[kind])
