"""The size of a mapspace is what listing every mapping gives; the table's numbers are those of the search."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

import polymodel as pm
from polymodel.loading import Spec
from polymodel.mapper.join import lives_of, passing_of
from polymodel.mapper.mapspace import mapspace, mapspace_of
from polymodel.mapper.records import Limits, Request
from polymodel.mapper.search import search
from polymodel.mapper.space import EinsumSpace, einsum_spaces
from polymodel.mapper.templates import deepest, templates
from polymodel.mapper.tile_chains import TileChains, all_chains
from tests.faults import faults
from tests.mapper.listing import Lister, Rules
from tests.seeds import seeds

MATMUL = ["C[m,n] = A[m,k] * B[k,n]"]
CONV = ["O[p,m] = I[H=p+r] * F[r,m]"]
PAIR = ["T[m,n] = A[m,k] * B[k,n]", "Z[m,l] = T[m,n] * C[n,l]"]
CHAIN = [*PAIR, "Y[m,o] = Z[m,l] * D[l,o]"]
# The second and third Einsum stand between the first one's tensor and its reader.
RESIDUAL = ["T[m] = A[m]", "U[m] = B[m]", "V[m] = T[m] * U[m]"]
SKIP = ["T[m,n] = A[m,n]", "U[m,n] = T[m,n]", "V[m,n] = T[m,n] * U[m,n]"]


def memory(name: str, **tensors: str) -> dict[str, Any]:
    return {"type": "Memory", "name": name, "size": "inf", "tensors": tensors}


def spec_of(einsums: list[Any], sizes: dict[str, int], *nodes: dict[str, Any]) -> Spec:
    shape = {v: f"0 <= {v} < {n}" for v, n in sizes.items()}
    workload = {"iteration_space_shape": shape, "bits_per_value": {"All": 8}, "einsums": einsums}
    return pm.load({"workload": workload, "arch": {"nodes": [*nodes, {"type": "Compute", "name": "MAC"}]}})


def pes(x: int, y: int = 1, **more: Any) -> dict[str, Any]:
    spatial = [{"name": "X", "fanout": x, **more}, {"name": "Y", "fanout": y}]
    return {"type": "Container", "name": "PE", "spatial": spatial}


DRAM, GLB = memory("DRAM", keep="~Intermediates"), memory("GLB")
ONLY_T = memory("GLB", may_keep="Intermediates")
BACKING = memory("DRAM", keep="All")
AB, TA = (memory("GLB", may_keep=x) for x in ("A|B", "T|A"))
SPECS = {
    "one": spec_of(MATMUL, {"m": 4, "n": 2, "k": 3}, BACKING, GLB),
    "kept and bypassed": spec_of(
        MATMUL, {"m": 4, "n": 2, "k": 2}, BACKING, memory("GLB", keep="A", may_keep="A|C"),
        memory("L2", may_keep="B"),
    ),
    "three levels": spec_of(MATMUL, {"m": 2, "n": 2, "k": 1}, BACKING, AB, memory("RF")),
    "fanouts": spec_of(
        MATMUL, {"m": 4, "n": 4, "k": 2}, BACKING, GLB, pes(4, 2), memory("RF", may_keep="B")
    ),
    "no reuse": spec_of(MATMUL, {"m": 4, "n": 2, "k": 4}, BACKING, pes(4, 3, may_reuse="Inputs"), GLB),
    "windows": spec_of(CONV, {"p": 4, "r": 2, "m": 2}, BACKING, GLB, pes(2)),
    "two": spec_of(PAIR, {"m": 2, "n": 4, "k": 2, "l": 1}, DRAM, GLB),
    "two, three levels": spec_of(
        PAIR, {"m": 4, "n": 2, "k": 1, "l": 1}, DRAM, TA, memory("L1", may_keep="T|B")
    ),
    "two, fanouts": spec_of(
        PAIR, {"m": 4, "n": 4, "k": 2, "l": 2}, DRAM, ONLY_T, pes(2, 2), memory("RF", may_keep="A|T")
    ),
    "two, kept between": spec_of(
        PAIR, {"m": 2, "n": 2, "k": 2, "l": 2}, memory("DRAM", keep="A|B|C|Z", may_keep="All"),
        memory("GLB", keep="T", may_keep="T|B"), memory("L1", may_keep="T"),
    ),
    "three": spec_of(
        CHAIN, {"m": 4, "n": 2, "k": 1, "l": 2, "o": 1}, DRAM, memory("GLB", may_keep="Intermediates|A|D")
    ),
    "passing": spec_of(RESIDUAL, {"m": 4}, DRAM, GLB),
    "skip": spec_of(SKIP, {"m": 2, "n": 4}, DRAM, memory("GLB", may_keep="T|U")),
}  # fmt: skip
COPY = spec_of(
    [
        {
            "name": "Load",
            "is_copy_operation": True,
            "tensor_accesses": [
                {"name": "A0", "projection": ["m", "k"]},
                {"name": "A", "projection": ["m", "k"], "output": True},
            ],
        },
        *PAIR,
    ],
    {"m": 2, "n": 2, "k": 2, "l": 1},
    DRAM,
    memory("GLB", may_keep="Intermediates"),
)


def sized(spec: Spec, limits: Limits, rules: Rules) -> int:
    space = mapspace_of(spec.workload, spec.arch, limits)
    assert space.size() == Lister(spec.workload, spec.arch, rules).whole()
    return space.size()


@pytest.mark.parametrize("name", seeds(12, sorted(SPECS, key=lambda name: name == "fanouts")))
@pytest.mark.thin(2)
def test_size_is_that_of_the_listing(name: str) -> None:
    assert sized(SPECS[name], Limits(), Rules()) > 10


@pytest.mark.thin(99)
@pytest.mark.parametrize("name", ["one", "two", "passing", "two, fanouts", "windows"])
def test_all_sizes(name: str) -> None:
    some = sized(SPECS[name], Limits(max_fused_loops=1), Rules(most_loops=1))
    assert sized(SPECS[name], Limits(max_fused_loops=1, sizes="all"), Rules(True, 1)) > some


def test_copies() -> None:
    assert sized(COPY, Limits(), Rules()) > 100


def test_constraints() -> None:
    two, whole = SPECS["two"], sized(SPECS["two"], Limits(), Rules())
    fused = sized(two, Limits(fuse=frozenset({"T"})), Rules(fuse=frozenset({"T"})))
    unfused = sized(two, Limits(unfused=frozenset({"T"})), Rules(unfused=frozenset({"T"})))
    assert fused + unfused == whole
    assert sized(two, Limits(max_fused_loops=0), Rules(most_loops=0)) < whole
    twice = Limits(max_fused_loops_per_rank_variable=2)
    assert sized(two, twice, Rules(per_variable=2)) > whole
    loose = SPECS["two, three levels"]
    some = sized(loose, Limits(), Rules())
    first = frozenset({"GLB"})
    assert sized(loose, Limits(exchange=first), Rules(exchange=first)) < some
    assert sized(loose, Limits(force_memory_order=False), Rules(memory_order=False)) > some


@pytest.mark.parametrize("name", ["one", "kept and bypassed", "two, fanouts", "two, kept between", "apart"])
@pytest.mark.thin(99)
def test_memories_side_by_side(name: str) -> None:
    apart = [memory("A0", may_keep="A"), memory("B0", may_keep="B"), memory("C0", may_keep="C|A")]
    spec = spec_of(MATMUL, {"m": 2, "n": 2, "k": 2}, BACKING, *apart) if name == "apart" else SPECS[name]
    listed = Lister(spec.workload, spec.arch, Rules(side_by_side=True)).whole()
    assert mapspace(spec).size() == listed
    forced = Lister(spec.workload, spec.arch, Rules()).whole()
    assert (listed > forced) == (name in ("kept and bypassed", "apart"))


@pytest.mark.slow
def test_utilisation() -> None:
    spec, least = SPECS["fanouts"], (("PE", "X", 1.0), ("PE", "Y", 0.5))
    some = sized(spec, Limits(min_utilisation=least), Rules(utilisation=least))
    assert 0 < some < sized(spec, Limits(), Rules())
    all_of_it = (("PE", "X", 0.9),)
    odd = spec_of(MATMUL, {"m": 3, "n": 5, "k": 1}, memory("DRAM", keep="All"), pes(4))
    assert sized(odd, Limits(min_utilisation=all_of_it), Rules(utilisation=all_of_it)) == 0


@pytest.mark.parametrize("name", ["one", "three levels", "fanouts", "windows", "two", "skip", "three"])
@pytest.mark.parametrize(("force", "sizes"), [(True, "divisors"), (False, "divisors"), (False, "all")])
def test_what_is_pruned(name: str, force: bool, sizes: str) -> None:
    """Templates and collapsed chains are those that the search combines, where fanouts allow them."""
    spec, limits = SPECS[name], Limits(force_memory_order=force, sizes=sizes)
    frame = mapspace(spec, limits).frame
    spaces = einsum_spaces(spec.workload, spec.arch, limits)
    lives = lives_of(spaces)
    for i, space in enumerate(spaces):
        rows = frame[frame.einsum == space.name].set_index("rule")
        many = points = 0
        for depth in range(deepest(spaces, limits) + 1):
            for t in templates(space, limits, passing_of(spaces, lives, i), depth):
                many += 1
                points += fitting(space, all_chains(space, t, sizes))
        assert rows.templates["slots"] == many
        assert rows.mappings["bundles"] == points
        assert rows.mappings["loop orders"] >= rows.mappings["slots"] >= rows.mappings["chains"] >= points
        assert rows.mappings_before["loop orders"] > rows.mappings["loop orders"]
        assert (rows.mappings_before - rows.mappings == rows.taken_away).all()
    assert frame.mappings.iloc[-1] == mapspace(spec, limits).size()


def fitting(space: EinsumSpace, chains: tuple[TileChains, ...]) -> int:
    """Combinations of the bundles' chains that the fanouts have room for."""
    widths = tuple(f.width for f in space.fanouts)
    found = {(1,) * len(widths): 1}
    for c in chains:
        after: dict[tuple[int, ...], int] = {}
        for used, many in found.items():
            for spread in c.spread.T.tolist():
                now = tuple(a * b for a, b in zip(used, spread, strict=True))
                if all(a <= b for a, b in zip(now, widths, strict=True)):
                    after[now] = after.get(now, 0) + many
        found = after
    return sum(found.values())


