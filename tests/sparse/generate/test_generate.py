"""Generated matrices: what each kind promises, the same everywhere, and what is not a matrix."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest

import polymodel as pm
from tests.seeds import seeds

# A call of each seeded kind and the digest of its places and values: no platform and no version changes them.
MADE = {
    "banded": ({"rows": 50, "columns": 80, "width": 6, "percent": 30}, "09b47a43ea772231"),
    "blocked": ({"blocks": 12, "block": 3, "reach": 4, "percent": 50}, "a7fb9aabace33a45"),
    "power-law": ({"shape": [40, 30, 20], "entries": 300}, "a2f30a4d2964ebfc"),
    "stencil": ({"height": 9, "width": 7, "points": 7, "percent": 60}, "ed45d7fdebf930a5"),
    "incidence": ({"rows": 60, "columns": 20, "window": 9, "repeat": 3, "empty": 20}, "bf075169a26cbb8d"),
    "staircase": ({"stages": 4, "rows": 6, "columns": 11, "coupling": 3}, "4666c9865ea956a7"),
}


def digest(tensor: pm.SparseTensor) -> str:
    told = hashlib.sha256(np.array([*tensor.shape, tensor.nnz], "<i8").tobytes())
    told.update(np.ascontiguousarray(tensor.coords, "<i8").tobytes())
    told.update(np.ascontiguousarray(tensor.values, "<i8").tobytes())
    return told.hexdigest()[:16]


@pytest.mark.parametrize("kind", MADE)
def test_the_same_everywhere(kind: str) -> None:
    options, wanted = MADE[kind]
    found = pm.generate_tensor(kind, 5, **options)  # type: ignore[arg-type]  # options of one kind
    assert digest(found) == wanted
    assert digest(pm.generate_tensor(kind, 6, **options)) != wanted  # type: ignore[arg-type]  # as above
    assert set(found.values.tolist()) <= set(range(1, 10))
    assert (found.name, found.ranks) == (kind, ("I", "J", "K")[: len(found.shape)])


def symmetric(dense: np.ndarray) -> bool:
    return bool(((dense != 0) == (dense.T != 0)).all())


def test_a_band_is_full_along_its_diagonal_and_empty_outside() -> None:
    found = pm.generate_tensor("banded", rows=40, width=5, percent=40)
    i, j = found.coords
    assert abs(i - j).max() == 5
    assert set(zip(range(40), range(40), strict=True)) <= set(zip(i.tolist(), j.tolist(), strict=True))
    assert found.nnz == pytest.approx(40 + 0.4 * (40 * 10 - 30), rel=0.2)
    assert pm.generate_tensor("banded", rows=7).nnz == 7
    assert pm.generate_tensor("banded", rows=4, columns=8).coords.tolist() == [[0, 1, 2, 3], [0, 2, 4, 6]]


def test_blocks_are_dense_and_symmetric() -> None:
    dense = pm.generate_tensor("blocked", blocks=9, block=4, reach=3, percent=50).to_dense() != 0
    blocks = dense.reshape(9, 4, 9, 4).sum(axis=(1, 3))
    assert set(blocks.ravel().tolist()) == {0, 16}
    assert symmetric(dense)
    assert (np.diag(blocks) == 16).all()
    far = abs(np.subtract.outer(np.arange(9), np.arange(9))) > 3
    assert not blocks[far].any()
    assert pm.generate_tensor("blocked", blocks=5, block=2, reach=0).nnz == 20


def test_a_power_law_is_skewed_and_counted() -> None:
    found = pm.generate_tensor("power-law", shape=[500, 500], entries=3000, symmetric=1)
    assert found.nnz == 6000
    assert symmetric(found.to_dense())
    assert not (found.coords[0] == found.coords[1]).any()
    rows = np.bincount(found.coords[0], minlength=500)
    assert rows.max() > 8 * rows.mean()
    even = np.bincount(pm.generate_tensor("power-law", shape=[512, 512], entries=6000, skew=50).coords[0])
    assert even.max() < 3 * even.mean()
    full = pm.generate_tensor("power-law", shape=[3, 4], entries=12, skew=50)
    assert full.nnz == 12


def test_a_stencil_links_neighbours() -> None:
    for points, links in ((5, 2 * 2 * 30 - 6 - 5), (7, 3 * 30 - 2 * 11 + 1), (9, 4 * 30 - 3 * 11 + 2)):
        found = pm.generate_tensor("stencil", height=5, width=6, points=points)
        assert symmetric(found.to_dense())
        assert found.nnz == 30 + 2 * (links if points > 5 else 2 * 30 - 11)
        y, x = np.divmod(found.coords, 6)
        assert max(abs(y[0] - y[1]).max(), abs(x[0] - x[1]).max()) == 1
    few = pm.generate_tensor("stencil", height=5, width=6, percent=0)
    assert few.nnz == 30


def test_rows_of_an_incidence_matrix() -> None:
    found = pm.generate_tensor(
        "incidence", rows=300, columns=40, least=3, most=4, window=10, repeat=6, empty=30
    )
    rows = [found.coords[1][found.coords[0] == i].tolist() for i in range(300)]
    assert {len(r) for r in rows} == {0, 3, 4}
    assert all(max(r) - min(r) < 10 for r in rows if r)
    assert 50 < sum(not r for r in rows) < 130
    assert sum(a == b != [] for a, b in pairwise(rows)) > 50


def test_a_staircase_has_stages_and_heavy_rows() -> None:
    found = pm.generate_tensor("staircase", stages=5, rows=8, columns=12, coupling=2)
    assert found.shape == (42, 60)
    rows = np.bincount(found.coords[0], minlength=42)
    assert rows.min() >= 1
    assert rows[40:].min() > rows[:40].max()
    inside = found.coords[0] < 40
    behind = found.coords[0][inside] // 8 - found.coords[1][inside] // 12
    assert set(behind.tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("kind", "options", "told"),
    [
        ("band", {}, "there is no kind 'band' of matrices.*did you mean banded"),
        (3, {}, "there is no kind 3"),
        ("banded", {}, "a banded matrix needs rows"),
        ("banded", {"rows": 5, "with": 3}, "no option with.*did you mean width"),
        ("banded", {"rows": 0.5}, "0.5 is not a whole number"),
        ("banded", {"rows": 5, "percent": 101}, "101 is not a whole number from 0 to 100"),
        ("banded", {"rows": 5, "shape": [5]}, "a banded matrix takes no shape"),
        ("power-law", {"entries": 5}, "needs a shape"),
        ("power-law", {"entries": 5, "shape": 7}, "7 is not a list of sizes"),
        ("power-law", {"entries": 5, "shape": [4, 5], "symmetric": 1}, r"\[4, 5\] is not a square matrix"),
        ("power-law", {"entries": 5, "shape": [4], "symmetric": 1}, r"\[4\] is not a square matrix"),
        ("stencil", {"height": 2, "width": 2, "points": 6}, "6 points are not stencil"),
        ("incidence", {"rows": 2, "columns": 3}, "fall"),
        ("banded", {"rows": 5, "seed": -1}, "-1 is not a seed"),
        ("banded", {"rows": 5, "ranks": ["I"]}, "do not fit"),
        ("banded", {"rows": 5, "name": 3}, "3 is not a name"),
    ],
)
def test_what_is_no_matrix(kind: str, options: dict[str, object], told: str) -> None:
    with pytest.raises(pm.SpecError, match=f"(?s){told}"):
        pm.generate_tensor(kind, **options)  # type: ignore[arg-type]  # faults are the test


def test_all_faults_are_told_at_once() -> None:
    with pytest.raises(pm.SpecError) as told:
        pm.generate_tensor("stencil", -1, height=0, points=99, size=3, name=5)  # type: ignore[arg-type]  # the faults
    assert [d.path for d in told.value.diagnostics] == ["name", "seed", "size", "height", "width", "points"]


@pytest.mark.parametrize(
    ("kind", "options"),
    seeds(
        4,
        [
            ("banded", {"rows": 10**9, "width": 10}),
            ("stencil", {"height": 10**5, "width": 10**5}),
            ("power-law", {"shape": [10, 10], "entries": 101}),
            ("power-law", {"shape": [2**40, 2**40], "entries": 5}),
            ("power-law", {"shape": [256, 256], "entries": 60000, "skew": 99}),
        ],
    ),
)
def test_too_much_is_refused(kind: str, options: dict[str, int]) -> None:
    with pytest.raises(pm.Refused):
        pm.generate_tensor(kind, **options)
