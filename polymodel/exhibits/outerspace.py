"""OuterSPACE: outer-product sparse matrix multiplication, its traffic and time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from polymodel.exhibits.records import Exhibit, PublishedFigure
from polymodel.exhibits.teaal_designs import ARTIFACT, matrix, metric, multiplied, small_product
from polymodel.sparse.density import random_tensor
from polymodel.sparse.traffic.records import CascadeTraffic

# Rows, density -> bytes of A, B, the partial products (written and read) and the result, multiplies, merge
# steps, nanoseconds of TeAAL's model, and nanoseconds as reported by the authors of OuterSPACE.
PRINTED = {
    (19937, 5e-4): (2507896, 2507632, 49460072, 23833992, 1987858, 10910163, 569777.2722, 2530026.092),
    (39888, 1.3e-4): (2721936, 2707496, 27696728, 12941600, 1072202, 3310820, 335187.0691, 1791121.306),
    (79730, 3.1e-5): (2844400, 2633688, 13811848, 6009584, 488667, 817561, 184078.2352, 1715437.896),
}


@cache
def squared(rows: int, density: float) -> CascadeTraffic:
    """Return the traffic of a random matrix times its transpose."""
    a = random_tensor(("K", "M"), (rows, rows), density, seed=1, name="A")
    return multiplied("outerspace", a, matrix("B", (rows, rows), a.coords[::-1]))


def figures() -> Iterator[PublishedFigure]:
    yield from small_product("outerspace")
    # Row pointers of partial products and of the result, 4 bytes each, are counted in the artifact's small
    # product, but, judging by its numbers, not in its stored data.
    drawn = "theirs and ours are drawn at random"
    for (rows, density), (of_a, of_b, of_t, of_z, products, merged, modelled, reported) in PRINTED.items():
        found, name = squared(rows, density), f"{rows:,} rows, {density:g}"
        memory = "MainMemory"
        partial = metric(found, "T1", memory, "T0", "read") + metric(found, "T1", memory, "T1", "write")
        moved = {
            "A": (of_a, metric(found, "T0", memory, "A", "read")),
            "B": (of_b, metric(found, "T0", memory, "B", "read")),
            "partial products": (of_t, partial),
            "result": (of_z, metric(found, "Z", memory, "Z", "write")),
        }
        for what, (printed, bits) in moved.items():
            why = f"{drawn}; ours has row pointers" if len(what) > 1 else drawn
            yield PublishedFigure(f"{name}: {what}", "bytes", printed, bits // 8, why)
        multiplies = metric(found, "T0", "FPMul", "mul")
        yield PublishedFigure(f"{name}: multiplies", "operations", products, multiplies, drawn)
        steps = metric(found, "Z", "SortHW", "T1_MKN")
        yield PublishedFigure(f"{name}: merge steps", "steps", merged, steps, drawn)
        time = None if found.time is None else found.time * 1e9
        yield PublishedFigure(f"{name}: time, TeAAL's model", "ns", modelled, time, drawn)
        yield PublishedFigure(
            f"{name}: time, as reported for OuterSPACE", "ns", reported, time,
            "ours if memory runs at its peak bandwidth and work is spread evenly, as in TeAAL's model; in "
            "the reported time, simulated with gem5, the bytes that both models count move at "
            f"{100 * modelled / reported:.0f} % of the peak: the less, the fewer partial products a list has "
            f"({rows * density:.1f})",
        )  # fmt: skip


EXHIBIT = Exhibit(
    "outerspace",
    "OuterSPACE: sparse matrix products by outer products",
    f"Pal et al., HPCA 2018; Nayak et al., TeAAL, MICRO 2023, figure 9c: data of {ARTIFACT}",
    "Traffic of the library's TeAAL spec on random matrices of the published sizes and densities.",
    figures,
)
