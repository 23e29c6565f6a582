"""Tiles as a level of an architecture: tables against loops over dense arrays, refusals, where it shows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import polymodel as pm
from polymodel.api.tilings import tile_levels
from polymodel.report.export import as_data, check_table
from polymodel.report.tiling.level import TABLES, TilingReport
from polymodel.sparse.tensor import SparseTensor
from tests.faults import faults, refused
from tests.seeds import seeds

ARCH = """\
arch:
  nodes:
  - !Memory
    name: DRAM
    tensors: {keep: All}
    actions: [{name: read, energy: 64e-12, bits_per_action: 64}, {name: write, energy: 2e-12}]
  - !Memory
    name: MEM
    size: 8 * 1536
    clock: 2e6
    data_tiles: %s
    actions: [{name: read, energy: 1e-12}, {name: write, energy: 3e-12}]
  - !Compute {name: PE, actions: [{name: compute, throughput: 1e9}]}
"""
WORKLOAD = """\
workload:
  rank_sizes: {M: %d, N: %d}
  bits_per_value: {A: 8, B: 16, Z: 8}
  n_instances: %d
  einsums:
  - name: Z
    operations: {map: %s}
    tensor_accesses:
    - {name: A, projection: [m, n]}
    - {name: B, projection: %s}
    - {name: Z, projection: [m, n], output: True}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Storage {component: MEM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Temporal {rank_variable: n, tile_shape: 1}
  - !Compute {einsum: Z, component: PE}
"""


def evaluated(
    folder: Path,
    shape: tuple[int, int],
    op: str = "add",
    section: str = "{capacity: 6, tiler: btree}",
    b: str = "[m, n]",
    n: int = 1,
) -> pm.Report:
    path = folder / "spec.yaml"
    path.write_text(ARCH % section + WORKLOAD % (*shape, n, op, b), encoding="utf-8")
    return pm.evaluate(pm.load(path))


def tensor(name: str, dense: np.ndarray) -> SparseTensor:
    return SparseTensor.from_dense(name, ("M", "N"), dense.astype(int))


def words(part: np.ndarray) -> int:
    """A word per value and coordinate, two per nonempty row, three more; nothing of nothing."""
    found = 3
    for row in part:
        if row.any():
            found += 2
            found += 2 * sum(1 for x in row if x)
    return found if part.any() else 0


@given(data=st.data())
@settings(max_examples=25, deadline=None)
def test_tables_against_loops_over_dense_arrays(
    data: st.DataObject, tmp_path_factory: pytest.TempPathFactory
) -> None:
    shape = data.draw(st.tuples(st.integers(1, 7), st.integers(1, 7)))
    places = st.lists(st.booleans(), min_size=shape[0] * shape[1], max_size=shape[0] * shape[1])
    a, b = (np.array(data.draw(places)).reshape(shape) for _ in "AB")
    op, run = data.draw(st.sampled_from(["add", "mul"])), data.draw(st.sampled_from(["nonempty", "all"]))
    turned, n = data.draw(st.booleans()), data.draw(st.sampled_from([1, 3]))
    tiler = data.draw(st.sampled_from(["btree", "strips", "best"]))
    report = evaluated(
        tmp_path_factory.mktemp("spec"), shape, op, f"{{capacity: 6, tiler: {tiler}, run: {run}}}",
        "{N: n, M: m}" if turned else "[m, n]", n,
    )  # fmt: skip
    ranks = ("N", "M") if turned else ("M", "N")
    given_b = SparseTensor.from_dense("B", ranks, (b.T if turned else b).astype(int))
    found = tile_levels(report, {"A": tensor("A", a), "B": given_b})
    if a.all() and b.all():
        assert not found.levels
        return
    times, total, energy, moved = np.zeros(shape, dtype=int), 0, 0.0, dict.fromkeys("ABZ", 0)
    for t in found.table("tiles").records():
        at = np.s_[t["row"] : t["row"] + t["height"], t["col"] : t["col"] + t["width"]]
        times[at] += 1
        one, two = a[at], b[at]
        out = one | two if op == "add" else one & two
        runs = run == "all" or (bool((one | two).any()) if op == "add" else bool(one.any() and two.any()))
        assert (t["nnz_a"], t["nnz_b"], t["nnz_out"]) == (one.sum(), two.sum(), out.sum())
        assert t["launched"] == runs
        assert t["load"] == (one.sum() + two.sum() if op == "add" else max(one.sum(), two.sum()))
        assert t["fits"]
        assert t["load"] <= 6
        for name, key, part in (("A", "words_a", one), ("B", "words_b", two), ("Z", "words_out", out)):
            assert t[key] == (words(part) if runs else 0)
            moved[name] += words(part) * runs * n
        total += (t["run_cycles"] + (824 if op == "add" else 907)) * runs * n
    assert (times == 1).all()
    (summary,) = found.table("summary").records()
    assert summary["total_cycles"] == total == found.total_cycles
    assert summary["latency_s"] == pytest.approx(total / 2e6)
    assert found.total_latency == pytest.approx(total / 2e6)
    for row in found.table("traffic").records():
        flows = [row[k] for k in ("in_words", "read_words", "written_words", "out_words")]
        held = moved[str(row["tensor"])]
        assert flows == ([0, 0, held, held] if row["role"] == "output" else [held, held, 0, 0])
        assert row["moved_bits"] == 16 * held
    for name in "AB":  # in: read from the parent in whole 64-bit actions, written here; then read here
        energy += moved[name] * 16 * (3e-12 + 1e-12)
        energy += -(-16 // 64) * moved[name] * 64e-12
    energy += moved["Z"] * 16 * (3e-12 + 1e-12 + 2e-12)  # written here, read here, written to the parent
    assert found.total_energy == pytest.approx(energy)


def small(tmp_path: Path, **options: str) -> tuple[pm.Report, dict[str, SparseTensor]]:
    a = np.eye(4, dtype=int)
    report = evaluated(tmp_path, (4, 4), **options)
    return report, {"A": tensor("A", a), "B": tensor("B", a[::-1])}


def test_capacity_from_the_size_and_the_widest_value(tmp_path: Path) -> None:
    """12288 bits in six buffers of 16-bit words: 128; in bits of a format: 2048."""
    report, data = small(tmp_path, section="{}")
    (row,) = tile_levels(report, data).table("summary").records()
    assert (row["capacity"], row["unit"], row["tiles"]) == (128, "elements", 1)
    report, data = small(tmp_path, section="{fit: stored, format: CSR}")
    found = tile_levels(report, data)
    (row,) = found.table("summary").records()
    assert (row["capacity"], row["unit"]) == (2048, "bits")
    for moved in found.table("traffic").records():
        assert moved["word_bits"] == 1


def test_a_format_moves_its_own_bits(tmp_path: Path) -> None:
    """CSR of a 4 x 4 diagonal as the footprint has it; of both diagonals together, eight entries."""
    report, data = small(tmp_path, section="{fit: stored, format: CSR}")
    rows = {r["tensor"]: r for r in tile_levels(report, data).table("traffic").records()}
    assert rows["A"]["in_words"] == rows["B"]["in_words"] == pm.footprint(data["A"], "CSR").total
    both = SparseTensor.from_dense("Z", ("M", "N"), data["A"].to_dense() + data["B"].to_dense())
    assert rows["Z"]["out_words"] == pm.footprint(both, "CSR").total


def test_whole_actions_of_a_format_are_those_of_tiles(tmp_path: Path) -> None:
    """DRAM reads 64 bits at once: a tile of a format takes whole actions, not one for each of its bits."""
    report, data = small(tmp_path, section="{fit: stored, format: CSR, capacity: 150, tiler: btree}", n=3)
    found = tile_levels(report, data)
    tiles = found.table("tiles").records()
    assert len(tiles) > 1
    rows = {(r["component"], r["tensor"], r["action"]): r for r in found.table("energy").records()}
    for name, key in (("A", "words_a"), ("B", "words_b")):
        read = rows["DRAM", name, "read"]
        assert read["count"] == 3 * sum(-(-int(str(t[key])) // 64) for t in tiles)
        assert read["energy_J"] == pytest.approx(read["count"] * 64e-12)
        assert read["bits"] == rows["MEM", name, "read"]["count"] == 3 * sum(int(str(t[key])) for t in tiles)


def test_without_a_clock_there_are_no_seconds(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    text = (ARCH % "{}").replace("    clock: 2e6\n", "") + WORKLOAD % (4, 4, 1, "add", "[m, n]")
    path.write_text(text, encoding="utf-8")
    found = tile_levels(
        pm.evaluate(pm.load(path)), {"A": tensor("A", np.eye(4)), "B": tensor("B", np.eye(4))}
    )
    assert found.total_latency is None
    assert found.table("summary").column("latency_s") == (None,)
    assert any("MEM is without a clock" in n for n in found.notes)


def test_dense_operands_are_not_cut(tmp_path: Path) -> None:
    report, _ = small(tmp_path)
    found = tile_levels(report)
    assert found.levels == ()
    assert found.table("tiles").rows == ()
    assert found.notes == ("Z: its operands have no zeros: not cut",)


def test_one_dense_operand_is_written_out(tmp_path: Path) -> None:
    report, data = small(tmp_path)
    found = tile_levels(report, {"A": data["A"]})
    assert sum(found.table("tiles").column("nnz_b")) == 16


def test_densities_give_expected_figures(tmp_path: Path) -> None:
    """Trees of two uniform operands: near the mean over drawn data, and said to be expected."""
    report = evaluated(tmp_path, (64, 64), section="{capacity: 64, tiler: btree}", n=2)
    densities = {"A": 0.1, "B": 0.05}
    found = tile_levels(report, densities=densities)
    (row,) = found.table("summary").records()
    assert row["label"] == found.label == "expected"
    assert found.table("tiles").rows == found.table("energy").rows == ()
    drawn = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        pair = {
            n: tensor(n, rng.permutation(64 * 64).reshape(64, 64) < d * 4096) for n, d in densities.items()
        }
        drawn.append(tile_levels(report, pair).table("summary").records()[0])
    for key in ("tiles", "kernels", "total_cycles", "latency_s"):
        assert row[key] == pytest.approx(np.mean([d[key] for d in drawn]), rel=0.1)
    assert found.total_cycles == row["total_cycles"]
    assert "known by its density only" in str(found)
    assert "expected" in repr(found)


def test_densities_of_a_transposed_operand_are_refused(tmp_path: Path) -> None:
    report = evaluated(tmp_path, (8, 8), b="{N: n, M: m}")
    with refused("unsupported-density", "B") as caught:
        tile_levels(report, densities={"A": 0.1, "B": 0.05})
    assert "actual" in caught.value.remedy


def test_an_entry_that_fits_nowhere_is_a_fault(tmp_path: Path) -> None:
    report, _ = small(tmp_path, section="{capacity: 1}")
    both = {"A": tensor("A", np.eye(4)), "B": tensor("B", np.eye(4))}
    with pytest.raises(pm.SpecError, match="capacity is 1"):
        tile_levels(report, both)


def test_reports_and_words_are_told_apart(tmp_path: Path) -> None:
    with faults("wrong-type", "spec.yaml", at=""):
        tile_levels("spec.yaml")  # type: ignore[arg-type]  # a wrong argument on purpose
    report, data = small(tmp_path)
    with faults("unknown-name", at="table") as caught:
        tile_levels(report, data).table("tile")
    assert "tiles" in caught.value.diagnostics[0].remedy


EINSUMS = {
    "sum of products": ("[m, k]", "[k, n]", "use mul and add"),
    "column": ("[m, n]", "[n]", "map this Einsum past it"),
    "shifted": ("[m, n]", "{M: m + 1, N: n}", "map this Einsum past it"),
    "cube": ("[m, n, k]", "[m, n, k]", "give ranks the sizes that are used"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", seeds(2, EINSUMS))
def test_other_einsums_are_refused_by_name(kind: str, tmp_path: Path) -> None:
    a, b, remedy = EINSUMS[kind]
    out = "[m, n, k]" if kind == "cube" else "[m, n]"
    text = f"""\
workload:
  rank_sizes: {{M: 5, N: 4{", K: 3" if kind in ("sum of products", "cube") else ""}}}
  iteration_space_shape: {{m: 0 <= m < 4}}
  bits_per_value: {{All: 8}}
  densities: {{A: 0.5}}
  einsums:
  - name: Y
    operations: {{map: add}}
    tensor_accesses:
    - {{name: A, projection: {a}}}
    - {{name: B, projection: {b}}}
    - {{name: Y, projection: {out}, output: True}}
mapping:
  nodes:
  - !Storage {{component: DRAM, tensors: [A, B, Y]}}
  - !Storage {{component: MEM, tensors: [A, B, Y]}}
  - !Temporal {{rank_variable: m, tile_shape: 1}}
  - !Temporal {{rank_variable: n, tile_shape: 1}}
{"  - !Temporal {rank_variable: k, tile_shape: 1}" if kind in ("sum of products", "cube") else ""}
  - !Compute {{einsum: Y, component: PE}}
"""
    path = tmp_path / "spec.yaml"
    path.write_text(ARCH % "{}" + text, encoding="utf-8")
    report = pm.evaluate(pm.load(path))
    with pytest.raises(pm.Refused, match="Y at MEM") as caught:
        _ = report.tiling
    assert remedy in caught.value.remedy
    assert "Y at MEM" in report.whole_text()  # the dense report is there all the same
    assert "refused" in json.dumps(as_data(report)["tiling"])
    assert "Y at MEM" in report.to_html()


def test_another_operation_is_refused(tmp_path: Path) -> None:
    report, data = small(tmp_path, op="max")
    with refused("unsupported-operation"):
        tile_levels(report, data)


def test_an_einsum_that_passes_the_memory_is_not_cut(tmp_path: Path) -> None:
    path = tmp_path / "spec.yaml"
    text = WORKLOAD % (4, 4, 1, "add", "[m, n]")
    text = text.replace("component: MEM, tensors: [A, B, Z]", "component: MEM, tensors: [A, B]")
    path.write_text(ARCH % "{}" + text, encoding="utf-8")
    found = tile_levels(pm.evaluate(pm.load(path)), {"A": tensor("A", np.eye(4))})
    assert found.notes == ("Z: MEM does not hold all its tensors: not cut",)


@pytest.fixture(scope="module")
def library() -> pm.Report:
    return pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands"))


# Kernels, configuration, run and total cycles of the packaged example; the docs tell them.
EXAMPLE = {
    ("cgra_tiler_swift", "add"): (13, 10712, 1902, 12614),
    ("cgra_tiler_swift", "mul"): (8, 7256, 1166, 8422),
    ("cgra_onyx_like", "add"): (4, 3296, 1830, 5126),
    ("cgra_onyx_like", "mul"): (3, 2721, 1107, 3828),
}


@pytest.mark.parametrize(("arch", "op"), EXAMPLE)
def test_the_packaged_example(arch: str, op: str) -> None:
    found = pm.evaluate(pm.load(arch, "elementwise/row_bands", OP=op)).tiling
    (row,) = found.table("summary").records()
    keys = ("kernels", "config_cycles", "run_cycles", "total_cycles")
    assert tuple(row[k] for k in keys) <= EXAMPLE[arch, op]
    assert row["cycle_bound"] <= row["total_cycles"]
    assert row["label"] == "exact"


def test_dense_counts_are_left_alone(library: pm.Report) -> None:
    """The same machine without `data_tiles` has the same tables."""
    spec = pm.load("cgra_tiler_swift", "elementwise/row_bands")
    nodes = [
        n.model_copy(update={"data_tiles": None}) if n.name == "MEM" else n
        for n in (spec.raw_arch.nodes if spec.raw_arch else ())
    ]
    bare = pm.evaluate(replace(spec, raw_arch=pm.Arch(nodes=tuple(nodes))))
    for name in ("accesses", "latency", "energy", "working_sets"):
        assert library.table(name).rows == bare.table(name).rows


@pytest.mark.slow
def test_it_shows_wherever_reports_show(library: pm.Report, tmp_path: Path) -> None:
    found = library.tiling
    assert isinstance(found, TilingReport)
    for name in TABLES:
        check_table(f"tiling_{name}")
        assert library.table(f"tiling_{name}") is found.table(name)
        assert len(getattr(found, name)) == len(found.table(name).rows)
    assert "Cut into tiles" in library.whole_text()
    assert "Words moved by tiles" in library.to_html()
    assert "<table>" in found._repr_html_()
    data = as_data(library)["tiling"]
    assert isinstance(data, dict)
    assert data["total"] == {
        "cycles": found.total_cycles, "latency_s": found.total_latency, "energy_J": found.total_energy,
    }  # fmt: skip
    written = {p.name for p in library.save(tmp_path)}
    assert {f"tiling_{name}.csv" for name in TABLES} <= written
    assert repr(found).startswith("TilingReport(1 Einsum")


@pytest.mark.parametrize(
    ("section", "code", "at"),
    [
        ("{capacity: 6, ramp: 1e12}", "out-of-range", "arch.nodes[1].data_tiles.ramp"),
        (
            "{capacity: 6, configuration: {add: 1e300}}",
            "number-too-large",
            "arch.nodes[1].data_tiles.configuration.add",
        ),
        ("{capacity: 1e30}", "number-too-large", "arch.nodes[1].data_tiles.capacity"),
    ],
)
def test_what_64_bits_cannot_sum_is_told_with_its_place(
    tmp_path: Path, section: str, code: str, at: str
) -> None:
    with faults(code, at=at):
        evaluated(tmp_path, (2, 2), section=section)
