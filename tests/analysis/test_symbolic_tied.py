"""Closed forms of spaces that are not boxes: masks, bands and padding, equal to exact and to the walk."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from random import Random
from typing import Any

import numpy as np
import pytest

import polymodel as pm
from polymodel.analysis.exact import ENGINE as EXACT
from polymodel.analysis.result import Problem
from polymodel.analysis.symbolic import ENGINE as SYMBOLIC
from polymodel.analysis.symbolic import pair_peaks, region_terms
from polymodel.analysis.symbolic.pair_peaks import front, fronts
from polymodel.analysis.symbolic.regions import Gap, Loops, Region, TileQuery, Tiles, total
from polymodel.analysis.symbolic.stamp_order import loop_demand
from polymodel.reuse import Reuse
from tests.analysis.test_agreement import REFEREE, differences
from tests.faults import refused
from tests.support.small_specs import fanout, leaf, loop, memory, split, spread, storage, unit

Size = int | str
SEED = 20
POLICIES = ("refill", "slide", "keep_previous")


def access(tensor: str, projection: Any, output: bool = False) -> dict[str, Any]:
    return {"name": tensor, "projection": projection, "output": output}


def scores(shape: str) -> dict[str, Any]:
    """S[m, n] = Q[m, e] * K[n, e] for some m and n."""
    accesses = [access("Q", ["m", "e"]), access("K", ["n", "e"]), access("S", ["m", "n"], True)]
    return {"name": "S", "iteration_space_shape": shape, "tensor_accesses": accesses}


def outputs(shape: str) -> dict[str, Any]:
    """O[m, e] += P[m, n] * V[n, e] for some m and n."""
    accesses = [access("P", ["m", "n"]), access("V", ["n", "e"]), access("O", ["m", "e"], True)]
    return {"name": "O", "iteration_space_shape": shape, "tensor_accesses": accesses}


def padded(stride: int, padding: int, planes: str = "pr") -> dict[str, Any]:
    """A padded convolution of one or two dimensions."""
    dims = [(f"W{i}", *planes[2 * i : 2 * i + 2]) for i in range(len(planes) // 2)]
    windows = {name: f"{stride}*{p} + {r} - {padding}" for name, p, r in dims}
    accesses = [
        access("I", {"C": "c", **windows}),
        access("F", ["k", "c", *(r for _, _, r in dims)]),
        access("O", ["k", *(p for _, p, _ in dims)], True),
    ]
    return {"name": "O", "tensor_accesses": accesses}


def nest(
    einsum: Mapping[str, Any],
    sizes: Mapping[str, int],
    levels: Sequence[Mapping[str, Size]],
    policies: Mapping[str, str] | None = None,
    **symbols: int,
) -> pm.Spec:
    """A memory above and below each level of tiles; `policies` of some tensors there."""
    tensors = [a["name"] for a in einsum["tensor_accesses"]]
    names = [f"L{i}" for i in range(len(levels) + 1)]
    nodes: list[dict[str, Any]] = [storage(names[0], *tensors)]
    for name, tiles in zip(names[1:], levels, strict=True):
        nodes += [{"type": "Temporal", "rank_variable": v, "tile_shape": t} for v, t in tiles.items()]
        nodes += [storage(name, t, reuse=(policies or {}).get(t, "refill")) for t in tensors]
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [*(memory(name, 1e-12) for name in names), unit()]},
            "workload": {"rank_sizes": sizes, "bits_per_value": {"All": 8}, "einsums": [einsum]},
            "mapping": {"nodes": [*nodes, leaf(str(einsum["name"]))]},
            "symbols": symbols,
        }
    )


def problem(spec: pm.Spec) -> Problem:
    assert spec.mapping is not None
    return Problem(spec.workload, spec.arch, spec.mapping)


def drawn_levels(random: Random, sizes: Mapping[str, int]) -> list[dict[str, Size]]:
    current, found = dict(sizes), []
    for _ in range(random.randint(0, 3)):
        level: dict[str, Size] = {}
        for v in random.sample(list(sizes), random.randint(1, len(sizes))):
            level[v] = current[v] = random.randint(1, current[v])
        found.append(level)
    return found


def drawn(random: Random) -> pm.Spec | None:
    """A spec of one of the kinds; None where its tiles do not fit what the bounds leave."""
    kind = random.choice(["mask", "band", "padding", "planes"])
    if kind in ("mask", "band"):
        extents = {"m": random.randint(1, 8), "n": random.randint(1, 8), "e": 2}
        shape = "n <= m" if kind == "mask" else f"n <= m + 1 and m - n <= {random.randint(0, 4)}"
        einsum = random.choice([scores, outputs])(shape)
        sizes = {v.upper(): n for v, n in extents.items()}
    else:
        stride, padding, width = random.choice([1, 2]), random.choice([0, 1, 2]), random.randint(3, 6)
        taps = random.randint(1, 3)
        rows = (width + 2 * padding - taps) // stride + 1
        planes = "pr" if kind == "padding" else "prqs"
        einsum = padded(stride, padding, planes)
        extents = {"c": 1, "k": 2, **dict(zip(planes, [rows, taps, rows, taps], strict=False))}
        sizes = {v.upper(): n for v, n in extents.items()} | {"W0": width, "W1": width}
        if kind == "padding":
            del sizes["W1"]
    policies = {a["name"]: random.choice(POLICIES) for a in einsum["tensor_accesses"]}
    try:
        return nest(einsum, sizes, drawn_levels(random, extents), policies)
    except pm.SpecError:
        return None


def agree(seed: int, count: int) -> int:
    """How many of `count` drawn specs were compared."""
    random, compared = Random(seed), 0
    for _ in range(count):
        spec = drawn(random)
        if spec is None:
            continue
        found = SYMBOLIC.analyse(problem(spec))
        said = f"{spec.workload}\n{spec.mapping}"
        assert not differences(found, EXACT.analyse(problem(spec))), said
        if found.compute[0].operations <= 500:
            assert not differences(found, REFEREE.analyse(problem(spec))), said
        compared += 1
    return compared


def test_closed_forms_equal_exact_and_the_walk() -> None:
    assert agree(SEED, 10) >= 6


@pytest.mark.slow
def test_closed_forms_equal_exact_and_the_walk_at_length() -> None:
    assert agree(SEED + 1, 2000) >= 1200


SPECS = {
    "mask": (scores("n <= m"), {"M": 12, "N": 12, "E": 2}, [{"m": "TM", "n": "TN"}, {"m": 1, "n": "TU"}]),
    "band": (
        outputs("n <= m and m - n <= 3"),
        {"M": 10, "N": 10, "E": 2},
        [{"m": "TM"}, {"n": "TN", "e": 1}, {"n": "TU"}],
    ),
    "padding": (
        padded(2, 1),
        {"C": 2, "K": 3, "P": 6, "R": 3, "W0": 11},
        [{"k": 2, "p": "TM"}, {"c": "TU", "r": "TN"}],
    ),
}


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.thin(3)
def test_every_point_of_a_sweep_is_what_evaluate_finds(name: str) -> None:
    spec = nest(*SPECS[name], TM=1, TN=1, TU=1)
    swept = pm.sweep(spec, {"TM": [1, 2, 3, 4, 6], "TN": [1, 2, 3], "TU": [1, 2]}, keep="all")
    assert not any("one by one" in note for note in swept.notes)
    for row in swept.frame.sample(4, random_state=1).to_dict("records"):
        report = pm.evaluate(spec.bind(TM=row["TM"], TN=row["TN"], TU=row["TU"]), engine="exact")
        assert row["energy"] == pytest.approx(report.total_energy, rel=1e-12)
        assert row["latency"] == pytest.approx(report.total_latency, rel=1e-12)
        for peak in report.working_sets.query("measure == 'tile'").to_dict("records"):
            assert row[f"working_set:{peak['component']}"] == peak["bits"]


def test_sparse_counts_go_point_by_point() -> None:
    """What tiles hold of nonzeros is worked out for whole boxes only."""
    einsum = {**SPECS["mask"][0], "name": "S"}
    einsum["tensor_accesses"] = [
        {**a, "density": 0.5} if a["name"] == "Q" else a for a in einsum["tensor_accesses"]
    ]
    spec = nest(einsum, *SPECS["mask"][1:], TM=1, TN=1, TU=1)
    swept = pm.sweep(spec, {"TM": [2], "TN": [2], "TU": [1, 2]}, objectives=["sparse_energy"], keep="all")
    assert any("one by one" in note for note in swept.notes)
    for row in swept.frame.to_dict("records"):
        report = pm.evaluate(spec.bind(TM=row["TM"], TN=row["TN"], TU=row["TU"])).sparse
        assert row["sparse_energy"] == pytest.approx(report.total_energy, rel=1e-9)


def test_compiled_forms_give_what_the_sweep_finds() -> None:
    spec = nest(*SPECS["mask"], TM=1, TN=1, TU=1)
    rows = pm.sweep(spec, {"TM": [1, 2, 5], "TN": [2, 3], "TU": [1, 2]}, keep="all").frame
    compiled = pm.compile(spec)
    found = compiled(rows[["TM", "TN", "TU"]])
    assert found["working_set:L1"].tolist() == rows["working_set:L1"].tolist()
    for column in ("energy", "latency"):  # sums of the same counts, in another order
        assert found[column].tolist() == pytest.approx(rows[column].tolist(), rel=1e-14)
    with refused("unsupported-symbol", kind=pm.NotSeparable):
        compiled.gradient({"TM": 2.0, "TN": 2.0, "TU": 1.0})


def test_formulas_are_terms_that_become_numbers() -> None:
    spec = nest(*SPECS["mask"], TM=3, TN=2, TU=1)
    forms = pm.closed_forms(spec)
    fills = forms.accesses.query("component == 'L1' and tensor == 'Q'")["fill_elements"].iloc[0]
    assert "within_12x12" in str(fills)
    assert {str(s) for s in fills.free_symbols} == {"TN"}
    numbers = forms.at(TM=5, TN=4, TU=2).accesses
    exact = pm.evaluate(spec.bind(TM=5, TN=4, TU=2), engine="exact").accesses
    assert numbers["fill_elements"].tolist() == exact["fill_elements"].tolist()
    assert fills.subs(dict.fromkeys(fills.free_symbols, 4)) == exact["fill_elements"].tolist()[3]


def spread_scores(**link: Any) -> pm.Spec:
    """Causal scores, of which each instance has some rows; the costs of the `link` between them."""
    array = fanout()
    array["spatial"][0] |= {"fanout": 4, **link}
    return pm.load(
        {
            "schema_version": 1,
            "arch": {"nodes": [memory("L0", 1e-12), array, memory("L1", 1e-12), unit()]},
            "workload": {
                "rank_sizes": {"M": 7, "N": 7, "E": 2},
                "bits_per_value": {"All": 8},
                "einsums": [scores("n <= m")],
            },
            "mapping": {
                "nodes": [
                    storage("L0", "Q", "K", "S"),
                    loop("m", "TM"),
                    spread("m", "TS"),
                    storage("L1", "Q", "K"),
                    loop("n", "TN"),
                    leaf("S"),
                ]
            },
            "symbols": {"TM": None, "TS": None, "TN": None},
        }
    )


@pytest.mark.slow
def test_instances_along_a_bound_are_looked_at_one_by_one() -> None:
    """The last instance has most to do, the first one least."""
    spec = spread_scores()
    forms = pm.closed_forms(spec)
    for sizes in ((7, 2, 2), (4, 2, 3), (5, 3, 7), (3, 1, 1)):
        bound = spec.bind(**dict(zip(("TM", "TS", "TN"), sizes, strict=True)))
        assert bound.mapping is not None
        one = Problem(bound.workload, bound.arch, bound.mapping)
        found = forms.analysis.at(dict(zip(("TM", "TS", "TN"), sizes, strict=True)))
        assert not differences(found, REFEREE.analyse(one)), sizes
        assert not differences(found, EXACT.analyse(one)), sizes
    assert all(load.loads for load in found.loads)
    swept = pm.sweep(spec, {"TM": range(1, 8), "TS": range(1, 5), "TN": [1, 3]}, keep="all").frame
    for row in swept.sample(12, random_state=1).itertuples():
        report = pm.evaluate(spec.bind(TM=int(row.TM), TS=int(row.TS), TN=int(row.TN)), engine="exact")
        assert row.energy == pytest.approx(report.total_energy)
        assert row.latency == pytest.approx(report.total_latency)


def test_what_has_no_closed_form_is_named() -> None:
    spec = spread_scores(link={"topology": "mesh", "energy_per_bit_hop": 1e-12})
    with refused("unsupported-space", kind=pm.NotSeparable):
        pm.evaluate(spec.bind(TM=4, TS=2, TN=1), engine="symbolic")


@pytest.mark.parametrize("stride", [2, 3])
def test_peaks_leave_out_the_holes_of_a_window(stride: int) -> None:
    """Of a padded window with a stride and a dilation, tiles hold what is touched, not all in between."""
    einsum = padded(1, 2)
    einsum["tensor_accesses"][0] = access("I", {"C": "c", "W0": f"{stride}*p + 2*r - 2"})
    sizes = {"C": 2, "K": 1, "P": 3, "R": 3, "W0": 6}
    for tile in (1, 2, 3):
        one = problem(nest(einsum, sizes, [{"p": tile}, {"r": 2}]))
        assert not differences(SYMBOLIC.analyse(one), REFEREE.analyse(one)), tile


def test_a_window_with_holes_is_not_touched_whole() -> None:
    """Of A one Einsum reads every other element and another all: they share its buffer in different ways."""
    einsums = ["O[p] = A[Y=2*p + 2*s - 2] * G[s]", "Z[y] = A[y]"]
    workload = {"rank_sizes": {"P": 3, "S": 3, "Y": 5}, "bits_per_value": {"All": 8}, "einsums": einsums}
    nodes = [storage("L0", "A", "G", "O", "Z"), storage("L1", "A"), split([leaf("O")], [leaf("Z")])]
    arch = {"nodes": [memory("L0", 1e-12), memory("L1", 1e-12), unit()]}
    one = problem(pm.load({"arch": arch, "workload": workload, "mapping": {"nodes": nodes}}))
    assert {b.distinct for b in EXACT.analyse(one).buffets if b.tensor == "A"} == {5}
    with refused("unsupported-memory", "O", "Z", "A", kind=pm.NotSeparable):
        SYMBOLIC.analyse(one)


def tile_of(extent: int, tiles: Tiles, value: int) -> tuple[int, ...]:
    begin, found = 0, []
    for first, tile in tiles:
        inside = value - begin
        number = 0 if inside < first else 1 + (inside - first) // tile
        begin += first + (number - 1) * tile if number else 0
        found.append(number)
    return tuple(found)


def drawn_tiles(random: Random, extent: int) -> Tiles:
    found, room = [], extent
    for _ in range(random.randint(0, 3)):
        tile = random.randint(1, room)
        first = tile if random.random() < 0.8 else random.randint(1, room)
        found.append((first, tile))
        room = max(tile, first)
    return tuple(found)


def test_regions_hold_what_their_points_are() -> None:
    """Totals and peaks of drawn regions, also with slopes above 1 and holes between rows."""
    random = Random(SEED)
    for _ in range(120):
        extents = random.randint(1, 8), random.randint(1, 8)
        slopes = [-2, -1, 1, 2]
        bounds = tuple(
            (random.choice(slopes), random.choice(slopes), random.randint(-4, 7))
            for _ in range(random.randint(1, 2))
        )
        region, rank = Region(extents, bounds), random.choice([(1, 1), (2, 1), (1, 3)])
        inside = [
            (u, v) for u, v in np.ndindex(*extents) if all(a * u + b * v + c >= 0 for a, b, c in bounds)
        ]
        if inside:
            _compare(random, region, rank, inside)


def _compare(random: Random, region: Region, rank: tuple[int, int], inside: list[tuple[int, int]]) -> None:
    u, v = (drawn_tiles(random, extent) for extent in region.extents)
    elements: dict[Any, Any] = {
        "none": lambda p: (), "u": lambda p: p[0], "v": lambda p: p[1], "both": lambda p: p,
        "rank": lambda p: rank[0] * p[0] + rank[1] * p[1],
    }  # fmt: skip
    tiles = {p: (tile_of(region.extents[0], u, p[0]), tile_of(region.extents[1], v, p[1])) for p in inside}
    for what, element in elements.items():
        seen = {
            (
                tiles[p][0] if what not in ("u", "both") else 0,
                tiles[p][1] if what not in ("v", "both") else 0,
                element(p),
            )
            for p in inside
        }
        assert total(region, u, v, what, rank) == len(seen)
    asked = tuple(
        TileQuery(random.randint(0, len(u)), random.randint(0, len(v)), what, rank)
        for what in random.sample(["u", "v", "both", "rank"], 2)
    )

    def size(a: TileQuery, p: tuple[int, int]) -> int:
        return len(
            {
                elements[a.what](q)
                for q in inside
                if tiles[q][0][: a.u] == tiles[p][0][: a.u] and tiles[q][1][: a.v] == tiles[p][1][: a.v]
            }
        )

    _compare_steps(random, Loops(region, u, v, _order(random, u, v)), inside, elements)
    rows = {tuple(size(a, p) for a in asked) for p in inside}
    best = {
        r for r in rows if not any(r != o and all(x <= y for x, y in zip(r, o, strict=True)) for o in rows)
    }
    assert set(front(region, u, v, asked)) == best


def test_stamps_amid_equal_ones_need_not_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles in whose middle a region is whole, of buffets that stay or are there at some steps alone."""
    assert _compare_listings(monkeypatch, SEED, 30) >= 15


