"""What a report and a sweep show of sparse data: bandwidths with metadata, levels of the same data as the
objective, labels and notes, cycles, and what fits on sparse data only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import polymodel as pm
from polymodel.sweeps.levels import energy, traffic

SPEC = """
arch:
  name: machine
  nodes:
  - !Memory
    name: DRAM
    size: inf
    tensors: {keep: All}
    ports: shared
    sparse: {format: {A: CSR}, actions: [{skip: B, on: A}]}
    actions:
    - {name: read, energy: 15 pJ, throughput: 1 GB/s}
    - {name: write, energy: 15 pJ, throughput: 1 GB/s}
  - !Memory
    name: Buffer
    size: 200 B
    tensors: {keep: All}
    sparse: {format: {A: COO}}
    actions:
    - {name: read, energy: 0.5 pJ}
    - {name: write, energy: 0.5 pJ}
  - !Container
    name: PE
    spatial: [{name: X, fanout: 4, may_reuse: All}]
  - !Memory
    name: Reg
    size: 256 B
    tensors: {may_keep: A | Z}
    actions:
    - {name: read, energy: 0.03 pJ}
    - {name: write, energy: 0.03 pJ}
  - !Compute
    name: MAC
    clock: 1 GHz
    sparse: {actions: [{skip: compute, on: A}]}
    actions: [{name: compute, energy: 3 pJ, throughput: 1 Gop/s}]
workload:
  rank_sizes: {M: 16, K: 16, N: 4}
  bits_per_value: {All: 8}
  densities: {A: 0.125}
  einsums:
  - Z[m, n] = A[m, k] * B[k, n]
symbols: {TM: 8}
mapping:
  nodes:
  - !Storage {component: DRAM, tensors: [A, B, Z]}
  - !Temporal {rank_variable: m, tile_shape: TM}
  - !Storage {component: Buffer, tensors: [A, B, Z]}
  - !Spatial {rank_variable: m, tile_shape: 2, component: PE, name: X}
  - !Temporal {rank_variable: m, tile_shape: 1}
  - !Storage {component: Reg, tensors: [Z]}
  - !Temporal {rank_variable: k, tile_shape: 1}
  - !Temporal {rank_variable: n, tile_shape: 1}
  - !Compute {einsum: Z, component: MAC}
"""
REG_READ = "{name: read, energy: 0.03 pJ}"


def loaded(tmp_path: Path, *changes: tuple[str, str]) -> pm.Spec:
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    file = tmp_path / "spec.yaml"
    file.write_text(text, encoding="utf-8")
    return pm.load(file)


def test_a_roof_is_the_throughput_of_the_machine(tmp_path: Path) -> None:
    """Metadata take time at a memory, and are bits moved there: 8 Gb/s, and not those of values alone."""
    sparse = pm.evaluate(loaded(tmp_path)).sparse
    rows: list[dict[str, Any]] = sparse.table("roofline").records()
    (row,) = rows
    moved: list[dict[str, Any]] = [x for x in sparse.table("accesses").records() if x["component"] == "DRAM"]
    assert sum(x["metadata_bits"] for x in moved) > 0
    bits = sum(x["actual_bits"] + x["metadata_bits"] for x in moved)
    assert row["moved_bits"] == pytest.approx(bits, rel=1e-12)
    assert row["bandwidth_bits_per_s"] == pytest.approx(8e9, rel=1e-12)
    figures = sparse.value("reads:DRAM") + sparse.value("writes:DRAM")
    assert row["moved_bits"] == pytest.approx(figures, rel=1e-12)


def test_levels_of_a_sweep_are_on_the_data_of_its_objective(tmp_path: Path) -> None:
    """Levels of the least sparse_energy were those of dense data."""
    for objective, words in (("sparse_energy", " on sparse data"), ("energy", "")):
        found = pm.sweep(loaded(tmp_path), {"TM": [4, 8]}, objectives=[objective], keep="all")
        rows, sparse = found.frame, bool(words)
        rows = rows[rows["feasible"]]
        assert energy(found, rows, sparse).sum(axis=1).tolist() == pytest.approx(rows[objective].tolist())
        dram = traffic(rows, sparse)["DRAM"].tolist()
        names = ["sparse_reads:DRAM", "sparse_writes:DRAM"] if sparse else ["reads:DRAM", "writes:DRAM"]
        assert dram == pytest.approx((rows[names[0]] + rows[names[1]]).tolist())
        for kind in ("energy", "traffic"):
            title = found.plot(kind, "TM").get_title()
            assert title.startswith(f"{kind.capitalize()}{words} by level, least {objective} at each TM")
        assert (f"energy{words} by level" in found.to_html()) is True


def test_a_memory_without_throughput_makes_no_latency_a_lower_bound(tmp_path: Path) -> None:
    """Registers of several instances differ in their loads, but no latency depends on them."""
    sparse = pm.evaluate(loaded(tmp_path)).sparse
    assert sparse.label == "expected"
    assert sparse.notes == ()
    timed = (REG_READ, REG_READ.replace("0.03 pJ}", "0.03 pJ, throughput: 1 GB/s}"))
    slower = pm.evaluate(loaded(tmp_path, timed)).sparse
    assert slower.label == "lower bound"
    (note,) = slower.notes
    assert note.startswith("Z: the busiest instance of Reg is taken to be spared like all others")


def test_pages_begin_with_sparse_data_and_tensors_keep_their_colours(tmp_path: Path) -> None:
    """Figures of dense data came first, and colours followed the amounts, so that those of A and B changed
    places between two plots of one page."""
    report = pm.evaluate(loaded(tmp_path))
    page = report.to_html()
    at = [
        page.index(f"<summary><h2>{t}")
        for t in ("On sparse data", "Plot: energy on sparse data", "Table: Summ")
    ]
    assert at == sorted(at)
    assert "Table: Summary, every zero stored" in page
    shades = [
        {patches.get_label(): patches[0].get_facecolor() for patches in one.plot("energy").containers}
        for one in (report, report.sparse)
    ]
    assert shades[0].keys() >= {"A", "B", "Z", "operations"}
    assert {name: shades[0][name] for name in shades[1]} == shades[1]


def test_tables_without_rows_say_so(tmp_path: Path) -> None:
    page = pm.evaluate(loaded(tmp_path)).sparse.to_html()
    table = page[page.index("<h2>intersections</h2>") :]
    assert table[: table.index("</div>") + 40].count("none") == 1


def test_the_head_tells_cycles_and_what_fits_on_sparse_data(tmp_path: Path) -> None:
    report = pm.evaluate(loaded(tmp_path))
    assert not report.feasible
    assert report.sparse.feasible
    text = report.whole_text()
    cycles = f"{report.sparse.total_latency * 1e9:.4g} cycles), "
    (line,) = (x for x in text.splitlines() if x.startswith("sparse data"))
    assert cycles in line
    assert "  ! Buffer" not in text
    assert "note: with every zero stored, Buffer is too small" in text
    page = report.to_html()
    assert "on sparse data it fits" in page
    for name in ("working sets", "energy", "roofline"):
        assert f"Plot: {name} on sparse data" in page
    tight = pm.evaluate(loaded(tmp_path, ("size: 200 B", "size: 20 B")))
    assert not tight.sparse.feasible
    assert "  ! Buffer is too small" in tight.whole_text()
