"""Products at a memory that cuts operands: tables against loops over dense arrays, cascades, tensors of three
ranks, refusals."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from tests.report.test_tiling_level import ARCH, words
from tests.tiling.matmul.slow import walk

EINSUM = """\
  - name: {name}
    operations: {{map: {map}}}
    tensor_accesses:
    - {{name: {a}, projection: {pa}}}
    - {{name: {b}, projection: {pb}}}
    - {{name: {z}, projection: {pz}, output: True}}
"""


def one(a: str, b: str, z: str, at: str, name: str = "P", op: str = "mul") -> str:
    pa, pb, pz = (f"[{', '.join(x)}]" for x in at.split())
    return EINSUM.format(name=name, map=op, a=a, b=b, z=z, pa=pa, pb=pb, pz=pz)


def evaluated(
    folder: Path, sizes: dict[str, int], einsums: dict[str, tuple[str, ...]], section: str, n: int = 1
) -> pm.Report:
    """`einsums`: YAML of each -> tensors; they run one after the other, untiled."""
    ranks = ", ".join(f"{r}: {s}" for r, s in sizes.items())
    named = [text.split("name: ")[1].split("\n")[0] for text in einsums]
    loops = ""
    for name, (text, tensors) in zip(named, einsums.items(), strict=True):
        held = ", ".join(tensors)
        inner = "".join(
            f"      - !Temporal {{rank_variable: {r.lower()}, tile_shape: 1}}\n"
            for r in sizes
            if f"{r.lower()}," in text or f"{r.lower()}]" in text
        )
        storage = f"      - !Storage {{component: MEM, tensors: [{held}]}}\n"
        compute = f"      - !Compute {{einsum: {name}, component: PE}}\n"
        loops += f"    - !Nested\n      nodes:\n{storage}{inner}{compute}"
    every = sorted({t for ts in einsums.values() for t in ts})
    mapping = f"  - !Storage {{component: DRAM, tensors: [{', '.join(every)}]}}\n"
    if len(einsums) > 1:
        mapping += f"  - !Sequential\n    nodes:\n{loops}"
    else:
        mapping += loops.split("\n", 2)[2].replace("      - ", "  - ")
    path = folder / "spec.yaml"
    path.write_text(
        ARCH % section
        + f"workload:\n  rank_sizes: {{{ranks}}}\n  bits_per_value: {{All: 16}}\n  n_instances: {n}\n"
        + f"  einsums:\n{''.join(einsums)}mapping:\n  nodes:\n{mapping}",
        encoding="utf-8",
    )
    return pm.evaluate(pm.load(path))


def sparse(name: str, dense: np.ndarray) -> pm.SparseTensor:
    return pm.SparseTensor.from_dense(name, tuple(f"R{i}" for i in range(dense.ndim)), dense.astype(int))


@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_products_against_a_walk_over_dense_tiles(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Any orders of ranks and operands: Z[m, n] = sum of A[m, k] B[k, n]."""
    m, k, n = (data.draw(st.integers(2, 6)) for _ in "mkn")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    a, b = rng.random((m, k)) < 0.4, rng.random((k, n)) < 0.4
    turned = [data.draw(st.booleans()) for _ in "AB"]
    swapped, times = data.draw(st.booleans()), data.draw(st.sampled_from([1, 3]))
    order = data.draw(st.sampled_from(["ijk", "ikj", "kij", "jki", "kji", "jik"]))
    tile = tuple(data.draw(st.integers(1, 4)) for _ in "ikj")
    at = ["km" if turned[0] else "mk", "nk" if turned[1] else "kn"]
    names = ["A", "B"]
    if swapped:
        at, names = at[::-1], names[::-1]
    text = one(*names, "Z", f"{at[0]} {at[1]} mn")
    section = f"{{product: {{tile: {list(tile)}, order: {order}, capacity: 1000, pes: 3, bandwidth: 2}}}}"
    report = evaluated(
        tmp_path_factory.mktemp("s"), {"M": m, "N": n, "K": k}, {text: ("A", "B", "Z")}, section, times
    )
    tensors = {"A": sparse("A", a.T if turned[0] else a), "B": sparse("B", b.T if turned[1] else b)}
    found = pm.tile_levels(report, tensors)
    if not found.products:
        assert a.all()
        assert b.all()
        return
    slow = walk(a, b, (tile[0], tile[1], tile[2]), order)
    (row,) = found.table("products").records()
    assert (row["pairs"], row["multiplies"]) == (slow["pairs"] * times, slow["multiplies"] * times)
    moved = sum(slow[x] for x in ("a_read", "b_read", "z_read", "z_write"))
    assert row["words"] == moved * times
    run = max(slow["multiplies"] / 3, moved / 2) + 8 * slow["pairs"]
    assert row["config_cycles"] == 907 * slow["pairs"] * times
    assert row["run_cycles"] == pytest.approx(run * times)
    assert found.total_cycles == pytest.approx((run + 907 * slow["pairs"]) * times)
    assert found.total_latency == pytest.approx(found.total_cycles / 2e6)
    check_tiles(found, a, b)
    check_traffic(found, a, b, (tile[0], tile[1], tile[2]), slow, times)


