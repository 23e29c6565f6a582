"""Totals, notes and files of tiles at the memories of an architecture."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.report import export
from polymodel.report.tiling import level
from polymodel.sparse.tensor import SparseTensor

SPEC = """\
arch:
  nodes:
  - !Memory
    name: DRAM
    actions: [{name: read, energy: 7e-12}, {name: write, energy: 5e-12}]
  - !Memory
    name: GLB
    size: 100000
    clock: 1e9
    data_tiles: {fit: words, capacity: 60}
    actions: [{name: read, energy: 3e-12}, {name: write, energy: 2e-12}]
  - !Memory
    name: MEM
    size: 1000
    clock: 1e9
    data_tiles: {fit: words, capacity: 20}
    actions: [{name: read, energy: 1e-12}, {name: write, energy: 1e-12}]
  - !Compute {name: PE}
workload:
  rank_sizes: {M: 8, N: 8}
  bits_per_value: {All: 8}
  densities: {A: 0.2, B: 0.1}
  einsums:
  - name: Z
    operations: {map: add}
    tensor_accesses:
    - {name: A, projection: [m, n]}
    - {name: B, projection: [m, n]}
    - {name: Z, projection: [m, n], output: True}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Storage {component: GLB, tensors: [A, B, Z]}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Storage {component: MEM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: n, tile_shape: 1}
  - !Compute {einsum: Z, component: PE}
"""


def report(folder: Path, text: str = SPEC) -> pm.Report:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return pm.evaluate(pm.load(path))


def data() -> dict[str, SparseTensor]:
    rng = np.random.default_rng(0)
    return {n: SparseTensor.from_dense(n, ("M", "N"), (rng.random((8, 8)) < 0.3) * 1) for n in "AB"}


def test_an_einsum_that_two_memories_cut_is_counted_once(tmp_path: Path) -> None:
    """Each memory's tiles are counted as if the array worked from it, which it does from the inner one."""
    found = pm.tile_levels(report(tmp_path), data())
    outer, inner = found.table("summary").records()
    assert (outer["memory"], inner["memory"]) == ("GLB", "MEM")
    assert outer["total_cycles"]
    assert found.total_cycles == inner["total_cycles"]
    assert found.total_latency == inner["latency_s"]
    energy = found.table("energy").records()
    mine = sum(float(str(r["energy_J"])) for r in energy if r["memory"] == "MEM")
    assert found.total_energy == pytest.approx(mine)
    assert {r["component"] for r in energy if r["memory"] == "MEM"} == {"GLB", "MEM"}
    assert {r["component"] for r in energy if r["memory"] == "GLB"} == {"DRAM", "GLB"}
    assert any("Z is cut at GLB as if the array worked from there" in n for n in found.notes)
    assert repr(found) == (
        f"TilingReport(2 Einsums cut, {inner['kernels']} kernels, {inner['total_cycles']:,} cycles, exact)"
    )


def test_a_reader_is_told_the_whole_and_what_is_charged(tmp_path: Path) -> None:
    found = pm.tile_levels(report(tmp_path), data())
    for text in (str(found), found._repr_html_()):
        assert f"In all: {found.table('summary').records()[1]['kernels']} kernels, " in text
        assert "of moving tiles (exact)" in text
        assert "whose figures they do not change" in text
        assert "without compute" in text


def test_energy_of_expected_tiles_is_not_told_as_none_at_all(tmp_path: Path) -> None:
    dense = report(tmp_path)
    assert dense.tiling.total_energy is None
    told = json.loads(dense.to_json())["tiling"]["total"]
    assert told["energy_J"] is None
    assert told["cycles"] == pytest.approx(dense.tiling.total_cycles)
    assert "of moving tiles (" not in str(dense.tiling)
    kernels = dense.tiling.table("summary").records()[1]["kernels"]
    assert f"In all: {kernels:.2f} kernels, " in str(dense.tiling)


def test_a_buffer_beyond_its_memory_is_told(tmp_path: Path) -> None:
    small = SPEC.replace("size: 1000\n", "size: 159\n")
    dense = pm.evaluate(pm.load(_written(tmp_path, small)))
    found = pm.tile_levels(dense, data())
    assert "MEM has 159 b, less than a buffer of 20 words of 8 bits: see capacity:" in found.notes
    roomy = pm.tile_levels(report(tmp_path, SPEC.replace("size: 1000\n", "size: 160\n")), data())
    assert not any("less than a buffer" in n for n in roomy.notes)


def _written(folder: Path, text: str) -> Path:
    path = folder / "spec.yaml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.slow
def test_parquet_has_all_tables(tmp_path: Path) -> None:
    made = {p.name for p in report(tmp_path).save(tmp_path / "out", parquet=True)}
    tables = {n for n in made if n.endswith(".csv")}
    assert any(n.startswith("tiling_") for n in tables)
    assert any(n.startswith("sparse_") for n in tables)
    assert {n.replace(".csv", ".parquet") for n in tables} <= made


@pytest.mark.slow
def test_a_table_too_large_to_list_leaves_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(level, "_LISTED", 10)
    gram = pm.evaluate(pm.load("cgra_tiler_swift", "gram"))
    told = export.as_data(gram)["tiling"]
    assert isinstance(told, dict)
    tables = told["tables"]
    assert isinstance(tables, dict)
    refused, listed = tables["product_tiles"], tables["products"]
    assert isinstance(refused, dict)
    assert isinstance(listed, dict)
    assert "too many for a table" in str(refused["refused"])
    assert listed["rows"]
    made = {p.name for p in gram.save(tmp_path / "out")}
    assert "tiling_products.csv" in made
    assert "tiling_product_tiles.csv" not in made
    assert "Products in tiles" in gram.to_html()


@pytest.mark.slow
def test_what_counts_no_tiles_says_so(tmp_path: Path) -> None:
    """A capacity is swept in vain: what it changes is not among the figures of a sweep."""
    text = SPEC.replace("capacity: 20", "capacity: CAP")
    path = _written(tmp_path, f"symbols: {{CAP: 20}}\n{text}")
    swept = pm.sweep(pm.load(path), symbols={"CAP": [20, 40]})
    told = (
        "GLB, MEM: tiles of data_tiles: and their costs are not counted here; evaluate a spec to see them"
    )
    assert told in swept.notes
    assert told in pm.explore(pm.load(path)).notes
    dense = pm.evaluate(pm.load(path))
    for shown in (str(pm.compare(dense, dense)), pm.compare(dense, dense)._repr_html_()):
        assert told in shown
    bare = pm.evaluate(pm.load("cgra_tiler_swift", "elementwise/row_bands"))
    assert "GLB" not in str(pm.compare(bare, bare))
    other = pm.load("simple_two_level", "matmul")
    assert not any("data_tiles" in n for n in pm.explore(other).notes)


def test_an_entry_that_fits_nowhere_is_told_with_its_memory(tmp_path: Path) -> None:
    narrow = report(tmp_path, SPEC.replace("capacity: 20", "capacity: 6"))
    with pytest.raises(pm.SpecError, match=r"Z at MEM: .*the capacity is 6"):
        pm.tile_levels(narrow, data())


def test_an_architecture_tells_the_capacity_that_follows_from_its_size() -> None:
    assert "data tiles: 128 elements by best" in str(pm.load("cgra_tiler_swift").arch)