def any_spec(pick: Random) -> Spec | None:
    """A cascade with memories and rules of any kind; None where they contradict each other."""
    einsums = pick.choice([MATMUL, CONV, PAIR, PAIR, CHAIN, RESIDUAL, SKIP])
    sizes = {v: pick.choice([1, 1, 2, 2, 3, 4]) for v in "mnklopr" if any(v in e for e in einsums)}
    tensors = sorted({c for e in einsums for c in e if c.isupper() and c != "H"})

    def some(share: float) -> str:
        return "|".join(t for t in tensors if pick.random() < share) or "Nothing"

    def held(name: str, share: float) -> dict[str, Any]:
        keep = {"keep": some(0.15)} if pick.random() < 0.3 else {}
        return memory(name, may_keep=some(share), **keep)

    outer = pick.choice(["~Intermediates", "~Intermediates", "All"])
    nodes = [memory("DRAM", keep=outer, may_keep="All"), held("GLB", 0.5)]
    if pick.random() < 0.5:
        nodes.append(pes(pick.choice([2, 3, 4]), pick.choice([1, 2]), may_reuse=some(0.7)))
    if pick.random() < 0.6:
        nodes.append(held("L1", 0.4))
    if pick.random() < 0.2:
        nodes.append({"type": "Compute", "name": "VPU"})
    if sum(n > 1 for n in sizes.values()) > 3:
        return None
    try:
        return spec_of(einsums, sizes, *nodes)
    except pm.SpecError:
        return None


