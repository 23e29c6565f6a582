"""Gamma: row-wise sparse products, with the rows of B in a cache."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.teaal_designs import ARTIFACT, matrix, metric, multiplied, small_product
from polymodel.sparse.tensor import Ints

# Peers of p2p-Gnutella31 and links between them. Fitted: the number, out of 15 link ends, that lie at one
# half of the peers, chosen to give the published number of multiplies.
PEERS, LINKS = 62586, 147892
HEAVY, OF = 13, 15
# Unknowns of poisson3Da and couplings between them. Fitted: the side of the inner cube, which holds half of
# the points, to the multiplies; and the noise added to distances, to the size of the result.
UNKNOWNS, COUPLINGS = 13514, 352762
INNER, BLURRED, REACH = 0.65, 0.35, 0.121


def peers() -> Ints:
    """Generate a graph of the published size, whose two kinds of peers have equal in- and out-degree
    distributions; returns the [M, K] coordinates of A."""
    draw = np.random.default_rng(1)
    half, result = PEERS // 2, np.zeros(0, dtype=np.int64)
    while result.size < LINKS:
        ends = []
        for _ in ("from", "to"):
            first = draw.integers(0, OF, LINKS) < HEAVY
            many, few = draw.integers(0, half, LINKS), draw.integers(half, PEERS, LINKS)
            ends.append(np.where(first, many, few))
        result = np.concatenate([result, ends[0] * PEERS + ends[1]])
        result = result[np.sort(np.unique(result, return_index=True)[1])][:LINKS]
    order = np.argsort(draw.integers(0, 2**62, PEERS), kind="stable")
    return order[np.stack([result // PEERS, result % PEERS])]


def mesh() -> Ints:
    """Generate points in a cube, half of them in an inner cube, each coupled to itself and to nearby points;
    the points are numbered from one face of the cube to the opposite one."""
    from scipy.spatial import cKDTree

    draw = np.random.default_rng(1)
    points = draw.random((UNKNOWNS, 3))
    points[: UNKNOWNS // 2] = (1 - INNER) / 2 + INNER * points[: UNKNOWNS // 2]
    points = points[np.argsort(points[:, 0])]
    near = cKDTree(points).query_pairs(REACH, output_type="ndarray")
    apart = np.linalg.norm(points[near[:, 0]] - points[near[:, 1]], axis=1)
    blurred = apart * np.exp(BLURRED * draw.standard_normal(apart.size))
    coupled = near[np.argsort(blurred)[: (COUPLINGS - UNKNOWNS) // 2]].T
    return np.concatenate([coupled, coupled[::-1], np.stack([np.arange(UNKNOWNS)] * 2)], axis=1)


@dataclass(frozen=True)
class Squared:
    """A matrix times itself: published figures, and a generated matrix of its structure. `of_a`, `of_b`,
    `of_z`: bytes; `modelled`, `reported`: nanoseconds of TeAAL's model and as reported for Gamma;
    `structure`: a description of the generated matrix; `fitted`: the figures to which it was fitted, and how;
    `others`: why the other figures differ."""

    name: str
    size: int
    coords: Callable[[], Ints]
    of_a: int
    of_b: int
    of_z: int
    multiplies: int
    adds: int
    modelled: float
    reported: float
    structure: str
    fitted: dict[str, str]
    others: dict[str, str]

    def figures(self) -> Iterator[PublishedFigure]:
        """Return the figures of this package beside the published ones."""
        coords, shape = self.coords(), (self.size, self.size)
        found = multiplied("gamma", matrix("A", shape, coords[::-1]), matrix("B", shape, coords))
        time = None if found.time is None else found.time * 1e9
        for what, unit, printed, ours in (
            ("A", "bytes", self.of_a, metric(found, "T", "MainMemory", "A", "read") // 8),
            ("B", "bytes", self.of_b, metric(found, "T", "MainMemory", "B", "read") // 8),
            ("Z", "bytes", self.of_z, metric(found, "Z", "MainMemory", "Z", "write") // 8),
            ("multiplies", "operations", self.multiplies, metric(found, "Z", "FPMul", "mul")),
            ("adds", "operations", self.adds, metric(found, "Z", "FPAdd", "add")),
            ("time, TeAAL's model", "ns", self.modelled, time),
            ("time, as reported for Gamma", "ns", self.reported, time),
        ):
            why = self.fitted.get(what) or self.others.get(what) or self.structure
            yield PublishedFigure(f"like {self.name}: {what}", unit, printed, ours, why)


PEAK = "ours if memory runs at its peak bandwidth and work is spread evenly, as in TeAAL's model"
LONGER = "ours is drawn; rows of the graph itself are fewer and longer, so that fewer lines are half empty"
MATRICES = (
    Squared(
        "p2p-Gnutella31", PEERS, peers, 2039688, 1822872, 6701556, 538318, 717, 76864.06025, 82186,
        "ours is a graph with as many peers and links, drawn",
        {"multiplies": "fitted: how uneven links are dealt to peers"},
        {
            "A": LONGER, "B": LONGER, "time, as reported for Gamma": PEAK,
            "adds": "two paths between the same peers are rarer where links are drawn independently",
        },
    ),
    Squared(
        "poisson3Da", UNKNOWNS, mesh, 4326648, 4326648, 35544416, 11768678, 8811148, 428300.0, 373730,
        "ours is a mesh with as many unknowns and couplings, drawn",
        {
            "multiplies": "fitted: how dense the mesh is inside",
            "Z": "fitted: by how much distances are blurred",
        },
        {
            "adds": "multiplies less the elements of Z", "time, as reported for Gamma": PEAK,
            "time, TeAAL's model": "rows with more nonzeros than the merger has lists take it more than one "
            "round; ours has fewer of them",
        },
    ),
)  # fmt: skip


def figures() -> Iterator[PublishedFigure]:
    yield from small_product("gamma")
    for one in MATRICES:
        yield from one.figures()
    yield PublishedFigure(
        "wiki-Vote, ca-CondMat, email-Enron: traffic and time", "bytes, ns", "in the data", None,
        "no generator here has their structure: how often two rows share a column decides how large the "
        "result is",
    )  # fmt: skip


EXHIBIT = Exhibit(
    "gamma",
    "Gamma: sparse matrix products row by row",
    f"Zhang et al., ASPLOS 2021; Nayak et al., TeAAL, MICRO 2023, figures 8b and 9b: data of {ARTIFACT}",
    "Traffic of the library's TeAAL spec; its cache drops the line used least recently.",
    figures,
)
