"""One read of B serves several instances, each with rows of A of its own: the read takes place where any of
these rows, which are not consecutive, holds a nonzero."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import polymodel as pm
from polymodel.sparse.density import DensityModel
from tests.seeds import seeds

SPEC = """
arch:
  name: multicast
  nodes:
  - !Memory
    name: Buffer
    size: inf
    tensors: {{keep: All}}
    sparse: {{actions: [{{skip: B, on: A}}]}}
    actions:
    - {{name: read, energy: 1 pJ, throughput: 1 GB/s}}
    - {{name: write, energy: 1 pJ, throughput: 1 GB/s}}
  - !Container
    name: PE
    spatial: [{{name: X, fanout: 8, may_reuse: {reuse}}}]
  - !Compute
    name: MAC
    clock: 1 GHz
    sparse: {{actions: [{{skip: compute, on: A}}]}}
    actions: [{{name: compute, energy: 3 pJ, throughput: 1 Gop/s}}]
workload:
  rank_sizes: {{M: 16, K: 16, N: 2}}
  bits_per_value: {{All: 8}}
  einsums:
  - Z[m, n] = A[m, k] * B[k, n]
mapping:
  nodes:
  - !Storage {{component: Buffer, tensors: [A, B, Z]}}
  - !Temporal {{rank_variable: k, tile_shape: 1}}
  - !Spatial {{rank_variable: m, tile_shape: {tile}, component: PE, name: X}}
  - !Temporal {{rank_variable: m, tile_shape: 1}}
  - !Temporal {{rank_variable: n, tile_shape: 1}}
  - !Compute {{einsum: Z, component: MAC}}
"""
RANKS, SHAPE = ("M", "K"), (16, 16)
SKEWED = [9, 0, 1, 0, 3, 1, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0]
MODELS: dict[str, DensityModel] = {
    "rows of one nonzero": pm.RankNnz.of(RANKS, SHAPE, [1] * 16),
    "rows": pm.RankNnz.of(RANKS, SHAPE, SKEWED),
    "columns": pm.RankNnz.of(RANKS, SHAPE, SKEWED, along=["K"]),
    "groups": pm.FixedStructured(RANKS, SHAPE, 1, 8, "K"),
    "diagonals": pm.Diagonals.of(RANKS, SHAPE, [0, 2], 0.4),
    "rows and columns": pm.RowColumn.of(
        RANKS, SHAPE, SKEWED, [4, 1, 2, 1, 0, 1, 3, 1, 1, 0, 0, 1, 1, 0, 1, 0]
    ),
}


def evaluated(tmp_path: Path, tile: int = 2, reuse: str = "All") -> pm.Report:
    file = tmp_path / "spec.yaml"
    file.write_text(SPEC.format(tile=tile, reuse=reuse), encoding="utf-8")
    return pm.evaluate(pm.load(file))


def reads(sparse: pm.SparseReport) -> tuple[float, str]:
    """The reads of B and their label."""
    found = next(a for a in sparse.counts.accesses if (a.tensor, a.kind) == ("B", "reads_fill"))
    return float(found.actual), found.label


def needed(data: pm.SparseTensor, tile: int) -> int:
    """The reads of both elements of a row of B, for each k and each place in the instances' rows."""
    rows, columns = data.coords
    return 2 * len({(k, m % tile) for m, k in zip(rows.tolist(), columns.tolist(), strict=True)})


@pytest.mark.parametrize(("name", "tile"), seeds(8, [(name, tile) for tile in (2, 3) for name in MODELS]))
def test_one_read_for_rows_of_several_instances(tmp_path: Path, name: str, tile: int) -> None:
    """All 64 reads were counted with models that know places. With tiles of 3 an instance has one row."""
    model, report, many = MODELS[name], evaluated(tmp_path, tile), 200
    sparse = pm.sparsify(report, densities={"A": model})
    found, label = reads(sparse)
    if name == "groups" and tile == 3:  # the order of fibers matters where parts have several sizes
        assert label == "bound"
        assert any("do not consist of consecutive elements" in n for n in sparse.notes)
        return
    data = [model.draw(seed, "A") for seed in range(many)]
    walked = np.array([needed(one, tile) for one in data])
    assert reads(pm.sparsify(report, tensors={"A": data[0]})) == (walked[0], "exact")
    assert found < 2 * 16 * tile
    assert found == pytest.approx(walked.mean(), abs=4 * walked.std() / many**0.5 + 0.02 * walked.mean())
    assert label == "expected"
    assert not any("never to be empty" in n for n in sparse.notes)


def test_rows_of_one_nonzero_meet_as_often_as_their_positions_say(tmp_path: Path) -> None:
    """A column is empty in eight rows with probability (15/16)^8; a uniform density differs slightly."""
    found, label = reads(pm.sparsify(evaluated(tmp_path), densities={"A": MODELS["rows of one nonzero"]}))
    assert found == pytest.approx(64 * (1 - (15 / 16) ** 8))
    assert label == "expected"


def test_a_read_for_each_instance_looks_at_its_own_rows(tmp_path: Path) -> None:
    found, label = reads(pm.sparsify(evaluated(tmp_path, reuse="A | Z"), densities={"A": MODELS["rows"]}))
    assert found == pytest.approx(2 * sum(SKEWED))
    assert label == "expected"


def test_samples_of_a_matrix_say_how_many_parts_with_gaps_are_empty(tmp_path: Path) -> None:
    """All nonzeros are drawn here, so that the fraction of nonempty parts is exact."""
    data, report = MODELS["rows and columns"].draw(3, "A"), evaluated(tmp_path)
    found, label = reads(pm.sparsify(report, densities={"A": pm.Sampled.from_tensor(data)}))
    assert found == pytest.approx(reads(pm.sparsify(report, tensors={"A": data}))[0])
    assert label == "expected"


def test_parts_that_a_model_does_not_describe_are_named(tmp_path: Path) -> None:
    """A band is at known positions, but is not asked for rows that are not consecutive."""
    sparse = pm.sparsify(evaluated(tmp_path), densities={"A": pm.Banded(RANKS, SHAPE, 1)})
    assert reads(sparse) == (64, "bound")
    (note,) = sparse.notes
    assert note.startswith(
        "Z: tiles of A do not consist of consecutive elements, and its model does not describe"
    )