@pytest.mark.slow
def test_any_spec() -> None:
    pick, large = Random(5), 0
    for _ in range(80):
        spec = any_spec(pick)
        loops, per, every = pick.choice([0, 1, 2, 9]), pick.choice([1, 1, 2]), pick.random() < 0.3
        order, share = pick.random() < 0.6, pick.choice([0.0, 0.0, 0.3, 1.0])
        if spec is None:
            continue
        least = tuple((c, d.name, share) for c, d in spec.arch.dimensions if d.name == "X")
        limits = Limits(loops, per, "all" if every else "divisors", order, min_utilisation=least)
        space = mapspace_of(spec.workload, spec.arch, limits)
        if max(e.mappings for e in space.einsums) < 5_000:
            large += sized(spec, limits, Rules(every, loops, per, order, least)) > 500
    assert large > 6


@pytest.mark.slow
def test_table_with_what_was_found() -> None:
    spec = spec_of(PAIR, {"m": 4, "n": 4, "k": 2, "l": 2}, DRAM, {**GLB, "size": 128})
    found = search(spec.workload, spec.arch, Request())
    frame = pm.mapspace(spec).rules(found).frame()
    stages = {s.of: s for s in found.stages}
    for rule, after in (("capacity", lambda s: s.points - s.too_large), ("dominance", lambda s: s.kept)):
        rows = frame[frame.rule == rule].set_index("einsum")
        assert list(rows.index) == list(stages)
        assert all(rows.mappings[of] == after(s) for of, s in stages.items())
    assert sum(s.too_large for s in found.stages) > 0
    assert (frame.taken_away >= 0).all()
    assert frame.why.str.len().min() > 10
    assert repr(pm.mapspace(spec)).startswith("Mapspace(")


