"""The size of the space of fused mappings: what is fused, in which order, with which sizes, and each Einsum's
own.

Orojenesis (Huang et al., ISCA 2024) estimates it for chains of matrix products as choices of what is fused x
permutations of fused ranks x sizes of fused ranks x mappings within an Einsum; here each factor is counted
for the given workload. Tiles are perfect factors; incompatible neighbours are included.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import comb, factorial, prod
from typing import TYPE_CHECKING

from polymodel.errors import Diagnostic, SpecError
from polymodel.factoring import divisor_count, prime_factors
from polymodel.slopes.levels import BY_HAND
from polymodel.slopes.tile_sizes import extent
from polymodel.spec.faults import as_whole, not_a_spec, shown
from polymodel.workload.einsum import Cascade, Einsum, TensorAccess, require_plain

if TYPE_CHECKING:
    import pandas

    from polymodel.loading import Spec


def factor_subsets(size: int) -> int:
    """Return the number of subsets of the prime factors, equal factors distinguished: 2^11 for 2048.

    A search over these subsets, such as Timeloop's, encounters the same loop bound repeatedly.
    """
    return int(2 ** sum(prime_factors(size).values()))


def ways_to_reach(size: int, factor: int) -> int:
    """Return the number of subsets of the prime factors of a size whose product is `factor`: 11 for 1024 out
    of 2048."""
    there, wanted = prime_factors(size), prime_factors(factor)
    return prod(comb(there.get(p, 0), e) for p, e in wanted.items())


def factorizations(size: int, parts: int) -> int:
    """Return the number of ways to write a size as a product of `parts` ordered factors."""
    return prod(comb(e + parts - 1, parts - 1) for e in prime_factors(size).values())


@dataclass(frozen=True)
class LinkSpace:
    """The choices at one intermediate between two Einsums.

    `fuse`: subsets of the shared ranks; with the empty one the tensor is held whole or written back.
    `permute`: orders of the ranks if all are fused. `sizes`: loop bounds of all ranks; `subsets`: the same by
    prime factors. `nests`: all distinct choices: each nest of fused loops of bound above 1, and the two
    choices without one.
    """

    tensor: str
    producer: str
    consumer: str
    ranks: tuple[tuple[str, int], ...]

    @property
    def fuse(self) -> int:
        return int(2 ** len(self.ranks))

    @property
    def permute(self) -> int:
        return factorial(len(self.ranks))

    @property
    def sizes(self) -> int:
        return prod(divisor_count(size) for _, size in self.ranks)

    @property
    def subsets(self) -> int:
        return prod(factor_subsets(size) for _, size in self.ranks)

    @property
    def nests(self) -> int:
        bounds = [divisor_count(size) - 1 for _, size in self.ranks]
        fused = (
            factorial(n) * prod(some) for n in range(1, len(bounds) + 1) for some in combinations(bounds, n)
        )
        return 2 + sum(fused)


def links_of(cascade: Cascade) -> Iterator[LinkSpace]:
    """Return every intermediate with each of its consumers; ranks of size 1 cannot be fused."""
    for tensor in cascade.tensors:
        producer = cascade.producer(tensor)
        if producer is None:
            continue
        access = producer.access_of(tensor)
        for consumer in cascade.consumers(tensor):
            ranks = ((r, _size(producer, access, i)) for i, r in enumerate(access.ranks))
            shared = tuple((r, size) for r, size in ranks if size > 1)
            yield LinkSpace(tensor, producer.name, consumer.name, shared)


def _size(one: Einsum, access: TensorAccess, rank: int) -> int:
    """Return the extent of a rank in a box of rank variables, as seen by a loop over it."""
    expression = access.projection[rank]
    return 1 + sum(extent(one, v) - 1 for v in expression.variables)


def intra_layer(one: Einsum, levels: int) -> int:
    """Return the number of mappings of one Einsum on `levels` memories.

    Perfect factors x loop orders of each level x subsets of tensors that each memory other than the outermost
    keeps.
    """
    sizes = [x for v in one.rank_variables if (x := extent(one, v)) > 1]
    tiles = prod(factorizations(x, levels) for x in sizes)
    return int(tiles * factorial(len(sizes)) ** levels * 2 ** (len(one.tensors) * (levels - 1)))


def design_space(spec: Spec, *, levels: int | None = None) -> pandas.DataFrame:
    """The size of the space of fused mappings, factor by factor.

    One row per intermediate and consumer, one per Einsum, and the total. Columns: `kind` (link, einsum,
    total), `name`, `ranks` (that may be fused), `fuse` (which of them), `permute` (their orders), `sizes`
    (their loop bounds), `factor_subsets` (the same as subsets of prime factors), `nests` (distinct choices at
    a link: written back, held whole, or fused loops in order with sizes), `intra_layer` (mappings within an
    Einsum), `mappings`. In the total `fuse` and `permute` multiply over links, `sizes` is the largest link's,
    `intra_layer` is a sum, since Einsums are searched separately, and `mappings` is their product,
    Orojenesis' estimate. Counts are Python integers. `levels`: memories, by default those of the
    architecture, or 2. Raises SpecError for fewer than 2.
    """
    import pandas

    from polymodel.loading import Spec as Loaded

    if not isinstance(spec, Loaded):
        raise not_a_spec("design_space", spec)
    if levels is None:
        memories = sum(c.stores for c in spec.arch.components) if spec.raw_arch is not None else 2
        levels = max(2, memories)
    given, levels = levels, as_whole(levels) or 0
    if levels < 2:
        what = f"levels={shown(given)} is not a number of memories"
        remedy = "a mapping has at least two: give 2, 3, ..."
        raise SpecError([Diagnostic(what, remedy, "levels", code="wrong-type")])
    require_plain(spec.workload, "slopes cover", BY_HAND, products=True)
    links = tuple(links_of(spec.workload))
    inner = {one.name: intra_layer(one, levels) for one in spec.workload}
    rows: list[dict[str, object]] = [_link_row(link) for link in links]
    rows += [
        {"kind": "einsum", "name": name, "ranks": "", "intra_layer": count} for name, count in inner.items()
    ]
    rows.append(_total(links, sum(inner.values())))
    columns = [
        "kind", "name", "ranks", "fuse", "permute", "sizes", "factor_subsets", "nests", "intra_layer",
        "mappings",
    ]  # fmt: skip
    table = [[row.get(c, pandas.NA) for c in columns] for row in rows]
    frame = pandas.DataFrame(table, columns=columns, dtype=object)
    frame.attrs["levels"] = levels
    return frame


def _link_row(link: LinkSpace) -> dict[str, object]:
    return {
        "kind": "link",
        "name": f"{link.tensor}: {link.producer} -> {link.consumer}",
        "ranks": " ".join(f"{rank}={size}" for rank, size in link.ranks),
        "fuse": link.fuse,
        "permute": link.permute,
        "sizes": link.sizes,
        "factor_subsets": link.subsets,
        "nests": link.nests,
    }


def _total(links: tuple[LinkSpace, ...], inner: int) -> dict[str, object]:
    fuse, permute = prod(x.fuse for x in links), prod(x.permute for x in links)
    sizes = max((x.sizes for x in links), default=1)
    return {
        "kind": "total",
        "name": "",
        "ranks": "",
        "fuse": fuse,
        "permute": permute,
        "sizes": sizes,
        "factor_subsets": max((x.subsets for x in links), default=1),
        "nests": prod(x.nests for x in links),
        "intra_layer": inner,
        "mappings": fuse * permute * sizes * inner,
    }
