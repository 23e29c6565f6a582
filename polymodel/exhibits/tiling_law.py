"""Expected words moved by square tiles of a matrix times itself whose nonzeros lie at random places.

With it the exhibit `tailors` says what sizes and densities of the published workloads give. Every element is
nonzero with probability d, by itself, and the two factors are taken to be independent. Loops are those of
ExTensor (Hegde et al., MICRO 2019): tiles of B stay (j, k), those of A and of the result stream past (i).

Two tiles T x T meet if at one of T shared coordinates both have a nonzero, each with q = 1 - (1-d)^T, so with
P = 1 - (1-q^2)^T. What is fetched counts where a pair meets: of T^2 places d T^2 (1 - (1-q) (1-q^2)^(T-1)),
as the pair of a nonzero meets there, with q, or at one of the other T-1 coordinates. An entry of the result
has not appeared by the k-th tile along the shared rank with probability (1-d^2)^(k T).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy import exp, expm1, log1p

from polymodel.exhibits.sparse_tiles import side

# The last-level buffer of ExTensor: 30 MB (Hegde et al., MICRO 2019), a third for each tensor, words of 8
# bytes.
THIRD = 30 * 2**20 // 8 // 3


@dataclass(frozen=True)
class PublishedMatrix:
    """A square matrix: its rows, and its nonzeros."""

    name: str
    rows: int
    nonzeros: int


# The matrices of SuiteSparse on which DRT was measured (run_scripts/run_basic of FPSG-UIUC/DRT); Tailors has
# 22 of the same collection.
WORKLOADS = tuple(
    PublishedMatrix(*row)
    for row in (
        ("mac_econ_fwd500", 206500, 1273389), ("shipsec1", 140874, 7813404), ("pwtk", 217918, 11634424),
        ("consph", 83334, 6010480), ("cant", 62451, 4007383), ("rma10", 46835, 2374001),
        ("pdb1HYS", 36417, 4344765), ("bcsstk17", 10974, 428650), ("cop20k_A", 121192, 2624331),
        ("scircuit", 170998, 958936), ("enron", 69244, 276143), ("mc2depi", 525825, 2100225),
        ("sx-mathoverflow", 24818, 239978), ("cit-HepPh", 34546, 421578),
        ("soc-Epinions1", 75888, 508837), ("p2p-Gnutella31", 62586, 147892),
        ("soc-sign-epinions", 131828, 841372), ("sx-askubuntu", 159316, 596933),
        ("email-EuAll", 265214, 420045), ("amazon0302", 262111, 1234877),
    )
)  # fmt: skip


def none_of(times: float, chance: float) -> float:
    """Return (1 - chance)^times."""
    return float(exp(times * log1p(-chance))) if chance < 1 else 0.0


def expected_words(rows: int, nonzeros: float, tile: int) -> float:
    """Return the expected words, 2 for each nonzero and nonempty row of a tile and 3 for each tile that is
    moved; tiles at the edges are averaged with the others."""
    density, count = nonzeros / rows**2, -(-rows // tile)
    size = rows / count
    across = 1 - none_of(size, density)  # a line of a tile has a nonzero
    meet = 1 - none_of(size, across**2)
    entries, _ = _meeting(size, density, across)
    # A row of A is nonempty, where the pair meets: all less those where the row is empty.
    empty = none_of(size, density) * (1 - none_of(size, (1 - none_of(size - 1, density)) * across))
    of_a = 2 * entries + 2 * size * (meet - empty) + 3 * meet
    anything = 1 - none_of(rows, density)  # a column of A has a nonzero, in any tile
    kept, kept_lines = _meeting(size, density, anything)
    of_b = 2 * kept + 2 * kept_lines + 3 * (1 - none_of(size, across * anything))
    results = 2 * _accumulated(count, size, density**2, meet, size**2)
    results += 2 * _accumulated(count, size, density * across, meet, size)
    again = float((-expm1(np.arange(count) * log1p(-min(meet, 1 - 1e-16)))).sum())
    results += 3 * (meet * count + meet * again)
    return (count**3 if count > 1 else 1) * of_a + count**2 * (of_b + results)


def _meeting(size: float, density: float, other: float) -> tuple[float, float]:
    """Return the expected nonzeros and nonempty lines of a tile along the shared rank, counted where it meets
    the other operand, of which a line has a nonzero with probability `other`."""
    across = 1 - none_of(size, density)
    meets = 1 - (1 - other) * none_of(size - 1, across * other)
    return size**2 * density * meets, size * across * meets


def _accumulated(count: int, size: float, chance: float, meet: float, places: float) -> float:
    """Return the expected number of places of a tile of the result that have appeared, summed over its
    visits, before and after each. `chance`: that a place appears at one shared coordinate."""
    done = np.arange(count) * size
    missing = exp(done * log1p(-chance)) if chance < 1 else (done == 0).astype(float)
    after = meet - missing * (none_of(size, chance) - (1 - meet))
    return float(places * (after + (1 - missing) * meet).sum())


def fitting(rows: int, nonzeros: int, results: bool) -> int:
    """Return the largest square tile that fits a third of the buffer as expected; `results`: tiles of the
    result have to fit as well."""
    density = nonzeros / rows**2
    made = 1 - none_of(rows, density**2)
    for count in range(1, rows + 1):
        size = -(-rows // count)
        held = [density] + [made] * results
        if all(2 * d * size**2 + 2 * size * (1 - none_of(size, d)) + 3 <= THIRD for d in held):
            return size
    return 1


def expected_gains(results: bool) -> dict[str, float]:
    """Return, for each workload, the expected words of tiles for the worst case over those of tiles that fit
    as expected."""
    found = {}
    for w in WORKLOADS:
        worst = expected_words(w.rows, w.nonzeros, side(THIRD))
        found[w.name] = worst / expected_words(w.rows, w.nonzeros, fitting(w.rows, w.nonzeros, results))
    return found