def test_constraints_of_a_spec() -> None:
    spec = SPECS["two"]
    none = pm.mapspace(spec, {"max_fused_loops": 0, "memories": {"GLB": {"bypass": "A"}}}).size()
    assert 0 < none < pm.mapspace(spec, {"max_fused_loops": 0}).size() < pm.mapspace(spec).size()
    with faults("unknown-key", at="constraints.max_fused_lops"):
        pm.mapspace(spec, {"max_fused_lops": 0})


@pytest.mark.parametrize(
    ("einsum", "shape", "ranks", "message"),
    [
        (
            "O[m] = A[m,k,l]", {"m": 4, "l": 2, "k": "0 <= k and k + l <= m"}, {},
            "bounds tie more than two rank variables together: k, l, m",
        ),
        (
            "O[p,m] = I[H=p+r] * F[r]", {"p": 4, "r": 3, "m": "0 <= m <= p"}, {},
            "the windows of I in O, whose iteration space is not a box",
        ),
        ("O[p] = I[H=2*p+3*r-1] * F[r]", {"p": 8, "r": 3}, {"H": 20}, "windows of I in O, whose iteration"),
    ],
)  # fmt: skip
def test_spaces_that_are_no_products_of_pairs_are_refused(
    einsum: str, shape: dict[str, int | str], ranks: dict[str, int], message: str
) -> None:
    bounds = {v: f"0 <= {v} < {n}" if isinstance(n, int) else n for v, n in shape.items()}
    workload = {
        "iteration_space_shape": bounds,
        "rank_sizes": ranks,
        "bits_per_value": {"All": 8},
        "einsums": [einsum],
    }
    spec = pm.load({"workload": workload, "arch": {"nodes": [DRAM, GLB, {"type": "Compute", "name": "MAC"}]}})
    with pytest.raises(pm.Refused, match=message) as caught:
        pm.explore(spec)
    assert "write its mapping by hand" in str(caught.value)
