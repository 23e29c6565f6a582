"""A tensor of facts (rank 4) cut along each pair of its ranks, counted with sets of tuples."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from polymodel.tiling.fits.fit import Elements, Words
from polymodel.tiling.plane.operands import Alone, Rolled, pattern_of
from polymodel.tiling.plane.pattern import TileCounts
from polymodel.tiling.tilers.strips import strips
from polymodel.tiling.tilers.trees import btree
from tests.faults import every_fault
from tests.sparse import data
from tests.tiling.test_operands import Points, csf_words, held
from tests.tiling.test_properties import check_partition

RANKS = ("R", "E1", "E2", "E3")
# Places of the plane that A holds, the same for both orders of a pair: lines of the file with the other
# columns cut away, repeated lines removed.
PLACES = {
    ("R", "E1"): 2026, ("R", "E2"): 2098, ("R", "E3"): 2112,
    ("E1", "E2"): 3632, ("E1", "E3"): 3613, ("E2", "E3"): 3681,
}  # fmt: skip


@pytest.mark.parametrize("cut", list(permutations(RANKS, 2)), ids="-".join)
@pytest.mark.thin(5)
def test_every_pair_of_ranks_has_the_points_of_sets(cut: tuple[str, str]) -> None:
    a = data.tensor("facts")
    own = (*cut, *(rank for rank in RANKS if rank not in cut))
    height = a.shape[RANKS.index(cut[0])]
    ours: Points = set(zip(*(a.rank(rank).tolist() for rank in own), strict=True))
    theirs = {((p[0] + 5) % height, *p[1:]) for p in ours}
    found = pattern_of(a, Rolled(5), cut)
    assert set(held(found, found.in_a)) == ours
    assert set(held(found, found.in_b)) == theirs
    assert found.points == len(ours | theirs)
    assert held(found, np.ones(found.points, bool)) == sorted(ours | theirs)
    assert found.inner_a is not None
    planes, cubes = ({p[:n] for p in ours} for n in (2, 3))
    assert int(found.inner_a.sum()) == len(planes) + len(cubes)
    assert len(planes) == PLACES.get(cut, PLACES.get(cut[::-1]))


def test_words_of_tiles_of_a_whole_tensor() -> None:
    """Entities 1 and 2 in tiles of 2,048 words, each tile's fibertree built of tuples."""
    a = data.tensor("facts")
    pattern = pattern_of(a, Alone(), ("E1", "E2"))
    found = strips(pattern, "multiply", Words(2048))
    check_partition(pattern, found)
    tiles: dict[int, Points] = {}
    for tile, point in zip(found.ids.tolist(), held(pattern, pattern.in_a), strict=True):
        tiles.setdefault(tile, set()).add(point)
    counts = TileCounts(pattern, found.ids, found.tiles)
    loads = Words(2048).loads(counts, found.rects, "multiply")
    assert loads.tolist() == [csf_words(tiles.get(tile, set()), 4) for tile in range(found.tiles)]
    assert loads.max() <= 2048
    assert sum(map(len, tiles.values())) == 6000


def test_what_lies_behind_one_place_cannot_be_cut() -> None:
    """136 facts have entity 499 first and 1420 last, 9 rolled ones too; with the last two ranks cut away no
    tile parts them."""
    pattern = pattern_of(data.tensor("facts"), Rolled(5), ("E1", "E3"))
    with every_fault(("over-capacity", ""), ("over-capacity", "")):
        btree(pattern, "add", Elements(128))
    assert btree(pattern, "add", Elements(145)).tiles >= -(-2 * 6000 // 145)
