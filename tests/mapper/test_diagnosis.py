"""Why nothing was found: each constraint alone, two at once, where Einsums join; and the relaxation named,
applied, gives a mapping, while one step less does not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import polymodel as pm
from polymodel.architecture.hierarchy import Component, TensorRule
from polymodel.loading import Spec
from polymodel.mapper.diagnosis import RelaxedProblem
from polymodel.mapper.records import Change, Diagnosis, Limits, Obstacle, Relaxation, Request, SearchResult
from polymodel.mapper.search import search, searched
from polymodel.mapping.looptree import Loop

MATMUL = ["C[m,n] = A[m,k] * B[k,n]"]
PAIR = ["T[m,n] = A[m,k] * B[k,n]", "Z[m,l] = T[m,n] * C[n,l]"]
NONE = Limits()
FOUR = dict.fromkeys("mnkl", 4)


def memory(name: str, size: int | str = "inf", **tensors: str) -> dict[str, Any]:
    return {"type": "Memory", "name": name, "size": size, "tensors": tensors}


def spec_of(einsums: list[str], sizes: dict[str, int], *nodes: dict[str, Any], bits: int = 8) -> Spec:
    shape = {v: f"0 <= {v} < {n}" for v, n in sizes.items() if any(v in e for e in einsums)}
    workload = {"iteration_space_shape": shape, "bits_per_value": {"All": bits}, "einsums": einsums}
    units = [{"type": "Compute", "name": n} for n in ("MAC", "VPU")]
    return pm.load({"workload": workload, "arch": {"nodes": [*nodes, *units]}})


def pes(x: int) -> dict[str, Any]:
    return {"type": "Container", "name": "PE", "spatial": [{"name": "X", "fanout": x}]}


WHOLE, DRAM = memory("DRAM", keep="All"), memory("DRAM", keep="~Intermediates", may_keep="All")


def diagnosis_of(spec: Spec, limits: Limits = NONE) -> Diagnosis:
    found = search(spec.workload, spec.arch, Request(("energy", "latency"), limits))
    assert found.complete
    assert not found.candidates
    assert found.diagnosis is not None
    assert found.diagnosis.untried == ()
    check(spec, limits, found.diagnosis)
    return found.diagnosis


def check(spec: Spec, limits: Limits, diagnosis: Diagnosis) -> None:
    """Every relaxation helps, whole; without one of its changes, or with one step less of it, none does."""
    assert diagnosis.relaxations
    for relaxation in diagnosis.relaxations:
        assert mapped(spec, limits, relaxation.changes)
        for i, change in enumerate(relaxation.changes):
            rest = (*relaxation.changes[:i], *relaxation.changes[i + 1 :])
            assert not mapped(spec, limits, rest)
            if change.need is not None:
                step = {"capacity": -1.0, "min_utilisation": 1 / 4, "max_fused_loops": -1.0}.get(
                    change.constraint
                )
                assert step is None or not mapped(
                    spec, limits, (*rest, replace(change, need=change.need + step))
                )


def mapped(spec: Spec, limits: Limits, changes: tuple[Change, ...]) -> bool:
    """Whether a search finds anything with these changes made to the spec, by rules of this test."""
    hierarchy = spec.arch
    for c in changes:
        components = tuple(changed(x, c) if x.name == c.level else x for x in hierarchy.components)
        hierarchy = replace(hierarchy, components=components)
        if c.constraint == "min_utilisation":
            component, _, dim = c.level.partition(".")
            limits = replace(limits, min_utilisation=((component, dim, c.need or 0.0),))
        elif c.constraint == "max_fused_loops":
            limits = replace(limits, max_fused_loops=int(c.need or 0))
        elif c.constraint in ("fuse", "unfused"):
            left = getattr(limits, c.constraint) - set(c.tensors)
            limits = replace(limits, **{c.constraint: left})
        elif c.constraint == "exchange":
            limits = replace(limits, exchange=frozenset({c.level}))
        elif c.constraint in ("compute", "loop_order"):
            left = tuple(x for x in getattr(limits, c.constraint) if x[0] != c.einsum)
            limits = replace(limits, **{c.constraint: left})
        elif c.constraint == "force_memory_order":
            limits = replace(limits, force_memory_order=False)
    return bool(searched(spec.workload, hierarchy, Request(("latency",), limits)).candidates)


def changed(x: Component, c: Change) -> Component:
    tensors = frozenset(c.tensors)
    if c.constraint == "capacity":
        assert c.need is not None
        return replace(x, size_bits=c.need)
    if c.constraint not in ("keep", "may_keep"):
        return x
    keep, may = x.keep, x.may_keep
    if c.constraint == "keep" and keep is not None:
        x = replace(x, keep=TensorRule("", tuple((e, ts - tensors) for e, ts in keep.by_einsum)))
    if may is not None:
        x = replace(x, may_keep=TensorRule("", tuple((e, ts | tensors) for e, ts in may.by_einsum)))
    return x


def kinds(diagnosis: Diagnosis) -> set[tuple[str, ...]]:
    return {tuple(c.constraint for c in r.changes) for r in diagnosis.relaxations}


def test_a_memory_too_small() -> None:
    spec = spec_of(MATMUL, FOUR, WHOLE, memory("GLB", 23, keep="All"))
    found = diagnosis_of(spec)
    assert found.size == pm.mapspace(spec).size()
    (obstacle,) = found.obstacles
    assert obstacle == Obstacle("capacity", "GLB", "C", ("A", "B", "C"), found.size, 0, 24, 23)
    sizes = [r.changes[0] for r in found.relaxations if r.changes[0].constraint == "capacity"]
    assert sizes == [Change("capacity", "GLB", need=24, have=23)]
    assert kinds(found) == {("capacity",), ("keep",)}
    text = found.text.split("\n")
    assert text[0] == (
        f"Einsum C: capacity of GLB (A, B, C) rules out {found.size:,} of {found.size:,} mappings: "
        "needs 24 bits, has 23"
    )
    assert "a mapping exists if the size of GLB is 24 bits instead of 23" in text
    assert "a mapping exists if GLB need not keep B (`may_keep` it instead)" in text


@pytest.mark.slow
def test_large_figures_are_told_to_the_last_bit() -> None:
    """Rounded to six digits, what is needed and what is there would look alike."""
    spec = spec_of(MATMUL, FOUR, WHOLE, memory("GLB", 2_999_999, keep="All"), bits=10**6)
    (obstacle,) = diagnosis_of(spec).obstacles
    assert obstacle.text.endswith(": needs 3000000 bits, has 2999999")


@pytest.mark.slow
def test_utilisation() -> None:
    """3 x 5 x 7 iterations fill three of four instances at most."""
    spec = spec_of(MATMUL, {"m": 3, "n": 5, "k": 7}, WHOLE, memory("GLB"), pes(4))
    found = diagnosis_of(spec, Limits(min_utilisation=(("PE", "X", 1.0),)))
    assert found.size == 0
    (obstacle,) = found.obstacles
    assert (obstacle.constraint, obstacle.level, obstacle.left) == ("min_utilisation", "PE.X", 0)
    assert obstacle.before == 2 * pm.mapspace(spec, Limits(compute=(("C", "MAC"),))).size()
    assert found.relaxations == (Relaxation((Change("min_utilisation", "PE.X", need=0.75, have=1.0),)),)


@pytest.mark.slow
def test_utilisation_of_three_levels() -> None:
    """A hierarchy that is searched in two parts, with a fanout in the lower one."""
    spec = spec_of(MATMUL, {"m": 4, "n": 3, "k": 2}, WHOLE, memory("GLB", 999), pes(4), memory("RF", 99))
    full = Limits(min_utilisation=(("PE", "X", 1.0),))
    found = search(spec.workload, spec.arch, Request(("energy", "latency"), full))
    assert found.candidates
    for c in found.candidates:
        assert any(isinstance(n, Loop) and n.spatial and n.rank_variable == "m" for n in c.tree.nodes)
    odd = spec_of(
        MATMUL, {"m": 5, "n": 3, "k": 1}, WHOLE, memory("GLB", 999), pes(4), memory("RF", 99, keep="A")
    )
    relaxed = diagnosis_of(odd, full).relaxations
    assert [(r.changes[0].constraint, r.changes[0].need) for r in relaxed] == [("min_utilisation", 0.75)]


def test_one_point_that_does_not_fit() -> None:
    """Einsums of a single iteration are held to capacities as well."""
    spec = spec_of(MATMUL, dict.fromkeys("mnk", 1), WHOLE, memory("GLB", 23, keep="All"))
    found = diagnosis_of(spec)
    assert found.size == 2 * 6  # two units, orders of three nodes
    assert found.relaxations[0].changes == (Change("capacity", "GLB", need=24, have=23),)
    deep = spec_of(MATMUL, dict.fromkeys("mnk", 1), WHOLE, memory("GLB", 24, keep="All"), memory("RF", 8))
    assert search(deep.workload, deep.arch, Request(("energy",))).candidates


@pytest.mark.slow
def test_two_at_once() -> None:
    """Neither the buffer nor the utilisation alone lets anything through."""
    spec = spec_of(MATMUL, {"m": 3, "n": 5, "k": 7}, WHOLE, memory("GLB", 7, keep="A"), pes(4))
    found = diagnosis_of(spec, Limits(min_utilisation=(("PE", "X", 1.0),)))
    assert ("min_utilisation", "capacity") in kinds(found)
    assert ("keep", "min_utilisation") in kinds(found)
    assert all(len(r.changes) == 2 for r in found.relaxations)


@pytest.mark.slow
def test_two_memories() -> None:
    spec = spec_of(
        MATMUL, dict.fromkeys("mnk", 2), WHOLE, memory("GLB", 16, keep="All"), memory("RF", 4, keep="B")
    )
    found = diagnosis_of(spec)
    needs = {(o.level, o.need, o.have, o.left) for o in found.obstacles}
    assert needs == {("GLB", 24, 16, 0), ("RF", 8, 4, 0)}
    sizes = [r for r in found.relaxations if all(c.constraint == "capacity" for c in r.changes)]
    assert [[(c.level, c.need) for c in r.changes] for r in sizes] == [[("GLB", 24), ("RF", 8)]]


@pytest.mark.slow
def test_fused_loops() -> None:
    """What must be fused does not fit whole, and may not be tiled."""
    spec = spec_of(PAIR, FOUR, DRAM, memory("GLB", 64))
    found = diagnosis_of(spec, Limits(fuse=frozenset({"T"}), max_fused_loops=0))
    assert {(o.constraint, o.level, o.einsum) for o in found.obstacles} == {
        ("capacity", "GLB", "T"),
        ("capacity", "GLB", "Z"),
    }
    assert all(o.tensors == ("T",) and o.left == 0 for o in found.obstacles)
    assert kinds(found) == {("capacity",), ("max_fused_loops",), ("fuse",)}
    needs = {r.changes[0].constraint: r.changes[0].need for r in found.relaxations}
    assert needs == {"capacity": 128, "max_fused_loops": 1, "fuse": None}


def test_a_tensor_with_no_place() -> None:
    nowhere = memory("DRAM", keep="~Intermediates", may_keep="~T")
    found = diagnosis_of(spec_of(PAIR, FOUR, nowhere, memory("GLB", may_keep="A")))
    assert {(o.constraint, o.level, o.einsum, o.tensors) for o in found.obstacles} == {
        ("may_keep", level, e, ("T",)) for level in ("DRAM", "GLB") for e in "TZ"
    }
    assert all(o.before > 0 and o.left == 0 for o in found.obstacles)
    assert kinds(found) == {("may_keep",)}
    assert {r.changes[0].level for r in found.relaxations} == {"DRAM", "GLB"}


@pytest.mark.slow
def test_unfused() -> None:
    nowhere = memory("DRAM", keep="~Intermediates", may_keep="~T")
    found = diagnosis_of(spec_of(PAIR, FOUR, nowhere, memory("GLB")), Limits(unfused=frozenset({"T"})))
    assert {o.constraint for o in found.obstacles} == {"may_keep", "unfused"}
    assert kinds(found) == {("may_keep",), ("unfused",)}


def test_exchange() -> None:
    """T may be held in the inner buffer alone, but be exchanged in the outer one alone."""
    nowhere = memory("DRAM", keep="~Intermediates", may_keep="~T")
    spec = spec_of(PAIR, FOUR, nowhere, memory("GLB", may_keep="A"), memory("L1", 256, may_keep="T"))
    found = diagnosis_of(spec, Limits(exchange=frozenset({"GLB"})))
    assert {(o.constraint, o.level) for o in found.obstacles} >= {("exchange", "L1"), ("may_keep", "GLB")}
    assert ("exchange",) in kinds(found)
    assert "a mapping exists if intermediates may be exchanged in L1" in found.text


@pytest.mark.slow
def test_fuse_what_is_kept_outside() -> None:
    """T must be exchanged inside the memory that must hold it."""
    found = diagnosis_of(spec_of(PAIR, FOUR, WHOLE, memory("GLB")), Limits(fuse=frozenset({"T"})))
    assert {(o.constraint, o.level) for o in found.obstacles} == {("fuse", ""), ("keep", "DRAM")}
    assert kinds(found) == {("keep",), ("fuse",)}


def test_a_unit_that_cannot_do_it() -> None:
    """The unit stands below a fanout that cannot be filled; the other one above it."""
    units: list[dict[str, Any]] = [
        {"type": "Compute", "name": "VPU"},
        pes(4),
        {"type": "Compute", "name": "MAC"},
    ]
    workload = {
        "iteration_space_shape": {v: f"0 <= {v} < 3" for v in "mnk"},
        "bits_per_value": {"All": 8},
        "einsums": MATMUL,
    }
    spec = pm.load({"workload": workload, "arch": {"nodes": [WHOLE, memory("GLB"), *units]}})
    limits = Limits(compute=(("C", "MAC"),), min_utilisation=(("PE", "X", 1.0),))
    found = diagnosis_of(spec, limits)
    assert {(o.constraint, o.level) for o in found.obstacles} == {
        ("compute", "MAC"),
        ("min_utilisation", "PE.X"),
    }
    assert kinds(found) == {("compute",), ("min_utilisation",)}


@pytest.mark.slow
def test_where_einsums_join() -> None:
    """Two intermediates fit alone, but not both beside each other."""
    einsums = ["T[m] = A[m]", "U[m] = B[m]", "V[m] = T[m] * U[m]"]
    nowhere = memory("DRAM", keep="~Intermediates", may_keep="~(T | U)")
    spec = spec_of(einsums, {"m": 4}, nowhere, memory("GLB", 8 * 4))
    limits = Limits(max_fused_loops=0)
    found = diagnosis_of(spec, limits)
    assert {o.constraint for o in found.obstacles} == {"capacity"}
    assert any(o.tensors == ("T", "U") and o.left == 0 for o in found.obstacles)
    needs = {r.changes[0].constraint: r.changes[0].need for r in found.relaxations}
    assert needs["capacity"] == 64
    assert needs["max_fused_loops"] == 1


@pytest.mark.slow
def test_what_is_in_the_way_of_others() -> None:
    """T waits for its reader while U is computed: each Einsum fits, but not beside T."""
    einsums = ["T[m] = A[m]", "U[n] = B[n]", "V[m] = T[m]"]
    nowhere = memory("DRAM", keep="~Intermediates", may_keep="~T")
    spec = spec_of(einsums, {"m": 4, "n": 4}, nowhere, memory("GLB", 40, keep="B | U", may_keep="All"))
    found = diagnosis_of(spec, Limits(max_fused_loops=0))
    (obstacle,) = found.obstacles
    assert (obstacle.constraint, obstacle.level, obstacle.einsum) == ("capacity", "GLB", "U")
    assert obstacle.joined
    assert obstacle.tensors == ("T",)
    assert obstacle.before > 0 == obstacle.left
    needs = {r.changes[0].constraint: r.changes[0].need for r in found.relaxations}
    assert needs["capacity"] == 32 + 16
    assert found.text.startswith("U beside the Einsums before it: capacity of GLB (T) rules out")


def test_nothing_to_diagnose() -> None:
    spec = spec_of(MATMUL, FOUR, WHOLE, memory("GLB", 24, keep="All"))
    found = search(spec.workload, spec.arch, Request(("energy",)))
    assert found.candidates
    assert found.diagnosis is None
    late = search(spec.workload, spec.arch, Request(("energy",), time_limit=0.0))
    assert late.diagnosis is None


def test_time_for_none() -> None:
    """Without time for searches the counts are there, and what was not tried is named."""
    from polymodel.mapper.diagnosis import diagnosed

    spec = spec_of(MATMUL, FOUR, WHOLE, memory("GLB", 23, keep="All"))
    request = Request(("energy",), stop=lambda: True)
    empty = SearchResult(("energy",), (), (), True)
    found = diagnosed(spec.workload, spec.arch, request, empty, searched)
    assert found.relaxations == ()
    assert "capacity GLB" in found.untried
    assert "not tried for want of time" in found.text


@pytest.mark.parametrize("kind", ["capacity", "keep", "fuse"])
def test_problems_are_left_alone(kind: str) -> None:
    """Relaxing makes another problem."""
    from polymodel.mapper.diagnosis import constraints

    spec = spec_of(PAIR, FOUR, DRAM, memory("GLB", 64, keep="A"))
    p = RelaxedProblem(spec.arch, Limits(fuse=frozenset({"T"})))
    some = [c for c in constraints(spec.workload, p) if c.kind == kind]
    assert some
    assert all(c.dropped(p) != p for c in some)
    assert p == RelaxedProblem(spec.arch, Limits(fuse=frozenset({"T"})))