def check_tiles(found: pm.TilingReport, a: np.ndarray, b: np.ndarray) -> None:
    """Every entry lies in one tile, whose words are those of its part of the dense array."""
    dense = {"A": a, "B": b, "Z": a.astype(int) @ b.astype(int) > 0}
    seen = {name: np.zeros(x.shape, dtype=int) for name, x in dense.items()}
    for t in found.table("product_tiles").records():
        at = np.s_[t["row"] : t["row"] + t["height"], t["col"] : t["col"] + t["width"]]
        part = dense[str(t["tensor"])][at]
        seen[str(t["tensor"])][at] += 1
        assert part.shape == (t["height"], t["width"])
        assert (t["nnz"], t["words"], t["fits"]) == (part.sum(), words(part), True)
        assert part.any()
    for name, x in dense.items():
        assert (seen[name][x] == 1).all()


def check_traffic(
    found: pm.TilingReport,
    a: np.ndarray,
    b: np.ndarray,
    tile: tuple[int, int, int],
    slow: dict[str, int],
    times: int,
) -> None:
    """The array takes its operands at every launch, and of Z what is there, and gives what is there then."""
    ti, tk, tj = tile
    (rows, inner), cols = a.shape, b.shape[1]
    used = dict.fromkeys("AB", 0)
    old = new = 0
    for i, j in product(range(0, rows, ti), range(0, cols, tj)):
        z = np.zeros((min(ti, rows - i), min(tj, cols - j)), dtype=bool)
        for k in range(0, inner, tk):
            one_, two = a[i : i + ti, k : k + tk], b[k : k + tk, j : j + tj]
            if not (one_.any(axis=0) & two.any(axis=1)).any():
                continue
            used["A"] += words(one_)
            used["B"] += words(two)
            old += words(z)
            z |= one_.astype(int) @ two.astype(int) > 0
            new += words(z)
    energy = 0.0
    for row in found.table("traffic").records():
        flows = [row[x] for x in ("in_words", "read_words", "written_words", "out_words")]
        if row["role"] == "output":
            expected = [slow["z_read"], old, new, slow["z_write"]]
        else:
            expected = [slow[f"{str(row['role']).lower()}_read"], used[str(row["role"])], 0, 0]
        assert flows == [x * times for x in expected]
        into, read, written, out = (x * times for x in expected)
        assert row["moved_bits"] == 16 * (into + out)
        energy += 16 * ((read + out) * 1e-12 + (written + into) * 3e-12 + out * 2e-12)
        energy += -(-16 // 64) * into * 64e-12  # the parent is read in whole actions of 64 bits
    assert found.total_energy == pytest.approx(energy)


@pytest.mark.parametrize("strategy", ["search", "uniform", "panels", "dynamic", "overbooked"])
def test_every_strategy_has_tiles_that_hold_all(strategy: str, tmp_path: Path) -> None:
    """Operands are partitioned, or covered where ranges overlap; what is told of a tile is what is there."""
    rng = np.random.default_rng(3)
    a, b = rng.random((14, 11)) < 0.3, rng.random((11, 13)) < 0.3
    text = one("A", "B", "Z", "mk kn mn")
    report = evaluated(
        tmp_path, {"M": 14, "N": 13, "K": 11}, {text: ("A", "B", "Z")},
        f"{{product: {{strategy: {strategy}, capacity: 64}}}}",
    )  # fmt: skip
    found = pm.tile_levels(report, {"A": sparse("A", a), "B": sparse("B", b)})
    (row,) = found.table("products").records()
    direct = pm.tile_matmul(sparse("A", a), sparse("B", b), capacity=64, strategy=strategy)
    assert (row["words"], row["total_cycles"]) == (direct.words, direct.cycles)
    assert row["ratio"] == pytest.approx(direct.ratio)
    dense = {"A": a, "B": b, "Z": a.astype(int) @ b.astype(int) > 0}
    times = {name: np.zeros(x.shape, dtype=int) for name, x in dense.items()}
    for t in found.table("product_tiles").records():
        name = str(t["tensor"])
        at = np.s_[t["row"] : t["row"] + t["height"], t["col"] : t["col"] + t["width"]]
        times[name][at] += 1
        if row["strategy"] == "dynamic" and name == "Z":
            assert t["nnz"] <= dense[name][at].sum()  # as full as it got
        else:
            assert t["nnz"] == dense[name][at].sum()
    z = dense["Z"]
    assert (times["Z"][z] >= 1).all()
    met = {"A": a & b.any(axis=1)[None, :], "B": b & a.any(axis=0)[:, None]}
    for name, x in met.items():
        assert (times[name][x] >= 1).all()
    assert str(row["strategy"]) in str(found)
    assert "max(multiplies / PEs" in str(found)


def test_a_product_and_then_a_sum_with_it(tmp_path: Path) -> None:
    """Z = A B has the pattern of the product; Y = Z + C is cut as one of known data, and so is W = Y * D."""
    rng = np.random.default_rng(7)
    a, b, c, d = (rng.random(s) < 0.2 for s in ((9, 8), (8, 7), (9, 7), (9, 7)))
    texts = {
        one("A", "B", "Z", "mk kn mn", "P"): ("A", "B", "Z"),
        one("Z", "C", "Y", "mn mn mn", "S", "add"): ("Z", "C", "Y"),
        one("Y", "D", "W", "mn mn mn", "W"): ("Y", "D", "W"),
    }
    section = "{capacity: 12, tiler: btree, product: {strategy: panels, capacity: 60}}"
    report = evaluated(tmp_path, {"M": 9, "N": 7, "K": 8}, texts, section)
    tensors = {n: sparse(n, x) for n, x in (("A", a), ("B", b), ("C", c), ("D", d))}
    found = pm.tile_levels(report, tensors)
    z = a.astype(int) @ b.astype(int) > 0
    held = {"S": (z, c), "W": (z | c, d)}
    for t in found.table("tiles").records():
        at = np.s_[t["row"] : t["row"] + t["height"], t["col"] : t["col"] + t["width"]]
        one_, two = held[str(t["einsum"])]
        assert (t["nnz_a"], t["nnz_b"]) == (one_[at].sum(), two[at].sum())
    assert found.label == "exact"
    assert [r["einsum"] for r in found.table("summary").records()] == ["S", "W", "P"]
    assert found.total_cycles == sum(r["total_cycles"] for r in found.table("summary").records())


@pytest.mark.parametrize("ranks", [None, ("I", "K"), ("K", "J")])
@pytest.mark.parametrize("op", ["add", "mul"])
def test_tensors_of_three_ranks_are_cut(ranks: tuple[str, str] | None, op: str, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = (rng.random((5, 4, 6)) < 0.25 for _ in "ab")
    named = "" if ranks is None else f", ranks: [{', '.join(ranks)}]"
    text = one("A", "B", "Z", "ijk ijk ijk", "S", op)
    report = evaluated(
        tmp_path, {"I": 5, "J": 4, "K": 6}, {text: ("A", "B", "Z")}, f"{{capacity: 20, tiler: btree{named}}}"
    )
    found = pm.tile_levels(report, {"A": sparse("A", a), "B": sparse("B", b)})
    cut = ranks or ("I", "J")
    order = ["IJK".index(r) for r in (*cut, *(r for r in "IJK" if r not in cut))]
    x, y = (t.transpose(order) for t in (a, b))
    seen = np.zeros(x.shape, dtype=int)
    for t in found.table("tiles").records():
        at = np.s_[t["row"] : t["row"] + t["height"], t["col"] : t["col"] + t["width"]]
        seen[at] += 1
        one_, two = x[at], y[at]
        out = one_ | two if op == "add" else one_ & two
        assert (t["nnz_a"], t["nnz_b"], t["nnz_out"]) == (one_.sum(), two.sum(), out.sum())
        for name, part in (("words_a", one_), ("words_b", two), ("words_out", out)):
            assert t[name] == (deep_words(part) if t["launched"] else 0)
    assert (seen == 1).all()
    assert any(f"cut on {cut[0].lower()} and {cut[1].lower()}" in n for n in found.notes)


def deep_words(part: np.ndarray) -> int:
    """Two words per entry, per nonempty row and per nonempty fiber below it; three, and one more level."""
    rows = sum(1 for row in part if row.any())
    fibers = sum(1 for row in part for fiber in row if fiber.any())
    return 2 * int(part.sum()) + 2 * rows + 2 * fibers + 4 if part.any() else 0


def refused(tmp_path: Path, section: str, **options: object) -> pm.Refused:
    text = one("A", "B", "Z", str(options.get("at", "mk kn mn")), "P", str(options.get("op", "mul")))
    report = evaluated(tmp_path, {"M": 8, "N": 8, "K": 8}, {text: ("A", "B", "Z")}, section)
    eye = np.ones((8, 8)) - np.eye(8)
    given = None if "densities" in options else {"A": sparse("A", eye), "B": sparse("B", eye)}
    with pytest.raises(pm.Refused, match="P at MEM") as caught:
        pm.tile_levels(report, given, {"A": 0.1, "B": 0.1} if given is None else None)
    return caught.value


def test_what_is_not_cut_says_why_and_what_to_do(tmp_path: Path) -> None:
    found = refused(tmp_path, "{product: {tile: [8, 8, 8], capacity: 50}}")
    assert "1/1/1 of the 8 x 8 x 8 tiles of A/B/Z exceed buffers of 50 words" in found.message
    assert "147 words" in found.remedy
    found = refused(tmp_path, "{product: {strategy: panels, capacity: 9}}")
    assert "no panels tiles fit" in found.message
    found = refused(tmp_path, "{product: {capacity: 6}}")
    assert "6 words an operand, and a tile with one entry takes 7" in found.message
    found = refused(tmp_path, "{}", densities=True)
    assert "of A only a density is known" in found.message
    assert "actual" in found.remedy
    found = refused(tmp_path, "{product: {strategy: panels, order: kij, capacity: 999}}")
    assert "no panels tiles of order kij" in found.message
    found = refused(tmp_path, "{}", op="max")
    assert "map max" in found.message


def test_capacity_of_a_buffer_in_words(tmp_path: Path) -> None:
    """The product's own; else the memory's, if it counts words; else what its size says: 12288 / 6 / 16."""
    text = one("A", "B", "Z", "mk kn mn")
    eye = np.eye(8)
    for section, room in (
        ("{capacity: 40, product: {capacity: 30}}", 30),
        ("{capacity: 40, fit: words}", 40),
        ("{capacity: 40}", 128),
        ("{fit: stored, format: CSR}", 128),
    ):
        report = evaluated(tmp_path, {"M": 8, "N": 8, "K": 8}, {text: ("A", "B", "Z")}, section)
        found = pm.tile_levels(report, {"A": sparse("A", eye), "B": sparse("B", eye)})
        assert found.table("products").column("capacity_words") == (room,)


@pytest.mark.parametrize("form", [["C", "C", "C"], ["U", "C", "C"]])
def test_a_format_of_three_ranks_moves_its_own_bits(form: list[str], tmp_path: Path) -> None:
    """In one tile: what the footprint of the whole tensor has."""
    rng = np.random.default_rng(1)
    a, b = (rng.random((5, 4, 6)) < 0.25 for _ in "ab")
    section = f"{{fit: stored, format: [{', '.join(form)}], capacity: 99999}}"
    text = one("A", "B", "Z", "ijk ijk ijk", "S", "add")
    report = evaluated(tmp_path, {"I": 5, "J": 4, "K": 6}, {text: ("A", "B", "Z")}, section)
    found = pm.tile_levels(report, {"A": sparse("A", a), "B": sparse("B", b)})
    for row, dense in zip(found.table("traffic").records(), (a, b, a | b), strict=True):
        flow = row["out_words" if row["role"] == "output" else "in_words"]
        assert (flow, row["tiles"]) == (pm.footprint(sparse("T", dense), form).total, 1)
