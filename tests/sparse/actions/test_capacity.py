"""When sparse tiles fit, and what overbooked ones fetch again, against the tiles of all placements."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.enumerate import ENGINE
from polymodel.analysis.result import Analysis, Problem
from polymodel.architecture.hierarchy import Fit, Hierarchy, SparseRules
from polymodel.mapping.looptree import ComputeNode, Loop, LoopTree, StorageNode
from polymodel.sparse.actions.capacity import capacity_checks
from polymodel.sparse.actions.counts import sparse_counts
from polymodel.sparse.actions.data import TensorData, dense_data
from polymodel.sparse.actions.inputs import output_data
from polymodel.sparse.actions.records import AccessCount, SparseCounts, TileFootprint
from polymodel.sparse.density import Actual, Uniform
from polymodel.sparse.formats import Widths, footprint, parse_format
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults
from tests.sparse.actions.small import hierarchy, product_of

SIZES = {"m": 5, "k": 4, "n": 3}
NONZEROS = 3
POINTS = list(product(range(5), range(4)))
TILES = [(m, k) for m in range(0, 5, 2) for k in range(0, 4, 3)]
ROOT = Path(__file__).parents[3]
COO = {"format": "COO", "index": 3}
EACH = 8 + 2 * 3  # bits of a nonzero


def problem_of(
    fit: Fit,
    room: int,
    kept: tuple[str, ...] = ("A",),
    format: object = COO,
    size: tuple[int, int] = (2, 3),
    sizes: dict[str, int] = SIZES,
) -> Problem:
    """A tile of 2 x 3 (smaller at the edges) of A in GLB serves three turns over n."""
    nodes = (
        StorageNode("DRAM", ("A", "B", "Z")), Loop("m", size[0]), Loop("k", size[1]),
        StorageNode("GLB", kept), Loop("n", 1), Loop("m", 1), Loop("k", 1), ComputeNode("Z", "MAC"),
    )  # fmt: skip
    rules = SparseRules(tuple((t, format) for t in ("A", "B", "Z")), fit=fit)
    components = tuple(
        replace(c, sparse=rules, size_bits=room if c.name == "GLB" else math.inf) if c.kind == "memory" else c
        for c in hierarchy({}).components
    )
    workload = product_of({"A": ("m", "k"), "B": ("k", "n"), "Z": ("m", "n")}, sizes)
    return Problem(workload, Hierarchy(components), LoopTree(nodes))


def counted(problem: Problem, data: dict[str, TensorData]) -> tuple[Analysis, SparseCounts]:
    known = {t: data.get(t, dense_data(t)) for t in "ABZ"}
    analysis = ENGINE.analyse(problem)
    return analysis, sparse_counts(problem, analysis, known)


def occupancies(chosen: tuple[tuple[int, int], ...]) -> list[int]:
    return [sum((m // 2 * 2, k // 3 * 3) == tile for m, k in chosen) for tile in TILES]


def in_glb(counts: SparseCounts) -> list[TileFootprint]:
    return [f for f in counts.footprints if f.component == "GLB"]


def row_of(counts: SparseCounts, component: str, kind: str, tensor: str = "A") -> AccessCount:
    return next(a for a in counts.accesses if (a.component, a.tensor, a.kind) == (component, tensor, kind))


@pytest.mark.parametrize("room", [0, 14, 28, 41, 42, 100])
def test_what_finds_no_room_is_fetched_at_each_of_its_uses(room: int) -> None:
    """Over all placements: what stays comes once, what does not three times."""
    every = [occupancies(chosen) for chosen in combinations(POINTS, NONZEROS)]
    fetched = sum(min(s, room // EACH) + 3 * max(s - room // EACH, 0) for tiles in every for s in tiles)
    data = TensorData("A", Uniform.of(("R0", "R1"), (5, 4), nnz=NONZEROS))
    _, counts = counted(problem_of(0.5, room), {"A": data})
    for where, kind in (("GLB", "writes_fill"), ("DRAM", "reads_fill")):
        assert row_of(counts, where, kind).actual == pytest.approx(fetched / len(every))
    for a in counts.accesses:
        assert a.dense + a.refetched == pytest.approx(a.actual + a.gated + a.skipped + a.absent)
    assert any("fetched again at each use" in n for n in counts.notes) == (fetched > NONZEROS * len(every))


@pytest.mark.parametrize("seed", range(4))
def test_given_data_are_fetched_tile_by_tile(seed: int) -> None:
    pick = np.random.default_rng(seed)
    dense = (pick.random((5, 4)) < 0.5).astype(int)
    tensor = SparseTensor.from_dense("A", ("R0", "R1"), dense)
    tiles = occupancies(tuple(zip(*np.nonzero(dense), strict=True)))
    for most in range(7):
        _, counts = counted(problem_of(0.5, most * EACH), {"A": TensorData("A", Actual.of(tensor), tensor)})
        fetched = sum(min(s, most) + 3 * max(s - most, 0) for s in tiles)
        row = row_of(counts, "GLB", "writes_fill")
        assert row.actual == pytest.approx(fetched)
        assert row.label == "exact"


@pytest.mark.parametrize("share", [0.05, 0.5, 0.9, 0.999, 1.0])
def test_a_tile_fits_with_its_probability(share: float) -> None:
    """A full tile of 2 x 3: the least number of nonzeros that it exceeds no more often."""
    every = sorted(occupancies(chosen)[0] for chosen in combinations(POINTS, NONZEROS))
    least = every[math.ceil(share * len(every) * (1 - 1e-12)) - 1]
    data = {"A": TensorData("A", Uniform.of(("R0", "R1"), (5, 4), nnz=NONZEROS))}
    for room, fits in ((least * EACH, True), (least * EACH - 1, False)):
        problem = problem_of(share, max(room, 0))
        analysis, counts = counted(problem, data)
        known = data | {"B": dense_data("B"), "Z": dense_data("Z")}
        (check,) = (c for c in capacity_checks(problem, analysis, counts, known) if c.component == "GLB")
        assert check.needed_bits == pytest.approx(least * EACH)
        assert check.fits == (fits or not least)


def test_a_share_of_the_tiles_of_given_data() -> None:
    """Tiles that are empty count among all."""
    dense = np.zeros((5, 4), int)
    dense[:2, :3] = 1  # six nonzeros in the first tile
    dense[4, :2] = 1  # two in the last but one
    tensor = SparseTensor.from_dense("A", ("R0", "R1"), dense)
    for share, most in ((0.5, 0), (4 / 6, 0), (0.7, 2), (5 / 6, 2), (0.9, 6), (1.0, 6)):
        _, counts = counted(problem_of(share, 1000), {"A": TensorData("A", Actual.of(tensor), tensor)})
        (tile,) = in_glb(counts)
        assert tile.needed_bits == most * EACH, share
        assert tile.bits == 6 * EACH


def test_rules_of_the_fullest_tile_and_of_outputs() -> None:
    """At the worst all three nonzeros are in one tile; partial sums are never overbooked."""
    a = TensorData("A", Uniform.of(("R0", "R1"), (5, 4), nnz=NONZEROS))
    for fit, bits in (("expected", EACH * NONZEROS * 6 / 20), ("worst", EACH * NONZEROS)):
        _, counts = counted(problem_of(fit, 10), {"A": a})
        (tile,) = in_glb(counts)
        assert tile.needed_bits == pytest.approx(bits)
        assert not any(x.refetched for x in counts.accesses)
    z = TensorData("Z", Uniform.of(("R0", "R1"), (5, 3), nnz=2), computed=True)
    _, counts = counted(problem_of(0.5, 10, ("A", "Z")), {"A": a, "Z": z})
    tile = next(f for f in in_glb(counts) if f.tensor == "Z")
    assert tile.needed_bits == 6 * EACH  # all points of 2 x 3
    assert not any(x.refetched for x in counts.accesses if x.tensor == "Z")


def test_what_is_left_over_is_shared() -> None:
    """B needs as many bits per point as A: tiles of equal size get equal parts of the room."""
    data = {t: TensorData(t, Uniform.of(("R0", "R1"), s, nnz=6)) for t, s in (("A", (5, 4)), ("B", (4, 3)))}
    problem = problem_of(0.5, 100, ("A", "B"))
    _, counts = counted(problem, data)
    held = {f.tensor: f for f in in_glb(counts)}
    spare = 100 - sum(f.needed_bits for f in held.values())
    for tensor in "AB":
        f = held[tensor]
        room = f.needed_bits + spare * f.bits / sum(x.bits for x in held.values())
        most = int(room // EACH)
        model = data[tensor].model
        assert model is not None
        over = held_ = 0.0
        extents = {"A": [((2, 3), 2), ((2, 1), 2), ((1, 3), 1), ((1, 1), 1)], "B": [((3, 3), 3), ((1, 3), 3)]}
        for extent, number in extents[tensor]:
            law = [float(model.cdf(extent, s)) for s in range(-1, 10)]
            pmf = np.diff(law)
            held_ += number * sum(s * p for s, p in enumerate(pmf))
            over += number * sum(max(s - most, 0) * p for s, p in enumerate(pmf))
        reads, fill = (row_of(counts, "GLB", kind, tensor) for kind in ("reads_fill", "writes_fill"))
        again = over / held_ * (reads.actual - (fill.actual - fill.refetched))
        assert fill.refetched == pytest.approx(again)


@pytest.mark.parametrize(
    ("fit", "code", "at"),
    [
        ("tight", "unknown-choice", "arch.nodes[0].sparse.fit"),
        ({"probability": 1.5}, "out-of-range", "arch.nodes[0].sparse.fit.probability"),
        ({"probability": 0}, "out-of-range", "arch.nodes[0].sparse.fit.probability"),
        ({"share": 0.5}, "unknown-choice", "arch.nodes[0].sparse.fit"),
    ],
)
def test_wrong_rules(fit: object, code: str, at: str) -> None:
    nodes = [
        {"type": "Memory", "name": "DRAM", "sparse": {"fit": fit}},
        {"type": "Compute", "name": "MAC"},
    ]
    with faults(code, at=at):
        _ = pm.load({"schema_version": 1, "arch": {"nodes": nodes}}).arch
    nodes[0].pop("sparse")
    nodes[1]["sparse"] = {"fit": "worst"}
    with faults("invalid-component", at="arch.nodes[1].sparse.fit"):
        _ = pm.load({"schema_version": 1, "arch": {"nodes": nodes}}).arch


def test_sweeps_go_by_the_rule() -> None:
    """Points are evaluated one by one, and feasible where what is needed fits; refetched bits are read."""
    spec = pm.load(ROOT / "docs/sparse/capacity.yaml")
    found = pm.sweep(spec, {"P": [0.5, 1], "TM": [32], "TK": [32]}, objectives=["sparse_energy"], keep="all")
    assert any("points evaluated one by one" in note for note in found.notes)
    assert list(found.frame.feasible) == [True, False]
    overbooked, plain = (pm.evaluate(spec.bind(P=p, TM=32, TK=32)).sparse for p in (0.5, 1))
    assert (overbooked.feasible, plain.feasible) == (True, False)
    # What finds no room where all of it has to fit is counted as well: the room is the same.
    assert plain.accesses.refetched.sum() == pytest.approx(overbooked.accesses.refetched.sum())
    more = overbooked.accesses.query("component == 'DRAM'")[["actual_bits", "metadata_bits"]].sum().sum()
    read_or_written = ["sparse_reads:DRAM", "sparse_writes:DRAM"]
    assert found.frame[read_or_written].iloc[0].sum() == pytest.approx(more)


SCATTERED: list[object] = [
    {"format": "DCSR", "index": 3, "pointer": 4},
    [{"format": "U", "pbits": 4}, {"format": "B", "pbits": 8}],
    [{"format": "CP", "cbits": 3, "pbits": 4}, {"format": "RLE", "rbits": 1, "pbits": 8}],
]


@pytest.mark.parametrize("format", SCATTERED, ids=["DCSR", "U-B", "CP-RLE"])
@pytest.mark.parametrize("size", [(4, 2), (4, 4)])
@pytest.mark.thin(99)
def test_where_nonzeros_lie_counts_as_well(format: object, size: tuple[int, int]) -> None:
    """Of all placements of three nonzeros in 4 x 4: as many tiles fit as the rule says, and none exceeds what
    the worst takes; what overflows is no more than what is said."""
    every = []
    for chosen in combinations(product(range(4), range(4)), NONZEROS):
        dense = np.zeros(size, int)
        for m, k in chosen:
            if k < size[1]:
                dense[m, k] = 1
        part = SparseTensor.from_dense("A", ("R0", "R1"), dense)
        bits = footprint(part, parse_format(format, part.ranks, Widths(8, None, 32))).total
        every.append(int(bits) if part.nnz else 0)
    data = {"A": TensorData("A", Uniform.of(("R0", "R1"), (4, 4), nnz=NONZEROS))}
    known = data | {"B": dense_data("B"), "Z": dense_data("Z")}
    for fit in ("worst", 0.3, 0.9):
        for room in (min(every), max(every) - 1, max(every)):
            problem = problem_of(fit, room, format=format, size=size, sizes={"m": 4, "k": 4, "n": 3})
            analysis, counts = counted(problem, data)
            (check,) = (c for c in capacity_checks(problem, analysis, counts, known) if c.component == "GLB")
            share = sum(b <= check.needed_bits for b in every) / len(every)
            assert share >= (1.0 if fit == "worst" else fit)
            if fit == "worst":
                assert check.needed_bits == max(every)
            above = sum(b > room for b in every) / len(every)
            assert check.p_overflow >= above - 1e-9
            assert check.label == "bound" or check.p_overflow == pytest.approx(above)
            (tile,) = in_glb(counts)
            assert sum(b <= tile.quantile_bits for b in every) >= 0.99 * len(every)


def placements(shape: tuple[int, int], nonzeros: int) -> np.ndarray:
    """All tensors of a shape with so many nonzeros, one after the other."""
    chosen = np.array(list(combinations(range(math.prod(shape)), nonzeros)))
    result = np.zeros((len(chosen), math.prod(shape)), dtype=np.int64)
    result[np.arange(len(chosen))[:, None], chosen] = 1
    return result.reshape(-1, *shape)


@pytest.mark.parametrize("kept", [("A", "B"), ("A", "B", "Z")])
def test_several_tiles_that_vary(kept: tuple[str, ...]) -> None:
    """How often tiles of two inputs, and of their product, take more than there is: of all placements."""
    a, b = placements((5, 4), 2), placements((4, 3), 2)
    bits = EACH * np.add.outer(a[:, :2, :3].sum(axis=(1, 2)), b[:, :3].sum(axis=(1, 2)))
    if "Z" in kept:
        bits += EACH * (np.einsum("amk,bkn->abmn", a[:, :2], b) > 0).sum(axis=(2, 3))
    data = {t: TensorData(t, Uniform.of(("R0", "R1"), shape, nnz=2)) for t, shape in
            {"A": (5, 4), "B": (4, 3)}.items()}  # fmt: skip
    for room in (EACH, 3 * EACH + 1, 5 * EACH - 1):
        problem = problem_of("expected", room, kept=kept)
        (product_of_both,) = problem.cascade
        output = output_data(product_of_both, product_of_both.outputs[0], (5, 3), data)
        known = {**data, "Z": output if "Z" in kept else dense_data("Z")}
        analysis, counts = counted(problem, known)
        (check,) = (c for c in capacity_checks(problem, analysis, counts, known) if c.component == "GLB")
        above = float((bits > room).mean())
        if "Z" in kept:
            assert (check.label, check.p_overflow >= above - 1e-9) == ("bound", True)
        else:
            assert (check.label, check.p_overflow) == ("expected", pytest.approx(above))