@pytest.mark.slow
def test_more_stamps_amid_equal_ones_need_not_be_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _compare_listings(monkeypatch, SEED + 1, 3000) >= 1500


def _compare_listings(monkeypatch: pytest.MonkeyPatch, seed: int, count: int) -> int:
    """Of `count` drawn peaks, how many were found without listing all stamps: each is what all stamps say."""
    random, drawn_peaks = Random(seed), []
    for _ in range(count):
        extents = random.randint(1, 40), random.randint(8, 40)
        edge = random.choice([1, 2]), random.choice([-1, -2]), random.randint(-3, 20)
        other = random.choice([(0, 0, 0), (-1, 1, random.randint(5, 30))])
        region = Region(extents, (edge, other))
        loops = drawn_tiles(random, extents[0]), (2 * (random.randint(1, 4),),)
        if random.randint(0, 1):
            region, loops = region.turned, loops[::-1]
        if len(region.rows[0]):
            asked = tuple(_drawn_query(random, *loops) for _ in range(random.randint(1, 3)))
            drawn_peaks.append((region, *loops, asked))
    found, listed = [front(*one) for one in drawn_peaks], 0
    with monkeypatch.context() as patched:
        patched.setattr(pair_peaks, "_alike", lambda depth, asked: None)
        front.cache_clear()
        for one, mine in zip(drawn_peaks, found, strict=True):
            assert mine == front(*one), one
    front.cache_clear()
    for (region, u, v, asked), mine in zip(drawn_peaks, found, strict=True):
        others = [tuple(_other_sizes(random, tiles) for tiles in (u, v)) for _ in range(3)]
        each = [front(region, *one, asked) for one in others]
        assert list(fronts(region, ((u, v), *others), asked)) == [mine, *each], (region, u, v, others, asked)
        turned = tuple(a.turned for a in asked)
        sides = ((len(u), len(v)), asked), ((len(v), len(u)), turned)
        listed += any(pair_peaks._alike(*side) is not None for side in sides)  # the rule itself
    return listed


def _other_sizes(random: Random, tiles: Tiles) -> Tiles:
    return tuple((random.randint(1, first), random.randint(1, tile)) for first, tile in tiles)


def _drawn_query(random: Random, u: Tiles, v: Tiles) -> TileQuery:
    """What a tile below some of the loops holds, or what is there of it at steps of the loops."""
    order = "u" * len(u) + "v" * len(v) if random.randint(0, 3) else "v" * len(v) + "u" * len(u)
    shared = random.randint(0, len(order))
    depth = random.randint(0, shared)
    what: Any = random.choice(["none", "u", "v", "both"])
    here, above = order[:depth], order[:shared]
    if random.randint(0, 1):
        return TileQuery(here.count("u"), here.count("v"), what)
    policy = random.choice([Reuse.REFILL, Reuse.KEEP_PREVIOUS, Reuse.KEEP_PREVIOUS, Reuse.SLIDE])
    gap = Gap(shared, depth, False, bool(random.randint(0, 1)), policy, random.randint(0, depth))
    own = tuple(range(above.count("u"))), tuple(range(above.count("v")))
    return TileQuery(here.count("u"), here.count("v"), what, (0, 0), gap, above, own)


def _order(random: Random, u: Tiles, v: Tiles) -> str:
    letters = ["u"] * len(u) + ["v"] * len(v)
    random.shuffle(letters)
    return "".join(letters)


def _compare_steps(
    random: Random, loops: Loops, inside: list[tuple[int, int]], elements: Mapping[str, Any]
) -> None:
    """What stays over the steps of each loop, by sets of elements at every stamp."""
    what: Any = random.choice(list(elements))
    rank = random.choice([(1, 1), (2, 1), (1, 3)])
    found: dict[tuple[int, ...], set[Any]] = {}
    for p in inside:
        tiles = zip(loops.region.extents, (loops.u, loops.v), p, strict=True)
        counters = [list(tile_of(n, t, x)) for n, t, x in tiles]
        stamp = tuple(counters["uv".index(letter)].pop(0) for letter in loops.order)
        element = rank[0] * p[0] + rank[1] * p[1] if what == "rank" else elements[what](p)
        found.setdefault(stamp, set()).add(element)
    stamps = sorted(found)
    for k in range(len(loops.order)):
        steps = [(s, t) for s, t in pairwise(stamps) if s[:k] == t[:k] and s[k] != t[k]]
        moved = sum(len(found[s] & found[t]) for s, t in steps)
        assert loop_demand(loops, k, "moves", what, rank) == moved
        runs = [[s for s in stamps if s[:k] == head] for head in {s[:k] for s in stamps}]
        wrapped = sum(len(found[run[-1]] & found[run[0]]) for run in runs)
        assert loop_demand(loops, k, "wraps", what, rank) == wrapped
        alike = all(
            found[s] == found[t] for s in stamps for t in stamps if s[:k] + s[k + 1 :] == t[:k] + t[k + 1 :]
        )
        assert loop_demand(loops, k, "settled", what, rank) == alike


def test_two_regions_of_a_formula_never_have_one_label(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the short mark is taken, the other one has more digits, and each keeps its own."""
    monkeypatch.setattr(region_terms, "_MARKS", {})
    monkeypatch.setattr(region_terms, "crc32", lambda _: 7)
    first, other = (region_terms._mark(text) for text in ("one", "other"))
    assert first == "007"
    assert len(other) == 12
    assert [region_terms._mark(text) for text in ("other", "one")] == [other, first]
